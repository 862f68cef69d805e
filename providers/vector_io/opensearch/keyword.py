"""The words of one index, searched and counted by OpenSearch; see kit/engine_bm25.py."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from corral.api.filters import Filter
from corral.api.hits import TermStatistics
from corral.providers.vector_io.kit.batches import runs
from corral.providers.vector_io.kit.engine_bm25 import Matches
from corral.providers.vector_io.kit.sparse import Proposal, SparseQuery
from corral.providers.vector_io.opensearch import filters as native
from corral.providers.vector_io.opensearch.client import ClusterIndex
from corral.providers.vector_io.opensearch.records import (
    Json,
    carried,
    really_passes,
    returned,
    unpacked,
)

MAX_TERMS = 500
"""Maximum number of terms per request; OpenSearch rejects queries with over 1,024 clauses."""


class IndexWords:
    """The words of one index."""

    def __init__(self, index: ClusterIndex) -> None:
        self._index = index

    async def statistics(self) -> TermStatistics:
        """Return the number of chunks, and the total number of their terms."""
        answer = await self._index.search(
            {
                "size": 0,
                "track_total_hits": True,
                "aggs": {"length": {"sum": {"field": "length"}}},
            }
        )
        length = int(answer["aggregations"]["length"]["value"])
        return TermStatistics(int(answer["hits"]["total"]["value"]), length)

    async def holding(self, terms: Sequence[str]) -> list[int]:
        """Return the number of chunks that contain each term."""
        # As an aggregation it would visit all documents. As a search for one term it visits none,
        # unless some are deleted, because Lucene knows the number.
        numbers: list[int] = []
        for part in runs(terms, MAX_TERMS):
            numbers += await self._index.counts([*map(native.holding, part)])
        return numbers

    async def matching(self, query: SparseQuery, limit: int, filters: Filter | None) -> Matches:
        """Return the best chunks by OpenSearch's BM25; a long query takes several searches."""
        parts = runs([*query.times.items()], MAX_TERMS)
        answers = await asyncio.gather(*(self._best(part, limit, filters) for part in parts))
        return Matches.of_parts(answers)

    async def _best(
        self, times: Sequence[tuple[str, int]], limit: int, filters: Filter | None
    ) -> Matches:
        terms = [{"term": {native.TERMS: {"value": term, "boost": n}}} for term, n in times]
        matched: Json = {"should": terms, "minimum_should_match": 1}
        if filters:
            matched["filter"] = [native.translate(filters)]
        body = {"query": {"bool": matched}, **returned(limit, filters, "words", "length")}
        hits = await self._index.hits(body)
        return Matches.best([_proposal(hit, filters) for hit in hits], limit)


def _proposal(hit: Json, filters: Filter | None) -> Proposal:
    fields = hit["fields"]
    return Proposal(
        fields["chunk_id"][0],
        hit["_score"],
        *unpacked(fields["words"][0]),
        fields["length"][0],
        really_passes(hit, filters),
        carried(hit),
    )
