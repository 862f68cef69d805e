"""Ids and addresses of search results, for `search`, `fetch` and links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote, unquote, urlencode

from corral.api.chunks import Chunk
from corral.api.errors import InvalidRequest

PAGE = "/document"
"""Path of the page that shows a document with a passage marked."""
PASSAGE = "passage"
"""HTML id of the marked passage on that page."""


@dataclass(frozen=True, slots=True)
class Place:
    """A document of a vector DB, or a chunk without a document.

    Its id is `DB/DOCUMENT` or `DB//CHUNK`, each part percent-encoded.
    """

    vector_db_id: str
    document_id: str = ""
    chunk_id: str = ""

    @classmethod
    def of(cls, vector_db_id: str, chunk: Chunk) -> Self:
        """Return the place of a chunk's document, or of the chunk if it has none."""
        document_id = chunk.document_id or ""
        return cls(vector_db_id, document_id, "" if document_id else chunk.chunk_id)

    @classmethod
    def cited(cls, citation: Mapping[str, Any]) -> Self:
        """Return the place of an entry of a context's `citations`."""
        document_id = citation.get("document_id") or ""
        first = "" if document_id else citation["chunk_ids"][0]
        return cls(citation["vector_db_id"], document_id, first)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the place of an id.

        Raises:
            InvalidRequest: The id does not have the form of `search` results.
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

    def url(self, base_url: str, chunk_ids: Sequence[str] = ()) -> str:
        """Return the URL of the page that shows the document or chunk on this server.

        Args:
            base_url: The server's URL, without a slash at the end.
            chunk_ids: The chunks to mark, in document order; empty for none.
        """
        marked = [chunk_ids[0], chunk_ids[-1]] if chunk_ids else [self.chunk_id]
        named = [("vector_db_id", self.vector_db_id), ("document_id", self.document_id)]
        named += [("chunk_id", each) for each in dict.fromkeys(marked)]
        query = urlencode([(name, value) for name, value in named if value])
        return f"{base_url}{PAGE}?{query}" + (f"#{PASSAGE}" if chunk_ids else "")
