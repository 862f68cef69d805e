"""The steps of a copy: the next chunks by id, with their embeddings or with new ones.

An engine that cannot order ids reads all of them for every list of ids. So 100,000 are asked for at
once and kept between steps: a copy of n chunks costs n / 100,000 such readings, whatever the size
of a step. Bounded memory: that list (10 MB or so) for each of the last 4 sources, and of each step
at work 500 chunks of both sides at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakKeyDictionary

from numpy.typing import ArrayLike

from corral.api.checks import MAX_IDS
from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.vector_dbs import VectorDB
from corral.providers.base.copy_checks import difference

MAX_BATCH = 10_000
"""Most chunks of one step."""
WRITTEN_AT_ONCE = 500
"""Most chunks of one write, whatever the batch: engines bound the size of a request."""

_MAX_LISTS = 4
"""Most sources whose ids are kept; a copy whose list had to go asks for it again."""

Embed: TypeAlias = Callable[[Sequence[Chunk]], Awaitable[ArrayLike | None]]
"""Returns new embeddings of chunks."""
Note: TypeAlias = Callable[[Sequence[Chunk]], Awaitable[None]]
"""Is told of chunks before they are in the target."""


@dataclass(frozen=True, slots=True)
class CopyStep:
    """What one step of a copy did.

    Attributes:
        seen: Chunks that it went through.
        copied: Those of them that it wrote; the others were in the target, equal.
        last_id: The id after which the next step begins.
        done: Whether there is no next step.
        total: Chunks in the source, now.
    """

    seen: int
    copied: int
    last_id: str
    done: bool
    total: int


def batch_size(total: int) -> int:
    """Return how many chunks a step takes: a fiftieth of all, within 500 and 10,000.

    So progress is seen from the first fiftieth on, and no step takes long.
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
) -> CopyStep:
    """Copy the next chunks by id from one index to another and say where to go on.

    Args:
        after: The id after which to begin.
        limit: Chunks to go through.
        embed: Makes the target's embeddings; None copies those of the source.
        note: Is told of every chunk of the step, those that the target has already included.
    """
    ids, total = await _next_ids(source, after, limit)
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
    """Bring some chunks to the target and return how many were not there as they are.

    Args:
        ids: Of the chunks; those that the source does not have are passed over.
        embed: Makes the target's embeddings; None copies those of the source.
        note: Is told of all these chunks.
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


def recorded(chunk: Chunk, vector_db: VectorDB) -> Chunk:
    """Return a chunk whose record names the model of a vector DB, if it names one."""
    record = chunk.chunk_metadata
    if record is None or record.chunk_embedding_model is None:
        return chunk
    made_by = {
        "chunk_embedding_model": vector_db.embedding_model,
        "chunk_embedding_dimension": vector_db.embedding_dimension,
    }
    return chunk.model_copy(update={"chunk_metadata": record.model_copy(update=made_by)})


@dataclass(frozen=True, slots=True)
class _Ids:
    """Ids of a source, `MAX_IDS` at most: those after `after` when it had `total` chunks."""

    after: str
    ids: list[str]
    total: int

    def next(self, after: str, limit: int) -> list[str]:
        start = bisect_right(self.ids, after)
        return self.ids[start : start + limit]

    def serves(self, after: str, limit: int) -> bool:
        """Return True if it holds all the ids of a step."""
        is_last = len(self.ids) < MAX_IDS
        return after >= self.after and (is_last or len(self.next(after, limit)) == limit)


# By index, so that it goes with a vector DB that is deleted, registered anew or closed.
_lists: WeakKeyDictionary[EmbeddingIndex, _Ids] = WeakKeyDictionary()


async def _next_ids(source: EmbeddingIndex, after: str, limit: int) -> tuple[list[str], int]:
    """Return the ids of a step, fewer than `limit` at the end only, and the source's number."""
    total = await source.count()
    kept = _lists.pop(source, None)
    # A first step is a new copy, which must not miss what was there before it.
    if kept is None or not after or kept.total != total or not kept.serves(after, limit):
        kept = _Ids(after, await source.chunk_ids(after, MAX_IDS), total)
    ids = kept.next(after, limit)
    if len(ids) == limit:
        _lists[source] = kept
        for oldest in list(_lists)[:-_MAX_LISTS]:
            del _lists[oldest]
    return ids, total
