"""Keyword search in one collection: Milvus proposes chunks, and BM25 is computed here."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from corral.api.chunks import Chunk
from corral.api.hits import KeywordLeg, TermStatistics
from corral.api.vector_dbs import VectorDB
from corral.providers.text.analyzer import analyzer
from corral.providers.text.fields import chunk_terms
from corral.providers.vector_io.kit.sparse import (
    Proposal,
    SparseChunk,
    SparseQuery,
    Statistics,
    keyword_leg,
    packed,
    query_vector,
    sparse_chunk,
)
from corral.providers.vector_io.kit.statistics import finds_new_chunks
from corral.providers.vector_io.milvus.client import Collection
from corral.providers.vector_io.milvus.records import MOST_ROWS, Entry, lexemes, packed_lexemes

T = TypeVar("T")

_COUNTERS = 8  # concurrent requests that count the chunks containing a term


class Keywords:
    """The keyword index of one vector DB. Safe to use from many threads.

    Args:
        vector_db: The registration; its language and field weights decide the terms.
        writing: Lock held by every write of this process, so that none runs during a count.
        max_age_seconds: Maximum age of the statistics if another process writes.
    """

    def __init__(
        self,
        vector_db: VectorDB,
        collection: Collection,
        writing: threading.RLock,
        max_age_seconds: float,
    ) -> None:
        self._weights = vector_db.field_weights
        self._analyzer = analyzer(vector_db.language)
        self._collection = collection
        self._threads = collection.connection.threads
        self._memory: Counts | None = None
        self._others: dict[str, str] = {}  # write counts of other processes at the time of counting
        self._known: dict[int, int] = {}  # chunks by term key, as counted by the server
        self._writing = writing
        self._max_age = max_age_seconds
        self._asked = -math.inf  # time of the last check for other writers
        self._counting = threading.RLock()

    @property
    def in_memory(self) -> bool:
        """True if this process, not the server, counts the chunks that contain each term."""
        return self._collection.is_lite

    def encode(self, chunks: Sequence[Chunk]) -> list[SparseChunk]:
        """Return the stored form of the words of new chunks."""
        terms = [chunk_terms(chunk, self._weights, self._analyzer) for chunk in chunks]
        reference = self.statistics().reference_with([one.length for one in terms])
        return [sparse_chunk(one, reference) for one in terms]

    async def term_statistics(self, query_string: str) -> TermStatistics:
        """Return the query's terms for `search`."""
        query = SparseQuery(query_string, self._analyzer)
        return query.statistics(*await self._counts(query.keys))

    async def search(
        self, query_string: str, k: int, expression: str, by: TermStatistics | None = None
    ) -> KeywordLeg:
        """Return the k best chunks that pass an expression, best first."""
        query = SparseQuery(query_string, self._analyzer)
        fetch = partial(self._threads.run, self._propose, expression)
        return await keyword_leg(query, k, by, self._counts, fetch)

    def statistics(self) -> Statistics:
        """Return the current statistics."""
        return self._read(Counts.statistics)

    def follow(self, *, gone: Sequence[Entry], come: Sequence[Entry]) -> None:
        """Apply a write of this process to the statistics."""
        with self._counting:
            self._known = {}
            if self._memory is not None:
                self._memory.change(gone=gone, come=come)

    def forget(self) -> None:
        """Discard the counts, because a failed write may be partly stored."""
        with self._counting:
            self._memory = None

    def _read(self, read: Callable[[Counts], T], *, recent: bool = False) -> T:
        """Read the counts, after counting again if another client has written.

        Code that needs both locks takes `_writing` first, like a write that reads statistics.

        Args:
            read: Called with the counts.
            recent: True if the counts may be as old as the setting allows.
        """
        with self._collection.connection.exclusive():
            if recent and time.monotonic() < self._asked + self._max_age:
                with self._counting:
                    if self._memory is not None:
                        return read(self._memory)
            others = self._other_writers()
            with self._counting:
                if self._memory is not None and others == self._others:
                    return read(self._memory)
            with self._writing, self._counting:
                others = self._other_writers()  # before the rows
                if self._memory is None or others != self._others:
                    self._memory = Counts(self._collection.entries())
                    self._others, self._known = others, {}
                return read(self._memory)

    def _other_writers(self) -> dict[str, str]:
        if self._collection.connection.embedded:
            return {}
        asked, others = time.monotonic(), self._collection.writers.others()
        self._asked = asked
        return others

    async def _counts(self, keys: Sequence[int]) -> tuple[Statistics, list[int]]:
        """Return the statistics, and the number of chunks that contain each term key.

        They are counted now if older ones could hide another process's additions.
        """
        found = await self._counted(keys, recent=True)
        if all(found[1]) and finds_new_chunks(found[0]):
            return found
        return await self._counted(keys, recent=False)

    async def _counted(self, keys: Sequence[int], *, recent: bool) -> tuple[Statistics, list[int]]:
        read = partial(self._read, recent=recent)
        if self.in_memory:
            return await self._threads.run(
                read, lambda counts: (counts.statistics(), counts.holding(keys))
            )
        return await self._threads.run(read, Counts.statistics), await self._holding(keys)

    async def _holding(self, keys: Sequence[int]) -> list[int]:
        """Let the server count the chunks that contain each term key."""
        known = self._known  # a write that changes the counts replaces the dictionary
        missing = [key for key in keys if key not in known]
        shares = [missing[start::_COUNTERS] for start in range(_COUNTERS)]
        await asyncio.gather(
            *(self._threads.run(self._count, share, known) for share in shares if share)
        )
        return [known[key] for key in keys]

    def _count(self, keys: Sequence[int], known: dict[int, int]) -> None:
        """Count the chunks that contain each key, concurrently."""
        if len(keys) == 1:
            known[keys[0]] = self._collection.count(f"array_contains(keys, {keys[0]})")
        elif len(keys) > 4 and not self._collection.count(
            f"array_contains_any(keys, {list(keys)})"
        ):
            known.update(dict.fromkeys(keys, 0))
        else:
            half = len(keys) // 2
            self._count(keys[:half], known)
            self._count(keys[half:], known)

    def _propose(
        self,
        expression: str,
        weights: Mapping[int, float],
        references: Sequence[int] | None,
        limit: int,
    ) -> list[Proposal]:
        if references is not None:
            expression += f" and reference in {list(references)}"
        vector = dict(zip(*query_vector(weights), strict=True))
        output = ("pk", "chunk_id", "lexemes", "length")
        most = min(limit, MOST_ROWS)
        hits = self._collection.search("terms", vector, expression, most, output, {})
        long = [hit["entity"]["pk"] for hit in hits if not hit["entity"]["lexemes"]]
        texts = self._collection.payloads_of(long) if long else {}
        proposals = []
        for hit in hits:
            row = hit["entity"]
            chunk_id, score, length = row["chunk_id"], hit["distance"], row["length"]
            if row["lexemes"]:
                words = packed_lexemes(row["lexemes"])
            elif row["pk"] in texts:
                words = packed(*lexemes("", texts[row["pk"]]))
            else:
                continue
            proposals.append(Proposal(chunk_id, score, *words, length))
        return proposals


