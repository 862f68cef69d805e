"""12,000 embeddings with the structure of real ones, and how many of the true nearest are found."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.filters import matches, parse_filter
from corral.api.vector_dbs import VectorDB

from .registrations import registration

COUNT = 12_000
"""More than the chunks from which each engine builds its index by default."""
DIMENSION = 48
TOPICS = 150
FEW_TOPICS = 40
QUERIES = 40
K = 10
ENOUGH = 0.95

FILTERS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "1 %": {"type": "eq", "key": "hundredth", "value": 7},
    "50 %": {"type": "eq", "key": "odd", "value": True},
    "50 %, other topics": {"type": "eq", "key": "side", "value": "right"},
    "the same, planned otherwise": {"type": "ne", "key": "side", "value": "left"},
}
"""By the share that passes. The last two leave nothing that is near: queries are on the left."""


@cache
def data(
    by_topic: bool = False,
) -> tuple[NDArray[np.float32], NDArray[np.int_], NDArray[np.float32]]:
    """Return embeddings, the topic of each, and queries about the topics of the left.

    Topics of very different sizes around centers of their own, each spread along a few directions,
    and a little noise in all: what sentence embeddings look like, unlike a ball of random points.

    Args:
        by_topic: Whether chunks come topic by topic, of fewer and larger ones: hard for an index
            that learns from the first, and for a filter that leaves none of the query's topic.
    """
    rng = np.random.default_rng(5)
    number = FEW_TOPICS if by_topic else TOPICS
    centers = rng.normal(size=(number, DIMENSION))
    spreads = rng.normal(size=(number, 6, DIMENSION)) * 0.35
    sizes = np.ones(number) if by_topic else 1 / np.arange(1, number + 1) ** 0.7

    def about(topics: NDArray[np.int_]) -> NDArray[np.float32]:
        along = np.einsum("nd,ndk->nk", rng.normal(size=(len(topics), 6)), spreads[topics])
        noise = 0.15 * rng.normal(size=(len(topics), DIMENSION))
        rows = centers[topics] + along + noise
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / lengths, dtype=np.float32)

    topics = rng.choice(number, size=COUNT, p=sizes / sizes.sum())
    if by_topic:
        topics.sort()
    asked = rng.choice(np.arange(0, number, 2), size=QUERIES)
    return about(topics), topics, about(asked)


def chunks(by_topic: bool = False) -> list[Chunk]:
    """Return the chunks, with what the filters look at."""
    return [
        Chunk(chunk_id=f"c{n:05}", content="hay", metadata=one)
        for n, one in enumerate(metadata(by_topic))
    ]


@cache
def metadata(by_topic: bool = False) -> list[dict[str, Any]]:
    """Return the metadata of each chunk."""
    return [
        {
            "hundredth": n % 100,
            "odd": bool(n // 100 % 2),
            "side": "right" if topic % 2 else "left",
        }
        for n, topic in enumerate(data(by_topic)[1].tolist())
    ]


def registered(provider_id: str) -> VectorDB:
    """Return a registration for these embeddings."""
    return registration(
        provider_id, "recall", embedding_dimension=DIMENSION, created_at=time.time()
    )


async def fill(index: EmbeddingIndex, batch: int = 5_000, by_topic: bool = False) -> None:
    """Add all chunks."""
    every, embeddings = chunks(by_topic), data(by_topic)[0]
    for start in range(0, COUNT, batch):
        await index.add_chunks(every[start : start + batch], embeddings[start : start + batch])


async def recalls(
    index: EmbeddingIndex, count: int = QUERIES, by_topic: bool = False
) -> dict[str, float]:
    """Return recall_vs_exact@10 under each filter; raw scores are checked on the way.

    Args:
        index: It holds the chunks of `fill`.
        count: How many queries are asked under each filter, 40 at most.
        by_topic: As `fill` was told.

    recall_vs_exact@k is the share of the k nearest by exact search that are among the k found.
    """
    embeddings, _, queries = data(by_topic)
    found = {}
    for name, filters in FILTERS.items():
        passing = np.array(
            [filters is None or matches(parse_filter(filters), one) for one in metadata(by_topic)]
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
