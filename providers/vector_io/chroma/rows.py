"""Chunks as rows of a collection, and writing many of them as one step."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk, ChunkMetadata
from corral.providers.vector_io._shared.undo import undone_on_failure
from corral.providers.vector_io.chroma.engine import Collection, Rows, Upsert, batches, repeated
from corral.providers.vector_io.chroma.journal import Writer, is_marker

READ_ROWS = 1000
"""Rows with texts or embeddings fetched at once."""
DELETE_ROWS = 5000
"""Ids in one request to delete."""

_KEYS = ("content", "metadata", "chunk_metadata")


def records(chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> Upsert:
    """Return chunks as rows, whose metadata holds the text, and the chunk's own metadata as JSON.

    Not as Chroma's documents: those go into an index of their own besides, which is of no use here
    and doubles the time of a write.
    """
    return Upsert(
        [chunk.chunk_id for chunk in chunks],
        [
            {
                "content": chunk.content,
                "metadata": json.dumps(chunk.metadata, ensure_ascii=False),
                "chunk_metadata": _dump(chunk.chunk_metadata),
            }
            for chunk in chunks
        ],
        embeddings,
    )


def chunks_of(found: Rows) -> list[Chunk]:
    """Return rows as chunks, with their embeddings where these were fetched; no markers."""
    embeddings: Any = [None] * len(found.ids) if found.embeddings is None else found.embeddings
    return [
        Chunk.model_construct(
            chunk_id=chunk_id,
            content=metadata["content"],
            metadata=json.loads(metadata["metadata"]),
            chunk_metadata=_load(metadata["chunk_metadata"]),
            embedding=None if embedding is None else embedding.tolist(),
        )
        for chunk_id, metadata, embedding in zip(
            found.ids, found.metadatas, embeddings, strict=True
        )
        if not is_marker(chunk_id)
    ]


def read(collection: Collection, ids: Sequence[str], include: Sequence[str]) -> Iterator[Rows]:
    """Yield the rows of these ids that exist, some at a time."""
    for start in range(0, len(ids), READ_ROWS):
        some = ids[start : start + READ_ROWS]
        yield repeated(partial(collection.get, some, include=include))


def read_chunks(
    collection: Collection, ids: Sequence[str], *, include_embeddings: bool = False
) -> list[Chunk]:
    """Return the chunks of these ids that exist."""
    include = ("metadatas", *(("embeddings",) if include_embeddings else ()))
    return [
        chunk for found in read(collection, list(dict.fromkeys(ids)), include)
        for chunk in chunks_of(found)
    ]  # fmt: skip


def delete(collection: Collection, ids: Sequence[str]) -> None:
    """Delete rows; unknown ids are ignored."""
    for start in range(0, len(ids), DELETE_ROWS):
        collection.delete(ids[start : start + DELETE_ROWS])


def replace(
    collection: Collection, writer: Writer, new: Upsert | None, stale: Sequence[str]
) -> None:
    """Write new rows and then delete stale ones; writing that fails is undone.

    Chroma has no transactions over several requests. One request is one step; only what takes
    several of them can be left half done, by a kill or a server that goes away for good. A delete
    that fails leaves two versions side by side, until the documents are sent again.
    """
    if new is not None:
        _write(collection, writer, new)
    delete(collection, stale)


def _write(collection: Collection, writer: Writer, new: Upsert) -> None:
    """Write rows, all or, as far as Chroma answers, none."""
    parts = _parts(collection, new)
    if len(parts) == 1:
        writer.upsert(parts[0])
        return
    before = list(read(collection, new.ids, ("metadatas", "embeddings")))
    kept = {row_id for rows in before for row_id in rows.ids}
    put_back = [
        partial(writer.upsert, part)
        for rows in before
        if rows.ids and rows.embeddings is not None
        for part in _parts(collection, Upsert(rows.ids, _own(rows.metadatas), rows.embeddings))
    ]
    added = [row_id for row_id in new.ids if row_id not in kept]
    with undone_on_failure(put_back, partial(delete, collection, added)):
        for part in parts:
            writer.upsert(part)


def _parts(collection: Collection, rows: Upsert) -> list[Upsert]:
    """Cut rows into requests, each with room for a marker."""
    return list(batches(rows, collection.batch_rows - 1, collection.batch_bytes))


def _own(metadatas: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return stored metadata as `records` made it, without what the journal added."""
    return [{key: one[key] for key in _KEYS} for one in metadatas]


def _dump(recorded: ChunkMetadata | None) -> str:
    return recorded.model_dump_json(exclude_none=True) if recorded else ""


def _load(recorded: str) -> ChunkMetadata | None:
    return ChunkMetadata.model_validate_json(recorded) if recorded else None
