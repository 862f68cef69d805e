"""Documents: the chunks of an index by the `document_id` in their metadata."""

from __future__ import annotations

from dataclasses import dataclass

READ_CHUNKS = 500
"""Chunks per read when code walks over an index."""


@dataclass(frozen=True, slots=True)
class DocumentCount:
    """A stored document and its number of chunks."""

    document_id: str
    chunks: int
