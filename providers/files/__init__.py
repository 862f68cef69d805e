"""Uploaded files: their bytes by content, their names in a table."""
