"""Common parts of models in this process: threads, batches, sessions, and BERT's graph."""
