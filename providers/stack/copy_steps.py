"""The steps of a copy: the next chunks by id, with their embeddings or with new embeddings.

An engine that cannot order ids reads all ids for every page. So a page has 100,000 ids and is
cached between steps: a copy of n chunks reads all ids n / 100,000 times, whatever the size of a
step. Memory is bounded: one page (about 10 MB) for each of the last 4 sources, and 500 chunks of
both sides for each running step.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from corral.api.checks import MAX_IDS
from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.vector_dbs import VectorDB

MAX_BATCH = 10_000
"""Maximum chunks of one step."""
WRITTEN_AT_ONCE = 500
"""Maximum chunks of one write, whatever the batch: engines bound the size of a request."""

EMBEDDING_SLACK = 1e-6
"""Maximum difference of two stored numbers by rounding, relative or absolute."""

_MAX_LISTS = 4
"""Maximum sources with cached ids; a copy reads its ids again after they were evicted."""

Embed: TypeAlias = Callable[[Sequence[Chunk]], Awaitable[ArrayLike | None]]
"""Returns new embeddings of chunks."""
Note: TypeAlias = Callable[[Sequence[Chunk]], Awaitable[None]]
"""Called with chunks before they are written to the target."""


@dataclass(frozen=True, slots=True)
class CopyStep:
    """The result of one step of a copy.

    Attributes:
        seen: Number of chunks in the step.
        copied: Number of chunks written; the target already had the others, unchanged.
        last_id: The id to start the next step after.
        done: True if there is no next step.
        total: Current number of chunks in the source.
    """

    seen: int
    copied: int
    last_id: str
    done: bool
    total: int


def batch_size(total: int) -> int:
    """Return the number of chunks per step: a fiftieth of all, from 500 to 10,000.

    Progress is thus visible after each fiftieth, and no step takes long.
    """
    return min(max(total // 50, WRITTEN_AT_ONCE), MAX_BATCH)


async def copy_step(
    source: EmbeddingIndex,
    target: EmbeddingIndex,
    after: str,
    limit: int,
    *,
    embed: Embed | None = None,
    note: Note | None = None,
    max_ids: int = MAX_IDS,
) -> CopyStep:
    """Copy the next chunks by id from one index to another.

    Args:
        after: The id to start after; "" starts at the first chunk.
        limit: Number of chunks in the step.
        embed: Computes the target's embeddings; None to copy the source's.
        note: Called with every chunk of the step, even if the target already has it.
        max_ids: Maximum number of ids that the source lists at once, for all steps.
    """
    ids, total = await _next_ids(source, after, limit, max_ids)
    copied = 0
    for start in range(0, len(ids), WRITTEN_AT_ONCE):
        part = ids[start : start + WRITTEN_AT_ONCE]
        copied += await copy_chunks(source, target, part, embed=embed, note=note)
    return CopyStep(
        seen=len(ids),
        copied=copied,
        last_id=ids[-1] if ids else after,
        done=len(ids) < limit,
        total=total,
    )


async def copy_chunks(
    source: EmbeddingIndex,
    target: EmbeddingIndex,
    ids: Sequence[str],
    *,
    embed: Embed | None = None,
    note: Note | None = None,
) -> int:
    """Copy chunks to the target and return the number that were missing or different there.

    Args:
        ids: Ids of the chunks; ids that the source does not have are skipped.
        embed: Computes the target's embeddings; None to copy the source's.
        note: Called with all these chunks before the write.
    """
    copies = embed is None
    there = {c.chunk_id: c for c in await target.get_chunks(ids, include_embeddings=copies)}
    here = await source.get_chunks(ids, include_embeddings=copies)
    if note is not None:
        await note(here)
    if not copies:
        here = [recorded(chunk, target.vector_db) for chunk in here]
    chunks = [
        chunk
        for chunk in here
        if chunk.chunk_id not in there or difference(chunk, there[chunk.chunk_id])
    ]
    if chunks:
        await target.add_chunks(chunks, None if embed is None else await embed(chunks))
    return len(chunks)


def difference(one: Chunk, other: Chunk) -> str:
    """Return the first part that differs between two stored chunks of one id, "" if they are equal.

    Metadata is equal if it is the same JSON: 1, 1.0 and true are three values.
    """
    if one.content != other.content:
        return "content"
    if _json(one.metadata) != _json(other.metadata):
        return "metadata"
    if _record(one) != _record(other):
        return "chunk_metadata"
    if one.acl != other.acl:
        return "acl"
    if one.embedding == other.embedding:  # the common case, much faster
        return ""
    rows = np.array([one.embedding, other.embedding], dtype=np.float64)
    near = np.allclose(rows[0], rows[1], rtol=EMBEDDING_SLACK, atol=EMBEDDING_SLACK)
    return "" if near else "embedding"


def recorded(chunk: Chunk, vector_db: VectorDB) -> Chunk:
    """Return a chunk with the vector DB's model in its record, if the record names a model."""
    record = chunk.chunk_metadata
    if record is None or record.chunk_embedding_model is None:
        return chunk
    made_by = {
        "chunk_embedding_model": vector_db.embedding_model,
        "chunk_embedding_dimension": vector_db.embedding_dimension,
    }
    return chunk.model_copy(update={"chunk_metadata": record.model_copy(update=made_by)})


