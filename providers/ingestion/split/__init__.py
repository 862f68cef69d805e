"""Splits a document's text into chunks, and says where in the document each one is."""
