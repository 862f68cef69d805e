"""The chunks of a vector DB in a SQLite database, for sqlite, memory, faiss, Chroma and Qdrant."""
