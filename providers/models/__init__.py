"""Shared by embedding, re-ranking and inference: model files, sessions, HTTP services."""
