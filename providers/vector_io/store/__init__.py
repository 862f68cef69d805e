"""A vector DB's chunks in one SQLite database, which the inline providers share, except Milvus."""
