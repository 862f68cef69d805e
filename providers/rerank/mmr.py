"""Maximal marginal relevance: chunks that are relevant, and unlike what is already chosen.

Carbonell and Goldstein, "The Use of MMR, Diversity-Based Reranking for Reordering Documents and
Producing Summaries", SIGIR 1998, section 2. One chunk after the other is chosen, each time the one
with the largest

    score = lambda * relevance + (1 - lambda) * (1 - redundancy)

where redundancy is the similarity to the most similar chunk that is chosen already, and 0 for the
first. Theirs is lambda * relevance - (1 - lambda) * redundancy: the constant 1 - lambda between the
two changes no choice and makes a score in [0, 1]. A cosine counts as (1 + cos) / 2, as everywhere.

Scores never increase from one choice to the next. Redundancy only grows as more is chosen, so the
score of each chunk that is left only falls; and the largest of fewer and smaller numbers is not
larger than the one before.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corral.api.embedding_index import Hit
from corral.api.errors import ContractViolation, InvalidEmbedding
from corral.api.reranker import MMRRerank, Reranker
from corral.api.vector_dbs import VectorDB
from corral.providers.rerank.bm25 import candidate_bm25
from corral.providers.rerank.rescoring import rescored

FloatArray = NDArray[np.float64]

_DIGITS = 12
"""Cosines are rounded to so many, so that equal embeddings are equally similar to a third one
wherever they stand: a matrix product rounds by position, in the 16th digit."""


@dataclass(frozen=True, slots=True)
class _Choice:
    row: int
    score: float
    redundancy: float


class MMRReranker(Reranker):
    """Chooses candidates by maximal marginal relevance; equal scores by chunk_id.

    Args:
        settings: lambda, what relevance is, and BM25's parameters.
        vector_db: Where the candidates are from.
    """

    def __init__(self, settings: MMRRerank, vector_db: VectorDB) -> None:
        self._settings = settings
        self._vector_db = vector_db

    async def rerank(
        self,
        query: str,
        hits: Sequence[Hit],
        k: int,
        *,
        embedding: NDArray[np.float32] | None = None,
    ) -> list[Hit]:
        """Return k hits in the order of their choice, scores never increasing.

        Cost: 1 ms for 100 candidates of 384 dimensions on one 2 GHz core; BM25 comes on top of it
        where relevance reads the text.

        Args:
            query: Read where relevance is `bm25` or `both`.
            hits: Each chunk with its embedding, on which redundancy rests.
            k: How many to return, >= 1.
            embedding: Shape (dimension,); needed where relevance is `embedding` or `both`.

        Raises:
            InvalidEmbedding: The question's embedding is needed and is not there, or has another
                dimension than the chunks'.
            ContractViolation: The index returned a chunk without its embedding.
        """
        return await asyncio.to_thread(self._rerank, query, hits, k, embedding)

    def _rerank(
        self, query: str, hits: Sequence[Hit], k: int, embedding: NDArray[np.float32] | None
    ) -> list[Hit]:
        if not hits:
            return []
        ordered = sorted(hits, key=lambda hit: hit.chunk.chunk_id)  # so argmax decides ties by it
        rows = _unit_rows(ordered)
        parts: dict[str, FloatArray] = {}
        if self._settings.relevance != "bm25":
            parts["embedding"] = _mapped(rows @ _unit_query(embedding, rows.shape[1]))
        if self._settings.relevance != "embedding":
            parts["bm25"] = self._bounded_bm25(query, ordered)
        relevance: FloatArray = sum(parts.values(), np.zeros(len(rows))) / len(parts)
        choices = choose(relevance, rows @ rows.T, self._settings.lambda_, k)
        return [
            rescored(
                ordered[choice.row],
                choice.score,
                "mmr",
                relevance=float(relevance[choice.row]),
                **{f"relevance_{name}": float(part[choice.row]) for name, part in parts.items()},
                redundancy=choice.redundancy,
                **{"lambda": self._settings.lambda_},
            )
            for choice in choices
        ]

    def _bounded_bm25(self, query: str, hits: Sequence[Hit]) -> FloatArray:
        chunks = [hit.chunk for hit in hits]
        settings = self._settings
        raw = candidate_bm25(query, chunks, self._vector_db, k1=settings.k1, b=settings.b)
        bounded: FloatArray = raw.raw_scores / (1.0 + raw.raw_scores)
        return bounded


def choose(relevance: FloatArray, cosines: FloatArray, lambda_: float, k: int) -> list[_Choice]:
    """Return up to k choices in their order; among equal scores the first row.

    Args:
        relevance: Shape (n,), in [0, 1].
        cosines: Between the candidates, shape (n, n), in [-1, 1] but for rounding.
        lambda_: In [0, 1]; 1 is relevance alone.
        k: At least 1.

    Returns:
        Cost: O(k n).
    """
    worth = lambda_ * relevance
    redundancy = np.zeros(len(relevance))
    chosen = np.zeros(len(relevance), bool)
    choices: list[_Choice] = []
    for _ in range(min(k, len(relevance))):
        scores = worth + (1.0 - lambda_) * (1.0 - redundancy)
        scores[chosen] = -1.0
        row = int(scores.argmax())
        choices.append(_Choice(row, min(float(scores[row]), 1.0), float(redundancy[row])))
        chosen[row] = True
        np.maximum(redundancy, _mapped(cosines[row]), out=redundancy)
    return choices


def _mapped(cosines: FloatArray) -> FloatArray:
    """Return cosines as scores in [0, 1]; rounding takes what is beyond 1 in the last digits."""
    scores: FloatArray = (1.0 + np.round(cosines, _DIGITS)) / 2.0
    return scores


def _unit_rows(hits: Sequence[Hit]) -> FloatArray:
    """Return the hits' embeddings with length 1, shape (n, dimension); zeros stay zeros."""
    rows: list[list[float]] = []
    for hit in hits:
        row = hit.chunk.embedding
        if row is None or len(row) != len(rows[0] if rows else row):
            raise ContractViolation(
                f"Chunk {hit.chunk.chunk_id!r} came without its embedding, or with another one's "
                "dimension."
            )
        rows.append(row)
    packed = struct.Struct(f"{len(rows[0])}d")  # three times faster than numpy reads lists
    matrix = np.frombuffer(b"".join([packed.pack(*row) for row in rows])).reshape(len(rows), -1)
    return matrix / _lengths(matrix)


def _unit_query(embedding: NDArray[np.float32] | None, dimension: int) -> FloatArray:
    if embedding is None or embedding.shape != (dimension,):
        found = "none" if embedding is None else f"shape {embedding.shape}"
        raise InvalidEmbedding(
            f"Re-ranking by mmr needs the question's embedding of {dimension} numbers, found "
            f"{found}.",
            hint='With {"relevance": "bm25"} it needs none.',
            field="rerank.relevance",
        )
    wide = embedding.astype(np.float64)[None, :]
    unit: FloatArray = (wide / _lengths(wide))[0]
    return unit


def _lengths(matrix: FloatArray) -> FloatArray:
    lengths: FloatArray = np.sqrt((matrix * matrix).sum(axis=1, keepdims=True))
    lengths[lengths == 0.0] = 1.0
    return lengths
