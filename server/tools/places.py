"""Ids and addresses of what is found: what `search` returns, `fetch` takes, and people open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote, unquote

from corral.api.chunks import Chunk
from corral.api.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Place:
    """A document of a vector DB, or a chunk that belongs to no document.

    Its id is `DB/DOCUMENT` or `DB//CHUNK`, each part percent-encoded.
    """

    vector_db_id: str
    document_id: str = ""
    chunk_id: str = ""

    @classmethod
    def of(cls, vector_db_id: str, chunk: Chunk) -> Self:
        """Return the place of a chunk's document, or of the chunk where it has none."""
        document_id = chunk.document_id or ""
        return cls(vector_db_id, document_id, "" if document_id else chunk.chunk_id)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the place of an id.

        Raises:
            InvalidRequest: It is none that `search` returns.
        """
        parts = text.split("/")
        if len(parts) in (2, 3) and parts[0] and parts[-1] and not "".join(parts[1:-1]):
            named = [unquote(part) for part in parts]
            return cls(named[0], named[1], named[2] if len(named) == 3 else "")
        raise InvalidRequest(
            f"id must be one that search returns, such as DB/DOCUMENT (got {text[:100]!r}).",
            field="id",
        )

    def __str__(self) -> str:
        name = quote(self.vector_db_id, safe="")
        if self.document_id:
            return f"{name}/{quote(self.document_id, safe='')}"
        return f"{name}//{quote(self.chunk_id, safe='')}"

    def url(self, base_url: str) -> str:
        """Return the address of its content on this server."""
        path = f"{base_url}/v1/vector-dbs/{_part(self.vector_db_id)}"
        return f"{path}/documents/{_part(self.document_id)}" if self.document_id else path


def _part(text: str) -> str:
    """Percent-encode a part of a path; dots, too, if there is nothing else: `..` is a step up."""
    encoded = quote(text, safe="")
    return encoded if encoded.strip(".") else encoded.replace(".", "%2E")


def title_of(chunk: Chunk) -> str:
    """Return what a chunk's document is called: its title, file name or id."""
    named = (chunk.metadata.get(key) for key in ("title", "filename", "document_id"))
    return next((each for each in named if isinstance(each, str) and each), chunk.chunk_id)


def source_url(chunk: Chunk) -> str | None:
    """Return the address that a chunk's document came from, None where it has none on the web."""
    recorded = chunk.chunk_metadata.source if chunk.chunk_metadata else None
    metadata: Mapping[str, Any] = chunk.metadata
    for each in (metadata.get("url"), metadata.get("source"), recorded):
        if isinstance(each, str) and each.lower().startswith(("https://", "http://")):
            return each
    return None
