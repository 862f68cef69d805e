"""Common parts of embedding, re-ranking and inference: model files, sessions, HTTP."""
