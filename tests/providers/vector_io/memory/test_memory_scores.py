"""inline::memory finds by vector what double precision would find, whatever writes leave behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.scoring import Metric
from corral.providers.vector_io.kit.exact import exact_scores
from corral.providers.vector_io.memory.config import MemoryConfig
from corral.providers.vector_io.memory.provider import create

from ..registrations import registration

DIMENSION = 24
STEPS = 6


async def opened(metric: Metric = Metric.DOT) -> EmbeddingIndex:
    """Return an empty index that takes embeddings as they are."""
    vector_db = registration(
        "memory",
        embedding_dimension=DIMENSION,
        language="simple",
        metric=metric,
        normalize=False,
    )
    provider = create("memory", MemoryConfig(), Path())
    return await provider.open_index(vector_db, create=True)


def best(scores: dict[str, float], k: int) -> list[tuple[str, float]]:
    """Return the k best by a full sort, ties by id."""
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:k]


@pytest.mark.parametrize("length", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("metric", list(Metric))
async def test_vector_hits_are_the_best_by_double_precision(metric: Metric, length: float) -> None:
    """Of embeddings that single precision cannot tell apart the best come first, ties by id.

    If this fails: a row that only rounding puts below the k-th is dropped before it is scored anew,
    or a row was moved into a removed one's place without what belongs to it.
    """
    rng = np.random.default_rng(7)
    index, stored = await opened(metric), dict[str, NDArray[np.float32]]()
    base = rng.standard_normal((3, DIMENSION))
    for step in range(STEPS):
        ids = [f"c{n}" for n in rng.permutation(150)[:60]]
        noise = rng.integers(-2, 3, (60, DIMENSION)) * 1e-7
        rows = (length * (base[rng.integers(3, size=60)] + noise)).astype(np.float32)
        await index.add_chunks([Chunk(chunk_id=i, content="hay") for i in ids], rows)
        stored |= dict(zip(ids, rows, strict=True))
        gone = [f"c{n}" for n in rng.permutation(150)[:20]]
        await index.delete_chunks(gone)
        stored = {chunk_id: row for chunk_id, row in stored.items() if chunk_id not in gone}
        query = (length * base[step % 3]).astype(np.float32)
        exact = exact_scores(np.stack(list(stored.values())), query, metric)
        expected = best(dict(zip(stored, exact.tolist(), strict=True)), 10)
        hits = (await index.query(query, k=10, mode="vector")).hits
        assert [
            (h.chunk.chunk_id, h.explanation.legs["vector"].raw_score) for h in hits
        ] == expected
