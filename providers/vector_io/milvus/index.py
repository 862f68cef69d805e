"""The index of one vector DB in one Milvus collection."""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import Candidate, EmbeddingIndex
from corral.api.errors import ProviderError
from corral.api.filters import Comparison, Filter, matches
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.exact import (
    SINGLE_PRECISION_SLACK,
    effective_metric,
    exact_scores,
)
from corral.providers.vector_io.fields import chunk_terms
from corral.providers.vector_io.milvus import filters as expressions
from corral.providers.vector_io.milvus.engine import MOST_ROWS
from corral.providers.vector_io.milvus.filters import CHUNKS
from corral.providers.vector_io.milvus.rows import Entry, lexemes, row_key
from corral.providers.vector_io.milvus.schema import stored_dimension
from corral.providers.vector_io.milvus.store import Store
from corral.providers.vector_io.milvus.tally import Tally
from corral.providers.vector_io.sparse import (
    Proposal,
    SparseQuery,
    Statistics,
    best_matches,
    query_vector,
    sparse_chunk,
)
from corral.providers.vector_io.text import ANALYZER_VERSION, analyzer

_MARGIN = 32  # rows asked for beyond k, so that most ties are settled by the first request
_GROWTH = 4
_REWRITTEN = 500  # chunks of one step when terms are made anew


