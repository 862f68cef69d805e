"""Readers: services that turn files into text, for the types that the operator gives them."""
