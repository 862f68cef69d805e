"""A collection on a Qdrant server."""
