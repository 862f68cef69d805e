"""Embedding providers: text in, embeddings out; one folder each."""
