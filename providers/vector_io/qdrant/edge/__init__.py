"""Qdrant Edge as an index over the chunk file."""
