"""Stored responses and conversations."""
