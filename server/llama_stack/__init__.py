"""Llama Stack's wire: its routes and their types."""