class Counts:
    """The BM25 statistics, in memory.

    Not safe to use from several threads. They are counted from all rows once, updated by this
    process's writes, and counted again after another process has written. They are never stored, so
    no stored value can be wrong.

    Args:
        entries: All stored chunks, without keys if the server counts the terms.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._lengths: Counter[int] = Counter()
        self._references: Counter[int] = Counter()
        self._holding: Counter[int] = Counter()
        for one in entries:
            self._count(one, 1)

    def change(self, *, gone: Iterable[Entry], come: Iterable[Entry]) -> None:
        """Apply a write."""
        for one in gone:
            self._count(one, -1)
        for one in come:
            self._count(one, 1)

    def statistics(self) -> Statistics:
        """Return a copy of the counts."""
        return Statistics(dict(self._lengths), dict(self._references))

    def holding(self, keys: Iterable[int]) -> list[int]:
        """Return the number of chunks that contain each key, if they are counted by key."""
        return [self._holding[key] for key in keys]

    def _count(self, one: Entry, by: int) -> None:
        _add(self._lengths, one.length, by)
        _add(self._references, one.reference, by)
        if by > 0:
            self._holding.update(one.keys)
        else:
            for key in one.keys:
                _add(self._holding, key, by)


def _add(counter: Counter[int], value: int, by: int) -> None:
    counter[value] += by
    if not counter[value]:
        del counter[value]
