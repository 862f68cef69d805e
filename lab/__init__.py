"""Measurements for the project's own developers; not part of the package."""
