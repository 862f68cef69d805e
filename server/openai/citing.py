"""A search and the sources of an answer, in OpenAI's format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corral.api.chunks import Chunk
from corral.api.document_names import PLACE, filename_of
from corral.providers.rag.answer_events import Cited, Result, Source
from corral.server.openai.requests import SET_BY_SERVER


def file_id_of(chunk: Chunk) -> str:
    """Return the id of a chunk's file; without a file, the id of its document or its own."""
    return str(chunk.metadata.get("file_id") or chunk.document_id or chunk.chunk_id)


def attributes_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scalar metadata of a chunk as attributes, without the server's own keys.

    The document's id is included if the chunk has no file, because nothing else names the document.
    """
    hidden = SET_BY_SERVER if "file_id" in metadata else SET_BY_SERVER - {"document_id"}
    return {
        name: value
        for name, value in metadata.items()
        if name not in hidden and isinstance(value, str | int | float)
    }


def annotation(cited: Cited, index: int) -> dict[str, Any]:
    """Return the citation of a source at a position in the answer.

    Args:
        index: The position, in code points.
    """
    source = cited.source
    shown = {name: source.place[name] for name in PLACE if name in source.place}
    start, end = cited.quote or (0, len(source.text))
    return {
        "type": "file_citation",
        "file_id": file_id_of(source.chunk),
        "filename": filename_of(source.chunk),
        "index": index,
        "chunk_id": source.chunk.chunk_id,
        "document_id": source.chunk.document_id,
        "vector_store_id": source.vector_db_id,
        **shown,
        **_characters(source, start, end),
        "quote": source.text[start:end],
    }


def _characters(source: Source, start: int, end: int) -> dict[str, int]:
    """Return the character range in the document, or in the passage if unknown there."""
    place = source.place
    if "char_start" not in place:
        return {}
    first, last = place["char_start"], place["char_end"]
    if last - first == len(source.text):
        first, last = first + start, first + end
    return {"char_start": first, "char_end": last}


def search_result(result: Result) -> dict[str, Any]:
    """Return a hit as a result of a file search."""
    chunk = result.chunk
    record = chunk.chunk_metadata
    place = {} if record is None else record.model_dump(include={*PLACE, "char_start", "char_end"})
    return {
        "file_id": file_id_of(chunk),
        "filename": filename_of(chunk),
        "score": result.score,
        "text": chunk.content,
        "attributes": attributes_of(chunk.metadata),
        "chunk_id": chunk.chunk_id,
        "vector_store_id": result.vector_db_id,
        "included": result.number is not None,
        **{name: value for name, value in place.items() if value is not None},
    }
