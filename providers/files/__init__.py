"""Uploaded files: their names in a table, and their bytes as blobs."""
