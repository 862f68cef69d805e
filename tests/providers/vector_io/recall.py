"""20,000 embeddings with the structure of real ones, and how many of the true nearest are found."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.vector_dbs import VectorDB

COUNT = 20_000
DIMENSION = 48
TOPICS = 150
QUERIES = 40
K = 10
ENOUGH = 0.95

FILTERS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "1 %": {"type": "eq", "key": "hundredth", "value": 7},
    "50 %": {"type": "eq", "key": "odd", "value": True},
    "50 %, other topics": {"type": "eq", "key": "side", "value": "right"},
}
"""By the share that passes. The last one leaves nothing that is near: queries are on the left."""


@cache
def data() -> tuple[NDArray[np.float32], NDArray[np.int_], NDArray[np.float32]]:
    """Return embeddings, the topic of each, and queries about the topics of the left.

    Topics of very different sizes around centers of their own, each spread along a few directions,
    and a little noise in all: what sentence embeddings look like, unlike a ball of random points.
    """
    rng = np.random.default_rng(5)
    centers = rng.normal(size=(TOPICS, DIMENSION))
    spreads = rng.normal(size=(TOPICS, 6, DIMENSION)) * 0.35
    sizes = 1 / np.arange(1, TOPICS + 1) ** 0.7

    def about(topics: NDArray[np.int_]) -> NDArray[np.float32]:
        along = np.einsum("nd,ndk->nk", rng.normal(size=(len(topics), 6)), spreads[topics])
        noise = 0.15 * rng.normal(size=(len(topics), DIMENSION))
        rows = centers[topics] + along + noise
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / lengths, dtype=np.float32)

    topics = rng.choice(TOPICS, size=COUNT, p=sizes / sizes.sum())
    asked = rng.choice(np.arange(0, TOPICS, 2), size=QUERIES)
    return about(topics), topics, about(asked)


def chunks() -> list[Chunk]:
    """Return the chunks, with what the filters look at."""
    return [
        Chunk(chunk_id=f"c{n:05}", content="hay", metadata=one) for n, one in enumerate(metadata())
    ]


@cache
def metadata() -> list[dict[str, Any]]:
    """Return the metadata of each chunk."""
    return [
        {
            "hundredth": n % 100,
            "odd": bool(n // 100 % 2),
            "side": "right" if topic % 2 else "left",
        }
        for n, topic in enumerate(data()[1].tolist())
    ]


def registered(provider_id: str) -> VectorDB:
    """Return a registration for these embeddings."""
    return VectorDB.model_validate(
        {
            "identifier": "recall",
            "provider_id": provider_id,
            "provider_resource_id": "recall",
            "embedding_model": "none",
            "embedding_dimension": DIMENSION,
            "created_at": time.time(),
        }
    )


async def fill(index: EmbeddingIndex, batch: int = 5_000) -> None:
    """Add all chunks."""
    every, embeddings = chunks(), data()[0]
    for start in range(0, COUNT, batch):
        await index.add_chunks(every[start : start + batch], embeddings[start : start + batch])


async def recalls(index: EmbeddingIndex, count: int = QUERIES) -> dict[str, float]:
    """Return recall_vs_exact@10 under each filter; raw scores are checked on the way.

    Args:
        index: It holds the chunks of `fill`.
        count: How many queries are asked under each filter, 40 at most.

    recall_vs_exact@k is the share of the k nearest by exact search that are among the k found.
    """
    embeddings, _, queries = data()
    found = {}
    for name, filters in FILTERS.items():
        passing = np.array(
            [filters is None or one[filters["key"]] == filters["value"] for one in metadata()]
        )
        hits = 0
        for query in queries[:count]:
            cosines = np.where(passing, embeddings @ query, -2)
            best = {f"c{n:05}" for n in np.argsort(-cosines)[:K]}
            answer = await index.query(query, k=K, mode="vector", filters=filters)
            raw = {h.chunk.chunk_id: h.explanation.legs["vector"].raw_score for h in answer.hits}
            assert len(raw) == K
            assert all(abs(cosines[int(i[1:])] - score) < 1e-5 for i, score in raw.items())
            hits += len(best & set(raw))
        found[name] = hits / (K * count)
    return found
