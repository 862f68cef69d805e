"""Readers: services that convert files to text, for the file types that the operator configures."""
