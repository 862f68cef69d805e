"""FAISS's indexes as searchers of a chunk file, for inline::faiss and inline::sqlite."""