class MilvusIndex(EmbeddingIndex):
    """Chunks in one Milvus collection; every public method is the contract's.

    The work runs in threads. Milvus finds candidates, their scores are computed here, in double
    precision, and more are asked for until none that is missing can belong to the answer.

    Args:
        vector_db: The registration.
        store: Its collection.
    """

    def __init__(self, vector_db: VectorDB, store: Store) -> None:
        super().__init__(vector_db)
        self._store = store
        self._metric = effective_metric(vector_db)
        self._analyzer = analyzer(vector_db.language)
        self._in_memory = not store.layout.arrays  # how many chunks hold each term
        self._tally: Tally | None = None
        self._others: dict[str, str] = {}  # other writers, as the tally knows them
        self._holding: dict[int, int] = {}  # chunks by term key, as counted by the server
        self._writing = threading.RLock()
        self._counting = threading.RLock()
        self._open = True
        store.engine.enter()

    def prepare(self, *, is_new: bool) -> None:
        """Load the collection, and put in order what another process or version left.

        Raises:
            ConfigError: A newer Corral wrote it.
        """
        if is_new:
            self._store.make()
        self._store.load()
        if not is_new:
            self._store.tidy()
            if self._store.analyzer_version() != ANALYZER_VERSION:
                self._analyze_anew()
        self._store.sign()

    def _analyze_anew(self) -> None:
        pks = self._store.keys()
        for start in range(0, len(pks), _REWRITTEN):
            some = pks[start : start + _REWRITTEN]
            chunks = self._store.chunks(some, with_embeddings=True)
            embeddings = np.array([chunk.embedding for chunk in chunks], dtype=np.float32)
            self._write(chunks, embeddings, frozenset())

    # --- the contract's hooks ----------------------------------------------------------------

    async def _add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        await asyncio.to_thread(self._write, chunks, embeddings, replace_documents)

    async def _query_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        return await asyncio.to_thread(self._search_vectors, embedding, k, filters)

    async def _query_keyword(
        self, query_string: str, k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        query = SparseQuery(query_string, self._analyzer)
        if not query.terms:
            return []
        statistics, holding = await asyncio.to_thread(self._statistics, query.keys)
        weights = query.weights(holding, statistics.count)
        expression = await asyncio.to_thread(self._expression, filters)

        async def fetch(references: Sequence[int] | None, limit: int) -> Sequence[Proposal]:
            return await asyncio.to_thread(self._propose, weights, expression, references, limit)

        found = await best_matches(query, weights, statistics, k, fetch)
        return [Candidate(one.chunk_id, one.score, matched_terms=one.terms) for one in found]

    async def _get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        return await asyncio.to_thread(self._read, chunk_ids, include_embeddings)

    async def _delete_chunks(self, chunk_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self._delete_stored, chunk_ids)

    async def _count(self) -> int:
        return await asyncio.to_thread(self._count_chunks)

    async def _chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await asyncio.to_thread(self._ids_after, after, limit)

    async def _drop(self) -> None:
        await asyncio.to_thread(self._drop_collection)

    async def close(self) -> None:
        """Let go of the connection; an embedded Milvus is closed with its last index."""
        if self._open:
            self._open = False
            await asyncio.to_thread(self._store.engine.leave)

    # --- reading -----------------------------------------------------------------------------

    def _search_vectors(
        self, embedding: NDArray[np.float32], k: int, filter_: Filter | None
    ) -> list[Candidate]:
        expression = self._expression(filter_)
        padded = np.zeros(stored_dimension(self.vector_db), dtype=np.float32)
        padded[: len(embedding)] = embedding
        limit = min(k + _MARGIN, MOST_ROWS)
        while True:
            hits = self._store.search(
                "embedding", padded, expression, limit, ("chunk_id", "embedding")
            )
            if not hits:
                return []
            matrix = np.array([hit["entity"]["embedding"] for hit in hits], dtype=np.float32)
            scores = exact_scores(matrix, padded, self._metric)
            found = sorted(
                (-score, hit["entity"]["chunk_id"])
                for score, hit in zip(scores.tolist(), hits, strict=True)
            )
            slack = self._slack(matrix, padded)
            if (
                len(hits) < limit
                or limit == MOST_ROWS
                or self._relevance(hits[-1]["distance"]) + slack < -found[k - 1][0]
            ):
                return [Candidate(chunk_id, -negative) for negative, chunk_id in found[:k]]
            limit = min(limit * _GROWTH, MOST_ROWS)

    def _relevance(self, distance: float) -> float:
        """Turn Milvus's distance, a squared one for L2, into a raw score."""
        return -float(np.sqrt(max(0.0, distance))) if self._metric is Metric.L2 else distance

    def _slack(self, matrix: NDArray[np.float32], query: NDArray[np.float32]) -> float:
        """Bound the error of the scores that Milvus computes in single precision."""
        if self._metric is Metric.COSINE:
            return SINGLE_PRECISION_SLACK
        longest = float(np.linalg.norm(matrix.astype(np.float64), axis=1).max())
        length = float(np.linalg.norm(query.astype(np.float64)))
        if self._metric is Metric.L2:  # of the square root of an error of the square
            return float(np.sqrt(SINGLE_PRECISION_SLACK)) * (longest + length)
        return SINGLE_PRECISION_SLACK * max(1.0, longest * length)

    def _propose(
        self,
        weights: dict[int, float],
        expression: str,
        references: Sequence[int] | None,
        limit: int,
    ) -> list[Proposal]:
        if references is not None:
            expression += f" and reference in {list(references)}"
        vector = dict(zip(*query_vector(weights), strict=True))
        output = ("pk", "chunk_id", "lexemes", "length")
        hits = self._store.search("terms", vector, expression, min(limit, MOST_ROWS), output)
        long = [hit["entity"]["pk"] for hit in hits if not hit["entity"]["lexemes"]]
        texts = self._store.payloads_of(long) if long else {}
        proposals = []
        for hit in hits:
            row = hit["entity"]
            if row["lexemes"] or row["pk"] in texts:
                keys, frequencies = lexemes(row["lexemes"], texts.get(row["pk"], ""))
                proposals.append(
                    Proposal(row["chunk_id"], hit["distance"], keys, frequencies, row["length"])
                )
        return proposals

    def _expression(self, filter_: Filter | None) -> str:
        return expressions.expression(
            filter_, arrays=self._store.layout.arrays, resolve=self._resolve
        )

    def _resolve(self, expression: str, comparison: Comparison) -> list[str]:
        chunks = self._store.chunks_passing(expression)
        return [row_key(c.chunk_id) for c in chunks if matches(comparison, c.metadata)]

    def _read(self, chunk_ids: Sequence[str], include_embeddings: bool) -> list[Chunk]:
        with self._store.engine.alone():
            pks = list(dict.fromkeys(map(row_key, chunk_ids)))
            return self._store.chunks(pks, with_embeddings=include_embeddings)

    def _ids_after(self, after: str, limit: int) -> list[str]:
        """Return the first ids that follow one. Milvus orders nothing: all are read."""
        with self._store.engine.alone():
            return heapq.nsmallest(limit, (i for i in self._store.chunk_ids() if i > after))

    def _count_chunks(self) -> int:
        if self._in_memory:
            return self._statistics(())[0].count
        return self._store.count(CHUNKS)

    # --- statistics --------------------------------------------------------------------------

    def _statistics(self, keys: Sequence[int]) -> tuple[Statistics, list[int]]:
        """Return the statistics of now, and for each key the number of chunks that hold it."""
        with self._store.engine.alone(), self._counting:
            tally = self._current_tally()
            held = tally.holding(keys)
            if held is None:
                missing = [key for key in dict.fromkeys(keys) if key not in self._holding]
                self._count_holding(missing)
                held = [self._holding[key] for key in keys]
            return tally.statistics(), held

    def _current_tally(self) -> Tally:
        others = {} if self._in_memory else self._store.other_writers()
        if self._tally is None or others != self._others:
            with self._writing:
                others = {} if self._in_memory else self._store.other_writers()
                entries = self._store.entries(with_keys=self._in_memory)
                self._tally = Tally(entries, with_keys=self._in_memory)
                self._others, self._holding = others, {}
        return self._tally

    def _count_holding(self, keys: Sequence[int]) -> None:
        """Count the chunks that hold each key; many keys at once, since most of many are unused."""
        if not keys:
            return
        if len(keys) == 1:
            self._holding[keys[0]] = self._store.count(f"array_contains(keys, {keys[0]})")
        elif len(keys) > 16 and not self._store.count(f"array_contains_any(keys, {list(keys)})"):
            self._holding.update(dict.fromkeys(keys, 0))
        else:
            half = len(keys) // 2
            self._count_holding(keys[:half])
            self._count_holding(keys[half:])

    # --- writing -----------------------------------------------------------------------------

    def _write(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        weights = self.vector_db.field_weights
        terms = [chunk_terms(chunk, weights, self._analyzer) for chunk in chunks]
        with self._store.engine.alone(), self._writing:
            reference = self._statistics(())[0].reference_with([one.length for one in terms])
            rows: list[dict[str, Any]] = []
            come: list[Entry] = []
            for chunk, embedding, term in zip(chunks, embeddings, terms, strict=True):
                sparse = sparse_chunk(term, reference)
                made = self._store.maker.chunk(chunk, embedding, sparse)
                rows.extend(made)
                first = made[0]
                come.append(
                    Entry(first["pk"], first["parts"], sparse.length, reference, sparse.keys)
                )
            old = self._store.entries_of(
                [one.pk for one in come], replace_documents, with_keys=self._in_memory
            )
            self._replace(rows, list(old.values()), come)

    def _delete_stored(self, chunk_ids: Sequence[str]) -> None:
        with self._store.engine.alone(), self._writing:
            self._statistics(())
            pks = dict.fromkeys(map(row_key, chunk_ids))
            old = self._store.entries_of(pks, (), with_keys=self._in_memory)
            self._replace([], list(old.values()), [])

    def _replace(
        self, rows: Sequence[dict[str, Any]], gone: Sequence[Entry], come: Sequence[Entry]
    ) -> None:
        """Write and remove rows, and follow in the tally; read it anew after a failure."""
        if not rows and not gone:
            return
        written = {row["pk"] for row in rows}
        try:
            self._store.write(rows, [pk for one in gone for pk in one.pks if pk not in written])
        except ProviderError:
            with self._counting:
                self._tally = None
            raise
        with self._counting:
            self._holding = {}
            if self._tally is not None:
                self._tally.change(gone=gone, come=come)

    def _drop_collection(self) -> None:
        with self._store.engine.using():
            self._store.drop()
        if self._open:
            self._open = False
            self._store.engine.leave()
