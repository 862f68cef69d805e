"""Hold many chunks in little memory: all but the first are compressed until they are read."""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, overload

from corral.api.chunks import Chunk, ChunkMetadata

LOOSE = 2048
"""Maximum number of chunks that stay uncompressed; later chunks are compressed in parts."""


class PackedChunks(Sequence[Chunk]):
    """A sequence of chunks in a tenth of the usual memory. Each read builds the chunks again."""

    def __init__(self) -> None:
        self._parts: list[Sequence[Chunk] | bytes] = []
        self._starts: list[int] = []
        self._size = 0
        self._read: tuple[int, Sequence[Chunk]] = -1, ()  # The part that was unpacked last.

    def extend(self, chunks: Sequence[Chunk]) -> None:
        """Add chunks, without their embeddings; later changes to them have no effect."""
        self._parts.append(chunks if self._size + len(chunks) <= LOOSE else _packed(chunks))
        self._starts.append(self._size)
        self._size += len(chunks)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Chunk]:
        for part in self._parts:
            yield from _unpacked(part)

    @overload
    def __getitem__(self, place: int) -> Chunk: ...

    @overload
    def __getitem__(self, place: slice) -> list[Chunk]: ...

    def __getitem__(self, place: int | slice) -> Chunk | list[Chunk]:
        if isinstance(place, slice):
            return [self[each] for each in range(self._size)[place]]
        each = range(self._size)[place]
        number = bisect_right(self._starts, each) - 1
        at, chunks = self._read
        if at != number:
            chunks = _unpacked(self._parts[number])
            self._read = number, chunks
        return chunks[each - self._starts[number]]


def _packed(chunks: Sequence[Chunk]) -> bytes:
    fields = [[_fields(chunk), _fields(chunk.chunk_metadata)] for chunk in chunks]
    return zlib.compress(json.dumps(fields).encode(), 1)


def _unpacked(part: Sequence[Chunk] | bytes) -> Sequence[Chunk]:
    if not isinstance(part, bytes):
        return part
    return [_chunk(*each) for each in json.loads(zlib.decompress(part))]


def _chunk(own: dict[str, Any], recorded: dict[str, Any] | None) -> Chunk:
    record = ChunkMetadata.model_construct(set(recorded), **recorded) if recorded else None
    return Chunk.model_construct(**own, chunk_metadata=record)


def _fields(model: Chunk | ChunkMetadata | None) -> dict[str, Any] | None:
    """Return the fields that were set on a model, as JSON values; None if none was set."""
    left_out = {"embedding", "chunk_metadata"}
    given = model.model_fields_set - left_out if model else ()
    return {name: getattr(model, name) for name in given} or None
