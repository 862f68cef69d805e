"""Rows of a Chroma collection, and their conversion from and to chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.wire import MAX_ID_LENGTH
from corral.providers.vector_io.kit import batches as kit
from corral.providers.vector_io.kit.records import chunk_fields, read_chunk

Metadata = Mapping[str, str | int]

CHUNK_KEYS = ("content", "metadata", "chunk_metadata")
"""The metadata keys of a chunk's row."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a collection as parallel lists; a list that was not requested is empty.

    Attributes:
        distances: Distances from the query as Chroma computed them, ascending.
    """

    ids: list[str]
    metadatas: list[dict[str, Any]] = field(default_factory=list)
    embeddings: NDArray[np.float32] | None = None
    distances: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Upsert:
    """Rows to write as parallel lists, at least one row.

    Every row has the same metadata keys, because Chroma merges the metadata of an upsert into the
    stored metadata: equal keys replace it entirely.
    """

    ids: Sequence[str]
    metadatas: Sequence[Metadata]
    embeddings: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: slice) -> Upsert:
        return Upsert(self.ids[part], self.metadatas[part], self.embeddings[part])


def is_marker(row_id: str) -> bool:
    """Return True for a row of the journal, recognized by an id longer than any chunk's."""
    return len(row_id) > MAX_ID_LENGTH


def records(chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> Upsert:
    """Convert chunks to rows with text and JSON metadata in the row's metadata.

    Chroma's documents are not used, because Chroma adds them to a text index that is not needed
    here and doubles the time of a write.
    """
    return Upsert(
        [chunk.chunk_id for chunk in chunks],
        own_metadatas({"chunk_metadata": "", **chunk_fields(chunk)} for chunk in chunks),
        embeddings,
    )


def own_metadatas(fields: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the metadata of chunks' rows, without the journal's additions."""
    return [{key: one[key] for key in CHUNK_KEYS} for one in fields]


def chunks_of(found: Rows) -> list[Chunk]:
    """Convert rows to chunks, with embeddings if these were fetched; skip markers."""
    embeddings: Any = [None] * len(found.ids) if found.embeddings is None else found.embeddings
    return [
        read_chunk({"chunk_id": chunk_id, **metadata}, None if row is None else row.tolist())
        for chunk_id, metadata, row in zip(found.ids, found.metadatas, embeddings, strict=True)
        if not is_marker(chunk_id)
    ]


def matrix_of(embeddings: Any, rows: int) -> NDArray[np.float32]:
    """Return an engine's embeddings as an array of shape (rows, dimension); (0, 0) for none."""
    if not rows:
        return np.empty((0, 0), dtype=np.float32)
    return np.asarray(embeddings, dtype=np.float32).reshape(rows, -1)


def batches(rows: Upsert, most_rows: int, most_bytes: int) -> Iterator[Upsert]:
    """Split rows into batches within an engine's limits, in order; a larger row gets its own."""

    def bytes_of(place: int) -> int:
        texts = sum(len(str(value).encode()) for value in rows.metadatas[place].values())
        return int(rows.embeddings[place].nbytes) + texts

    for part in kit.batches(range(len(rows)), bytes_of, most_rows, most_bytes):
        yield rows[part[0] : part[-1] + 1]
