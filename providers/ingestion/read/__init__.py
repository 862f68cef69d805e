"""Turns bytes and web addresses into text: detects the type, and parses it in another process."""
