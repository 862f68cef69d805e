"""Shared parts of in-process models: threads, batches, sessions, and BERT's graph."""
