"""The reference for answers: brute force over all added chunks.

It is slow, small and obviously right: it scores every chunk in double precision and sorts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corral.api.chunks import Chunk
from corral.api.filters import matches, parse_filter
from corral.api.hits import QueryChunksResponse
from corral.api.scoring import Metric, check_embeddings
from corral.api.testing.indexes import raw_scores
from corral.api.vector_dbs import VectorDB

K1 = 1.2
B = 0.75


def bm25(
    query: str, fields: Mapping[str, Mapping[str, str]], weights: Mapping[str, float]
) -> dict[str, float]:
    """Return the BM25 of each text that contains a term of the query, by the definition.

        sum over terms of  idf * f (k1 + 1) / (f + k1 (1 - b + b len / avg))
        idf = ln(1 + (N - n + 0.5) / (n + 0.5)),  k1 = 1.2,  b = 0.75

    Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and
    Beyond" (2009), section 3.4, with the idf of Lucene's BM25Similarity. N counts the chunks of the
    vector DB, n the chunks that contain the term; len is the number of a chunk's terms over all
    fields, avg its mean; f is the sum over the fields of weight times the term's count in it.

    Args:
        query: Lower-case words, each once.
        fields: By chunk id, the texts by field: lower-case words and spaces only, so that every
            analyzer without stemming agrees on the terms.
        weights: Weight of each field.
    """
    lengths = {i: sum(len(text.split()) for text in texts.values()) for i, texts in fields.items()}
    average = sum(lengths.values()) / max(len(lengths), 1)
    frequency: dict[str, defaultdict[str, float]] = {}
    for chunk_id, texts in fields.items():
        frequency[chunk_id] = defaultdict(float)
        for field, text in texts.items():
            for term in text.split():
                frequency[chunk_id][term] += weights[field]
    total: dict[str, float] = {}
    for term in query.split():
        holding = {i: f[term] for i, f in frequency.items() if f[term]}
        n = len(holding)
        idf = math.log(1 + (len(fields) - n + 0.5) / (n + 0.5))
        for chunk_id, f in holding.items():
            norm = 1 - B + B * lengths[chunk_id] / average
            total[chunk_id] = total.get(chunk_id, 0.0) + idf * f * (K1 + 1) / (f + K1 * norm)
    return total


def greatest_bm25(query: str, chunks: Iterable[Chunk]) -> float:
    """Return the maximum possible BM25: (k1 + 1) times the sum of the words' idf.

    Args:
        query: Distinct lower-case words.
        chunks: All chunks of the vector DB; plain content only.
    """
    words = [set(chunk.content.split()) for chunk in chunks]
    holding = [sum(word in held for held in words) for word in query.split()]
    return sum((K1 + 1) * math.log(1 + (len(words) - n + 0.5) / (n + 0.5)) for n in holding)


class Oracle:
    """Every chunk of one vector DB, with exact answers.

    Args:
        vector_db: The registration; its metric and `normalize` define the raw scores.
    """

    def __init__(self, vector_db: VectorDB) -> None:
        self.vector_db = vector_db
        self.chunks: dict[str, Chunk] = {}
        self._rows: dict[str, NDArray[np.float64]] = {}

    def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: ArrayLike,
        replace_documents: Collection[str] = (),
    ) -> None:
        """Add chunks as `add_chunks` does."""
        stale = [i for i, c in self.chunks.items() if c.document_id in set(replace_documents)]
        self.remove(stale)
        rows = check_embeddings(
            embeddings,
            dimension=self.vector_db.embedding_dimension,
            metric=self.vector_db.metric,
            normalize=self.vector_db.normalize,
        )
        for chunk, row in zip(chunks, rows, strict=True):
            self.chunks[chunk.chunk_id] = chunk
            self._rows[chunk.chunk_id] = row.astype(np.float64)

    def remove(self, chunk_ids: Iterable[str]) -> None:
        """Delete chunks as `delete_chunks` does."""
        for chunk_id in chunk_ids:
            self.chunks.pop(chunk_id, None)
            self._rows.pop(chunk_id, None)

    def passing(self, filters: Any = None) -> set[str]:
        """Return the ids of the chunks that pass a filter."""
        parsed = parse_filter(filters)
        return {i for i, chunk in self.chunks.items() if matches(parsed, chunk.metadata)}

    def vector(self, embedding: ArrayLike, filters: Any = None) -> dict[str, float]:
        """Return the raw vector score of every chunk that passes."""
        query = check_embeddings(
            embedding,
            dimension=self.vector_db.embedding_dimension,
            metric=self.vector_db.metric,
            normalize=self.vector_db.normalize,
        )[0].astype(np.float64)
        names = list(self.passing(filters))
        rows = np.array([self._rows[i] for i in names]).reshape(len(names), query.size)
        return dict(zip(names, self._compare(rows, query).tolist(), strict=True))

    def keyword(self, query: str, filters: Any = None) -> dict[str, float]:
        """Return the BM25 of every passing chunk with a word of the query; plain content only."""
        texts = {i: {"content": chunk.content} for i, chunk in self.chunks.items()}
        passing = self.passing(filters)
        ranked = bm25(query, texts, {"content": 1.0})
        return {i: score for i, score in ranked.items() if i in passing}

    def _compare(
        self, rows: NDArray[np.float64], query: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the raw score of each row."""
        metric = self.vector_db.metric
        if metric is Metric.L2 and not self.vector_db.normalize:
            return np.asarray(-np.sqrt(((rows - query) ** 2).sum(axis=1)))
        products = (rows * query).sum(axis=1)
        if metric is Metric.COSINE and not self.vector_db.normalize:
            products /= np.sqrt((rows**2).sum(axis=1) * (query**2).sum())
        return np.asarray(products)

    def complaint(
        self,
        response: QueryChunksResponse,
        expected: Mapping[str, float],
        k: int,
        tolerance: float = 1e-5,
    ) -> str:
        """Return a description of the error in a single leg's answer, "" if it is right.

        A right answer has min(k, n) hits; each raw score is within the tolerance of the exact
        score; no omitted chunk is better than the last hit by more than the tolerance; and chunks
        with the same embedding (keyword: the same text) are in the order of their ids, also across
        the cut at k.

        Args:
            expected: The exact raw score of every chunk that could be in the answer.
            k: Number of requested hits.
            tolerance: Allowed error of a raw score; different chunks with a smaller difference may
                be in any order.
        """
        actual = raw_scores(response)
        best = sorted(expected, key=lambda i: (-expected[i], i))
        if len(response.hits) != min(k, len(expected)):
            return f"{len(response.hits)} hits where {min(k, len(expected))} are right; k is {k}"
        if unknown := set(actual) - set(expected):
            return f"{sorted(unknown)} must not be found"
        for place, (chunk_id, raw) in enumerate(actual.items()):
            if abs(raw - expected[chunk_id]) > tolerance:
                return f"{chunk_id!r} has raw score {raw}, exact is {expected[chunk_id]}"
            if abs(expected[best[place]] - expected[chunk_id]) > tolerance:
                return f"rank {place + 1} is {chunk_id!r}, right is {best[place]!r}"
        keyword = any("keyword" in hit.explanation.legs for hit in response.hits)

        def key(chunk_id: str) -> Any:
            return self.chunks[chunk_id].content if keyword else self._rows[chunk_id].tobytes()

        twins: dict[Any, list[str]] = {key(chunk_id): [] for chunk_id in actual}
        for chunk_id in sorted(expected):
            if (group := twins.get(key(chunk_id))) is not None:
                group.append(chunk_id)
        for group in twins.values():
            here = [i for i in actual if i in group]
            if here != group[: len(here)]:
                return f"equal chunks come in the order {here}, right is {group[: len(here)]}"
        return ""
