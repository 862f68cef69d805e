"""A collection in Qdrant Edge, in this process."""
