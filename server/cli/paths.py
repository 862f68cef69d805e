"""Paths of requests; ids in them may hold any character."""

from __future__ import annotations

from urllib.parse import quote


def vector_db_path(vector_db_id: str) -> str:
    """Return the path of a vector DB."""
    return f"/v1/vector-dbs/{quoted(vector_db_id)}"


def document_path(vector_db_id: str, document_id: str) -> str:
    """Return the path of a document."""
    return f"{vector_db_path(vector_db_id)}/documents/{quoted(document_id)}"


def quoted(text: str) -> str:
    """Return an id percent-encoded with its slashes and dots: `..` would be a step upward."""
    return quote(text, safe="", errors="replace").replace(".", "%2E")
