"""Exact cosine, BM25 and their fusion in a page of numpy: the lower bound for comparisons.

Nothing is approximate and nothing is stored on disk. A slower system gains nothing from its index,
and a system with other answers in vector mode is not exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.fusion import Leg, fuse
from corral.api.rankers import DEFAULT_RANKER, LegName
from corral.api.vector_dbs import SearchMode
from corral.bench.system import SHARE_KEY, BlockingSystem, Collection, Ranked, Search
from corral.bench.truth import Words


class Exact(BlockingSystem):
    """All embeddings in one float32 matrix, all postings in arrays."""

    filters = True

    async def prepare(self, collection: Collection) -> None:
        """Start empty."""
        self._words = Words(collection.language)
        self._chunks: list[Chunk] = []
        self._parts: list[NDArray[np.float32]] = []

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Store chunks, and count their words."""
        self._chunks += chunks
        self._parts.append(embeddings)
        self._words.add([chunk.content for chunk in chunks])

    async def build(self) -> None:
        """Join the matrix and sort the words."""
        self._matrix = np.concatenate(self._parts)
        self._ids = [chunk.chunk_id for chunk in self._chunks]
        self._shares = np.array([chunk.metadata.get(SHARE_KEY, 0) for chunk in self._chunks])
        self._words.finish()
        self._places = np.argsort(np.argsort(np.array(self._ids)))

    def find(self, asked: Search) -> Ranked:
        """Compare with everything that passes."""
        passing = None if asked.below is None else self._shares < asked.below
        hybrid = asked.mode is SearchMode.HYBRID
        size = DEFAULT_RANKER.leg_size(asked.k) if hybrid else asked.k
        legs: dict[LegName, Leg] = {}
        if asked.mode is not SearchMode.KEYWORD:
            legs["vector"] = self._nearest(asked.embedding, size, passing)
        if asked.mode is not SearchMode.VECTOR:
            legs["keyword"] = self._worded(asked.text, size, passing)
        if not hybrid:
            [leg] = legs.values()
            return [(one, score) for one, score, _ in leg]
        fused = fuse(DEFAULT_RANKER, legs, asked.k)
        return [(hit.chunk_id, hit.score) for hit in fused]

    def _nearest(
        self, embedding: NDArray[np.float32], k: int, passing: NDArray[np.bool_] | None
    ) -> list[tuple[str, float, float]]:
        rows = None if passing is None else np.flatnonzero(passing)
        cosines = (self._matrix if rows is None else self._matrix[rows]) @ embedding
        best = self._best(cosines, k, rows)
        return [
            (
                self._ids[n if rows is None else rows[n]],
                float((1 + cosines[n]) / 2),
                float(cosines[n]),
            )
            for n in best
        ]

    def _worded(
        self, text: str, k: int, passing: NDArray[np.bool_] | None
    ) -> list[tuple[str, float, float]]:
        scores = self._words.scores(text)
        if passing is not None:
            scores[~passing] = 0.0
        best = [n for n in self._best(scores, k) if scores[n] > 0]
        return [(self._ids[n], float(scores[n] / (1 + scores[n])), float(scores[n])) for n in best]

    def _best(
        self, scores: NDArray[np.floating], k: int, rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """Return the positions of the k highest scores, best first, ties by chunk id."""
        least = np.partition(scores, -k)[-k] if len(scores) > k else -np.inf
        found = np.flatnonzero(scores >= least)
        places = self._places[found if rows is None else rows[found]]
        order: NDArray[np.int64] = found[np.lexsort((places, -scores[found]))][:k]
        return order


PEER = Exact
