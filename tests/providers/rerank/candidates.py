"""Candidates for the tests of re-rankers: hits made of texts and embeddings, best first."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from corral.api.chunks import Chunk
from corral.api.fusion import Explanation, LegHit
from corral.api.hits import Hit
from corral.api.reranker import BM25Rerank, MMRRerank
from corral.api.vector_dbs import VectorDB
from corral.providers.rerank import reranker_for


def vector_db(**settings: Any) -> VectorDB:
    """Return a registration; English with equal field weights unless settings say otherwise."""
    return VectorDB.model_validate(
        {
            "identifier": "db",
            "provider_id": "memory",
            "provider_resource_id": "db",
            "embedding_model": "m",
            "embedding_dimension": 3,
            **settings,
        }
    )


def hit(chunk_id: str, text: str = "text", score: float = 0.5, **fields: Any) -> Hit:
    """Return a hit of the vector leg."""
    chunk = Chunk(chunk_id=chunk_id, content=text, **fields)
    return Hit(chunk, score, Explanation({"vector": LegHit(1, score, 2 * score - 1)}))


def with_embeddings(embeddings: ArrayLike, names: Sequence[str] = ()) -> list[Hit]:
    """Return a hit for each row, named `00`, `01`, ... unless names are given."""
    rows = np.asarray(embeddings, np.float32).tolist()
    ids = names or [f"{number:02}" for number in range(len(rows))]
    return [hit(i, embedding=row) for i, row in zip(ids, rows, strict=True)]


def texts(count: int, words: int, seed: int) -> list[str]:
    """Return texts of words of different frequency, seeded."""
    chance = random.Random(seed)
    vocabulary = [f"w{number}x" for number in range(60)]
    return [
        " ".join(chance.choices(vocabulary, range(1, 61), k=chance.randint(1, words)))
        for _ in range(count)
    ]


async def reranked(
    rerank: MMRRerank | BM25Rerank,
    query: str,
    hits: Sequence[Hit],
    k: int = 1000,
    *,
    embedding: ArrayLike | None = None,
    **settings: Any,
) -> list[Hit]:
    """Return what the re-ranker of this kind makes of the hits."""
    question = None if embedding is None else np.asarray(embedding, np.float32)
    reranker = reranker_for(rerank, vector_db(**settings))
    return await reranker.rerank(query, hits, k, embedding=question)


def ids(hits: Sequence[Hit]) -> list[str]:
    """Return the chunk ids in order."""
    return [each.chunk.chunk_id for each in hits]
