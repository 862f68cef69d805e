"""Documents: the chunks of an index by the `document_id` in their metadata."""

from __future__ import annotations

from dataclasses import dataclass

READ_AT_ONCE = 500
"""Chunks that a walk over an index asks for at once."""


@dataclass(frozen=True, slots=True)
class DocumentCount:
    """A document that is stored, and how many chunks it has."""

    document_id: str
    chunks: int
