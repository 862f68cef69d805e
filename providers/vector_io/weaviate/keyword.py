"""The words of one collection, searched and counted by Weaviate; see kit/engine_bm25.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from itertools import chain

from corral.api.filters import Filter
from corral.api.hits import TermStatistics
from corral.providers.vector_io.kit.batches import runs
from corral.providers.vector_io.kit.engine_bm25 import Matches
from corral.providers.vector_io.kit.sparse import Proposal, SparseQuery, packed
from corral.providers.vector_io.kit.tokens import needed, passes
from corral.providers.vector_io.weaviate import filters as native
from corral.providers.vector_io.weaviate.client import CollectionReads
from corral.providers.vector_io.weaviate.records import StoredObject

MOST_COUNTS = 16
"""Maximum number of terms counted concurrently."""

COUNTED_TOGETHER = 100
"""Number of terms of a long query that are first checked together for any chunk."""


class CollectionWords:
    """The words of one collection."""

    def __init__(self, collection: CollectionReads) -> None:
        self._collection = collection

    async def statistics(self) -> TermStatistics:
        """Return the number of objects and the total number of their terms."""
        return await self._collection.statistics()

    async def holding(self, terms: Sequence[str]) -> list[int]:
        """Return the number of chunks that contain each term.

        Each term takes a request, so of many terms, those in no chunk are ruled out in groups.
        """
        places = asyncio.Semaphore(MOST_COUNTS)

        async def count(*some: str) -> int:
            async with places:
                return await self._collection.count(native.holding(*some))

        async def count_each(some: Sequence[str]) -> list[int]:
            if len(terms) > COUNTED_TOGETHER and not await count(*some):
                return [0] * len(some)
            return await asyncio.gather(*map(count, some))

        groups = runs(terms, COUNTED_TOGETHER)
        return list(chain.from_iterable(await asyncio.gather(*map(count_each, groups))))

    async def matching(self, query: SparseQuery, limit: int, filters: Filter | None) -> Matches:
        """Return the best chunks by Weaviate's BM25."""
        narrowed = native.translate(filters) if filters else None
        properties = ["chunk_id", "frequencies", "length", *needed(filters)]
        text = " ".join(term for term, n in query.times.items() for _ in range(n))
        objects = await self._collection.matching(text, limit, narrowed, properties)
        keys = sorted(zip(query.keys, query.terms, strict=True))
        return Matches.best([_proposal(one, keys, filters) for one in objects], limit)


def _proposal(
    stored: StoredObject, keys: Sequence[tuple[int, str]], filters: Filter | None
) -> Proposal:
    words = json.loads(stored.properties["frequencies"])
    pairs = [(key, words[term]) for key, term in keys if term in words]
    return Proposal(
        stored.properties["chunk_id"],
        stored.score,
        *packed([key for key, _ in pairs], [frequency for _, frequency in pairs]),
        int(stored.properties.get("length") or 0),
        passes(filters, stored.properties),
    )
