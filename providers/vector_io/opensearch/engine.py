"""The engine of one vector DB in one OpenSearch index."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.chunks import Chunk
from corral.api.engine import Engine
from corral.api.errors import CorralError
from corral.api.filters import Filter
from corral.api.hits import Candidate, TermStatistics
from corral.api.vector_dbs import VectorDB
from corral.providers.text.analyzer import ANALYZER_VERSION
from corral.providers.vector_io.kit.candidates import (
    Neighbor,
    Proposals,
    VectorScorer,
    best_candidates,
)
from corral.providers.vector_io.kit.engine_bm25 import Keywords
from corral.providers.vector_io.kit.records import (
    CHUNK_FIELDS,
    ReadFields,
    attach_chunks,
    read_chunk,
    searched,
)
from corral.providers.vector_io.kit.tokens import has_orderings
from corral.providers.vector_io.kit.undo import undone_on_failure_async
from corral.providers.vector_io.opensearch import filters as native
from corral.providers.vector_io.opensearch.client import ClusterIndex
from corral.providers.vector_io.opensearch.keyword import IndexWords
from corral.providers.vector_io.opensearch.records import (
    DENSE,
    WINDOW,
    Document,
    Json,
    carried,
    document_id,
    make_document,
    product_of,
    really_passes,
    returned,
    space_type,
)

MARGIN = 10
"""Chunks requested beyond k at first, to find where the ties with the last one end."""

REINDEX_BATCH = 500


class OpenSearchEngine(Engine):
    """Stores chunks as documents of one index; see `Engine` for the public methods.

    Args:
        index: An existing index.
    """

    has_term_statistics = True

    def __init__(self, vector_db: VectorDB, index: ClusterIndex) -> None:
        super().__init__(vector_db)
        self._index = index
        self._config = index.config
        max_age = self._config.statistics_max_age_seconds
        self._keywords = Keywords(vector_db, IndexWords(index), WINDOW, max_age)
        self._writing = asyncio.Lock()

    async def prepare(self) -> None:
        """Refuse a newer layout or another mapping, and reanalyze terms of other analyzer versions.

        Raises:
            NotFound: The index has been deleted.
            ConfigError: A newer Corral wrote it, or its mapping was changed.
        """
        await self._index.check()
        stale = native.not_of_version(ANALYZER_VERSION)
        while hits := await self._index.hits({"size": REINDEX_BATCH, "query": stale}):
            documents = [Document(one["_id"], one["_source"]) for one in hits]
            chunks = [read_chunk(one.fields) for one in documents]
            embeddings = np.array([one.embedding for one in documents], dtype=np.float32)
            await self._index.put(await asyncio.to_thread(self._documents, chunks, embeddings))
            await self._index.refresh()

    # --- the calls of an engine --------------------------------------------------------------

    @override
    async def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        try:
            await self._store(chunks, embeddings, replace_documents)
        finally:
            self._keywords.forget()

    async def _store(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        documents = await asyncio.to_thread(self._documents, chunks, embeddings)
        new = [one.id for one in documents]
        async with self._writing, self._refreshed():
            before = await self._index.fetch(new, None, realtime=True)
            put_back: list[Callable[[], Awaitable[object]]] = [partial(self._index.put, before)]
            remove = partial(self._index.delete, sorted(set(new) - {one.id for one in before}))
            async with undone_on_failure_async(put_back, remove, self._config.timeout_seconds):
                await self._index.put(documents)
            # Nothing is undone from here on: a delete that failed may have been carried out.
            if replace_documents:
                await self._index.delete(await self._others(replace_documents, new))

    @override
    async def search_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        query = searched(self.vector_db, embedding)
        scorer = VectorScorer(self.vector_db, query, k)
        brought: dict[str, ReadFields | None] = {}

        async def propose(limit: int) -> Proposals:
            hits = await self._nearest(query, limit, filters)
            neighbors = [
                Neighbor(
                    hit["fields"]["chunk_id"][0],
                    product_of(hit["_score"]) if scorer.unit_length else hit["_score"],
                    really_passes(hit, filters),
                )
                for hit in hits
            ]
            brought.update((hit["fields"]["chunk_id"][0], carried(hit)) for hit in hits)
            names = {document_id(chunk_id): chunk_id for chunk_id in scorer.open(neighbors)}
            documents = await self._index.fetch([*names], [DENSE])
            stored = {names[one.id]: one.fields[DENSE] for one in documents}
            return scorer.proposals(neighbors, stored, limit)

        best = await best_candidates(k, propose, margin=MARGIN, most=WINDOW)
        attach_chunks(best, brought)
        return best

    @override
    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        return await self._keywords.search(query_string, k, filters, by)

    @override
    async def term_statistics(self, query_string: str, fuzzy: bool) -> TermStatistics:
        return await self._keywords.term_statistics(query_string)

    @override
    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        ids = [document_id(chunk_id) for chunk_id in dict.fromkeys(chunk_ids)]
        fields = [*CHUNK_FIELDS, *(["embedding", DENSE] if include_embeddings else [])]
        return [
            read_chunk(one.fields, one.embedding if include_embeddings else None)
            for one in await self._index.fetch(ids, fields)
        ]

    @override
    async def delete(self, chunk_ids: Sequence[str]) -> None:
        try:
            async with self._writing, self._refreshed():
                await self._index.delete([document_id(i) for i in dict.fromkeys(chunk_ids)])
        finally:
            self._keywords.forget()

    @override
    async def count(self) -> int:
        return await self._index.count(native.EVERYTHING)

    @override
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await self._listed(native.EVERYTHING, after, limit)

    @override
    async def document_chunk_ids(self, document_id: str) -> Sequence[str]:
        query = native.of_documents([document_id])
        return [chunk_id async for chunk_id in self._index.listed(query)]

    @override
    async def count_passing(self, filters: Filter) -> int:
        if has_orderings(filters):  # Filters that OpenSearch only narrows down.
            return await super().count_passing(filters)
        return await self._index.count(native.translate(filters))

    @override
    async def chunk_ids_passing(self, after: str, limit: int, filters: Filter) -> Sequence[str]:
        if has_orderings(filters):
            return await super().chunk_ids_passing(after, limit, filters)
        return await self._listed(native.translate(filters), after, limit)

    @override
    async def drop(self) -> None:
        await self._index.drop()
        await self._index.leave()

    @override
    async def close(self) -> None:
        await self._index.leave()

    # --- parts of them -----------------------------------------------------------------------

    async def _nearest(
        self, query: NDArray[np.float32], limit: int, filters: Filter | None
    ) -> list[Json]:
        """Return the nearest hits, at least `limit` if so many chunks match.

        The graph may lead to fewer if many embeddings are equal. All are then compared.
        """
        narrowed = native.translate(filters) if filters else native.EVERYTHING
        parts = returned(limit, filters)
        hits: list[Json] = []
        if not self._config.exact:
            near = {
                "vector": query.tolist(),
                "k": limit,
                "method_parameters": {"ef_search": max(limit, self._config.hnsw_ef)},
                **({"filter": narrowed} if filters else {}),
            }
            hits = await self._index.hits({"query": {"knn": {DENSE: near}}, **parts})
        if len(hits) < limit:
            hits = await self._index.hits({"query": self._compared(query, narrowed), **parts})
        return hits

    def _compared(self, embedding: NDArray[np.float32], narrowed: Json) -> Json:
        """Return the query that compares every embedding that matches, without the graph."""
        params = {
            "field": DENSE,
            "query_value": embedding.tolist(),
            "space_type": space_type(self.vector_db),
        }
        script = {"lang": "knn", "source": "knn_score", "params": params}
        return {"script_score": {"query": narrowed, "script": script}}

    async def _listed(self, query: Json, after: str, limit: int) -> list[str]:
        ids: list[str] = []
        async with aclosing(self._index.listed(query, after)) as pages:
            async for chunk_id in pages:
                ids.append(chunk_id)
                if len(ids) == limit:
                    break
        return ids

    async def _others(self, documents: frozenset[str], new: Sequence[str]) -> list[str]:
        """Return the ids of these documents' chunks that are not new."""
        spared = set(new)
        listed = self._index.listed(native.of_documents(documents))
        return [one async for i in listed if (one := document_id(i)) not in spared]

    @asynccontextmanager
    async def _refreshed(self) -> AsyncIterator[None]:
        """Make the writes of a block visible to searches at once, even if some of them failed."""
        try:
            yield
        except CorralError:
            with suppress(CorralError):
                await self._index.refresh()
            raise
        await self._index.refresh()

    def _documents(
        self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]
    ) -> list[Document]:
        return [
            make_document(
                self.vector_db, chunk, embedding, self._keywords.terms(chunk), ANALYZER_VERSION
            )
            for chunk, embedding in zip(chunks, embeddings, strict=True)
        ]