async def id_pages(
    source: EmbeddingIndex, target: EmbeddingIndex, limit: int = MAX_IDS
) -> AsyncIterator[tuple[list[str], list[str]]]:
    """Yield the ids of both sides within the same bounds, page by page to the end.

    Args:
        limit: Maximum number of ids that a side lists at once.
    """
    after, is_last = "", False
    while not is_last:
        pages = [await index.chunk_ids(after, limit) for index in (source, target)]
        full = [page[-1] for page in pages if len(page) == limit]
        after, is_last = min(full, default=""), not full
        mine, theirs = ([i for i in page if is_last or i <= after] for page in pages)
        yield mine, theirs


@dataclass(frozen=True, slots=True)
class _Ids:
    """Ids of a source after `after`, read when it had `total` chunks.

    Attributes:
        is_last: True if the source has no further ids.
    """

    after: str
    ids: list[str]
    total: int
    is_last: bool

    def next(self, after: str, limit: int) -> list[str]:
        start = bisect_right(self.ids, after)
        return self.ids[start : start + limit]

    def serves(self, after: str, limit: int) -> bool:
        """Return True if these ids cover a step."""
        return after >= self.after and (self.is_last or len(self.next(after, limit)) == limit)


# Keyed by index, so that an entry is freed when its vector DB is deleted, replaced or closed.
_lists: WeakKeyDictionary[EmbeddingIndex, _Ids] = WeakKeyDictionary()


async def _next_ids(
    source: EmbeddingIndex, after: str, limit: int, max_ids: int
) -> tuple[list[str], int]:
    """Return the ids of a step, fewer than `limit` only at the end, and the source's total."""
    total = await source.count()
    kept = _lists.pop(source, None)
    # A first step starts a new copy, which must not use ids from an earlier copy.
    if kept is None or not after or kept.total != total or not kept.serves(after, limit):
        listed = await source.chunk_ids(after, max_ids)
        kept = _Ids(after, listed, total, is_last=len(listed) < max_ids)
    ids = kept.next(after, limit)
    if len(ids) == limit:
        _lists[source] = kept
        for oldest in list(_lists)[:-_MAX_LISTS]:
            del _lists[oldest]
    return ids, total


def _json(metadata: dict[str, Any]) -> str:
    return json.dumps(metadata, sort_keys=True)


def _record(chunk: Chunk) -> dict[str, Any]:
    return chunk.chunk_metadata.model_dump(exclude_none=True) if chunk.chunk_metadata else {}
