"""Paths of requests; ids in them may contain any character."""

from __future__ import annotations

from urllib.parse import quote


def vector_db_path(vector_db_id: str) -> str:
    """Return the path of a vector DB."""
    return f"/v1/vector-dbs/{quoted(vector_db_id)}"


def document_path(vector_db_id: str, document_id: str) -> str:
    """Return the path of a document."""
    return f"{vector_db_path(vector_db_id)}/documents/{quoted(document_id)}"


def quoted(text: str) -> str:
    """Return an id percent-encoded, including slashes and dots: `..` would go up a level."""
    return quote(text, safe="", errors="replace").replace(".", "%2E")
