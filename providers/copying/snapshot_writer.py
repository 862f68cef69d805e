"""Write snapshots in the format of `snapshot_file.py`."""

from __future__ import annotations

import asyncio
import hashlib
import io
import zipfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import numpy as np

from corral.api.checks import MAX_IDS
from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import InvalidRequest
from corral.api.vector_dbs import VectorDB
from corral.providers.copying.snapshot_file import (
    MANIFEST,
    SETTINGS,
    Details,
    Manifest,
    Member,
    names_of,
)

CHUNKS_AT_ONCE = 500
BYTES_AT_ONCE = 16 << 20
"""A batch ends at either limit; a single chunk may exceed the size."""


class Sink(io.RawIOBase):
    """A write-only buffer for a zip file; it cannot seek."""

    def __init__(self) -> None:
        self._held = bytearray()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Append bytes to the buffer."""
        self._held += data
        return len(data)

    def taken(self) -> bytes:
        """Return the buffered bytes, and clear the buffer."""
        taken = bytes(self._held)
        self._held.clear()
        return taken


@dataclass(slots=True)
class _Writer:
    """Writes the members of a snapshot and records them for the manifest."""

    sink: Sink = field(default_factory=Sink)
    members: list[Member] = field(default_factory=list)
    chunks: int = 0

    def __post_init__(self) -> None:
        self.zip = zipfile.ZipFile(self.sink, "w", zipfile.ZIP_STORED)

    zip: zipfile.ZipFile = field(init=False)

    def add(self, name: str, content: bytes) -> None:
        """Write a member."""
        self.zip.writestr(zipfile.ZipInfo(name), content)
        digest = hashlib.sha256(content).hexdigest()
        self.members.append(Member(name=name, bytes=len(content), sha256=digest))

    def add_batch(self, chunks: Sequence[Chunk]) -> None:
        """Write chunks and their embeddings."""
        chunks_name, rows_name = names_of(len(self.members) // 2)
        lines = [c.model_dump_json(exclude={"embedding"}, exclude_none=True) for c in chunks]
        rows = np.array([chunk.embedding for chunk in chunks], dtype=np.float32)
        packed = io.BytesIO()
        np.save(packed, rows, allow_pickle=False)
        self.add(chunks_name, ("\n".join(lines) + "\n").encode())
        self.add(rows_name, packed.getvalue())
        self.chunks += len(chunks)


async def snapshot_of(
    index: EmbeddingIndex, details: Details, *, batch_bytes: int = BYTES_AT_ONCE
) -> AsyncIterator[bytes]:
    """Yield a snapshot of an index and of its vector store's fields, piece by piece.

    Concurrent writes are allowed. All chunks that exist throughout are in the snapshot, and the
    manifest records whether chunks were added or removed during the export.

    Args:
        batch_bytes: Maximum size of a batch in bytes; a single chunk may exceed it.

    Raises:
        InvalidRequest: A chunk has no embedding.
        ProviderError: The backend failed; the yielded pieces are not a valid snapshot.
    """
    writer = _Writer()
    seen = hashlib.sha256()
    async for ids in ids_of(index):
        for start in range(0, len(ids), CHUNKS_AT_ONCE):
            part = ids[start : start + CHUNKS_AT_ONCE]
            chunks = await index.get_chunks(part, include_embeddings=True)
            for batch in _batches(chunks, batch_bytes):
                await asyncio.to_thread(writer.add_batch, batch)
                yield writer.sink.taken()
            _count_ids(seen, [chunk.chunk_id for chunk in chunks])
    now = hashlib.sha256()
    async for ids in ids_of(index):
        _count_ids(now, ids)
    manifest = _manifest(index.vector_db, details, writer, changed=now.digest() != seen.digest())
    writer.zip.writestr(zipfile.ZipInfo(MANIFEST), manifest.model_dump_json(indent=1))
    writer.zip.close()
    yield writer.sink.taken()


def _manifest(vector_db: VectorDB, details: Details, writer: _Writer, *, changed: bool) -> Manifest:
    return Manifest(
        made_by=f"corral {metadata.version('corral-rag')}",
        vector_db_id=vector_db.identifier,
        provider_id=vector_db.provider_id,
        vector_db_name=vector_db.vector_db_name,
        fingerprint=vector_db.fingerprint,
        vector_store=details,
        settings=vector_db.model_dump(mode="json", include=set(SETTINGS)),
        chunks=writer.chunks,
        changed_meanwhile=changed,
        members=writer.members,
    )


async def ids_of(index: EmbeddingIndex) -> AsyncIterator[list[str]]:
    """Yield the ids of all chunks, ascending, in pages."""
    after = ""
    while ids := await index.chunk_ids(after, MAX_IDS):
        yield ids
        after = ids[-1]


def _count_ids(digest: Any, ids: Sequence[str]) -> None:
    for chunk_id in ids:
        digest.update(f"{chunk_id}\0".encode())


def _batches(chunks: Sequence[Chunk], batch_bytes: int) -> Iterator[list[Chunk]]:
    """Yield chunks in batches of limited size; a character counts as four bytes, its maximum."""
    batch: list[Chunk] = []
    size = 0
    for chunk in chunks:
        if chunk.embedding is None:
            raise InvalidRequest(
                f"Chunk {chunk.chunk_id!r} has no embedding, and a snapshot needs one.",
                hint="Give it one in the table that the vector DB is attached to.",
                field="vector_db_id",
            )
        own = 4 * (len(chunk.content) + len(chunk.embedding))
        if batch and size + own > batch_bytes:
            yield batch
            batch, size = [], 0
        batch.append(chunk)
        size += own
    if batch:
        yield batch
