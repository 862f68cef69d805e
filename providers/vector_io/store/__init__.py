"""A vector DB's chunks in one SQLite database; sqlite, memory, faiss and Chroma stand on it."""
