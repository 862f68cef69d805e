"""The data to measure on: judged sets, generated texts, and their embeddings."""
