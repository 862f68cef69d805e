"""Shared basics: configuration, databases, disk, keys and limits. It imports no provider."""
