"""A vector DB's chunks in one SQLite file; sqlite, faiss and Chroma stand on it."""
