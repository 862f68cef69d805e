"""Store and search chunks of vector DBs: texts are embedded here, indexes do the rest."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corral.api.checks import (
    MAX_K,
    AnyRanker,
    check_k,
    check_query_text,
    check_ranker,
    check_threshold,
)
from corral.api.chunks import Chunk
from corral.api.embedder import Embedder
from corral.api.embedding_index import EmbeddingIndex, Hit, QueryChunksResponse
from corral.api.errors import ContractViolation, InvalidEmbedding, InvalidRequest
from corral.api.filters import Filter, parse_filter
from corral.api.fusion import merge_ranked
from corral.api.options import MaxChunks
from corral.api.vector_dbs import SearchMode, VectorDB
from corral.providers.rag.context import ContextHit
from corral.providers.vector_io.text import clean_text

EMBED_BATCH = 512
"""Texts handed to an embedder at once. It batches for its model itself; this only lets other
requests have their turn."""

_T = TypeVar("_T")


class Library(Protocol):
    """Where vector DBs, their indexes and embedders are found; `Stack` is one."""

    def vector_db(self, vector_db_id: str) -> VectorDB:
        """Return a registered vector DB, or raise NotFound naming the id."""

    async def index(self, vector_db_id: str) -> EmbeddingIndex:
        """Return the index of a registered vector DB."""

    async def embedder(self, model: str) -> Embedder:
        """Return the embedder of a model."""


class Retrieval:
    """Stores and searches chunks, embedding what has to be embedded.

    Args:
        library: Where the vector DBs are.
    """

    def __init__(self, library: Library) -> None:
        self.library = library

    async def store(
        self, vector_db_id: str, chunks: Sequence[Chunk], *, replace_documents: Collection[str] = ()
    ) -> None:
        """Store chunks, all or none; those without an embedding get one first.

        Args:
            vector_db_id: Where to.
            chunks: Their texts are stored without invisible characters. Not mutated.
            replace_documents: Documents whose other chunks are removed in the same step.

        Raises:
            NotFound: There is no such vector DB.
            InvalidRequest: A text has nothing visible in it.
            InvalidEmbedding: An embedding has the wrong dimension, or is refused by the index.
            ProviderError: The embedder or the backend failed; nothing was stored.
        """
        vector_db = self.library.vector_db(vector_db_id)
        cleaned = [_cleaned(number, chunk) for number, chunk in enumerate(chunks)]
        _check_dimensions(cleaned, vector_db.embedding_dimension)
        embeddings = await self._embeddings(vector_db, cleaned)
        index = await self.library.index(vector_db_id)
        await index.add_chunks(cleaned, embeddings, replace_documents=replace_documents)

    async def search(
        self,
        vector_db_id: str,
        query: str,
        *,
        k: MaxChunks,
        mode: SearchMode | str | None = None,
        score_threshold: float | None = 0.0,
        ranker: AnyRanker | dict[str, Any] | None = None,
        filters: Filter | dict[str, Any] | None = None,
        include_embeddings: bool = False,
    ) -> QueryChunksResponse:
        """Return the k best chunks of one vector DB, as `EmbeddingIndex.query` orders them.

        The query is embedded unless it is a keyword search. A blank query finds nothing.

        Raises:
            NotFound: There is no such vector DB.
            InvalidRequest: A bad argument, as `EmbeddingIndex.query` says.
            ProviderError: The embedder or the backend failed.
        """
        found = await self.search_many(
            [vector_db_id],
            query,
            k=k,
            mode=mode,
            score_threshold=score_threshold,
            ranker=ranker,
            filters=filters,
            include_embeddings=include_embeddings,
        )
        return QueryChunksResponse([each.hit for each in found])

    async def search_many(
        self,
        vector_db_ids: Sequence[str],
        query: str,
        *,
        k: MaxChunks,
        mode: SearchMode | str | None = None,
        score_threshold: float | None = 0.0,
        ranker: AnyRanker | dict[str, Any] | None = None,
        filters: Filter | dict[str, Any] | None = None,
        include_embeddings: bool = False,
    ) -> list[ContextHit]:
        """Return the k best chunks of several vector DBs, best first.

        All are searched at once, each in its own way where `mode` and `ranker` are None, and the
        query is embedded once for each model. `score_threshold` applies to a chunk's score in its
        own vector DB. With one vector DB its scores stay. Scores of several cannot be compared, so
        their hits are merged by rank (`merge_ranked`; ties by vector DB id, then chunk id) and the
        score is the merged one: at most 1 / n with n vector DBs, as a chunk is in one of them only.

        Args:
            vector_db_ids: At least one; repetitions are ignored.
            query: The question. A blank one finds nothing.
            k: Most hits, 1 to 1000, of each vector DB and of the answer; `auto`: the root of the
                number of chunks in all of them, rounded up.

        Raises:
            NotFound: One of the vector DBs does not exist; none was searched.
            InvalidRequest: A bad argument, as `EmbeddingIndex.query` says.
            ProviderError: An embedder or a backend failed.
        """
        if not vector_db_ids:
            raise InvalidRequest("No vector DB is named.", field="vector_db_ids")
        vector_dbs = [self.library.vector_db(name) for name in dict.fromkeys(vector_db_ids)]
        modes = {
            vector_db.identifier: SearchMode.parse(vector_db.search_mode if mode is None else mode)
            for vector_db in vector_dbs
        }
        text = clean_text(check_query_text(query))
        common: dict[str, Any] = {
            "k": await self._most(vector_dbs, k),
            "score_threshold": check_threshold(score_threshold),
            "ranker": check_ranker(ranker),
            "filters": parse_filter(filters),
            "include_embeddings": include_embeddings,
        }
        if not text.strip():
            return []
        models = {
            v.embedding_model for v in vector_dbs if modes[v.identifier] != SearchMode.KEYWORD
        }
        embedded = await self._embed_query(text, sorted(models))

        async def search(vector_db: VectorDB) -> QueryChunksResponse:
            index = await self.library.index(vector_db.identifier)
            embedding = embedded.get(vector_db.embedding_model)
            chosen = modes[vector_db.identifier]
            return await index.query(embedding, text, mode=chosen, **common)

        answers = await _all(search(vector_db) for vector_db in vector_dbs)
        names = [vector_db.identifier for vector_db in vector_dbs]
        merged = _merge([_ranked(n, a.hits) for n, a in zip(names, answers, strict=True)])
        return merged[: common["k"]]

    async def _most(self, vector_dbs: Sequence[VectorDB], k: MaxChunks) -> int:
        """Return how many hits are wanted; see `MaxChunks`."""
        if k != "auto":
            return check_k(k)
        indexes = [await self.library.index(vector_db.identifier) for vector_db in vector_dbs]
        chunks = sum(await _all(index.count() for index in indexes))
        return min(max(math.ceil(math.sqrt(chunks)), 1), MAX_K)

    async def _embed_query(self, text: str, models: list[str]) -> dict[str, NDArray[np.float32]]:
        async def embed(model: str) -> NDArray[np.float32]:
            return await (await self.library.embedder(model)).embed_query(text)

        vectors = await _all(embed(model) for model in models)
        return dict(zip(models, vectors, strict=True))

    async def _embeddings(self, vector_db: VectorDB, chunks: Sequence[Chunk]) -> ArrayLike | None:
        """Return an embedding for each chunk, or None where all chunks bring theirs."""
        missing = [chunk.content for chunk in chunks if chunk.embedding is None]
        if not missing:
            return None
        made = await embed(self.library, vector_db, missing)
        if len(missing) == len(chunks):
            return made
        rows = iter(made)
        return [next(rows) if chunk.embedding is None else chunk.embedding for chunk in chunks]


async def embed(library: Library, vector_db: VectorDB, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the embeddings of texts by the model of a vector DB, shape (len(texts), dimension).

    Raises:
        ContractViolation: The embedder returned another shape.
    """
    embedder = await library.embedder(vector_db.embedding_model)
    expected = vector_db.embedding_dimension
    batches = [np.empty((0, expected), dtype=np.float32)]
    for start in range(0, len(texts), EMBED_BATCH):
        batch = texts[start : start + EMBED_BATCH]
        made = await embedder.embed_documents(batch)
        if made.shape != (len(batch), expected):
            raise ContractViolation(
                f"{vector_db.embedding_model} returned embeddings of shape {made.shape} where "
                f"{(len(batch), expected)} was expected."
            )
        batches.append(made)
    return np.concatenate(batches)


def _cleaned(number: int, chunk: Chunk) -> Chunk:
    text = clean_text(chunk.content)
    if not text.strip():
        raise InvalidRequest(
            f"Chunk {number} has no visible text.", field=f"chunks[{number}].content"
        )
    return chunk if text == chunk.content else chunk.model_copy(update={"content": text})


def _check_dimensions(chunks: Sequence[Chunk], dimension: int) -> None:
    for number, chunk in enumerate(chunks):
        if chunk.embedding is not None and len(chunk.embedding) != dimension:
            raise InvalidEmbedding(
                f"The embedding of chunk {number} has {len(chunk.embedding)} dimensions, the "
                f"vector DB has {dimension}.",
                hint="Use the embedding model of the vector DB, or leave the embedding out.",
                field=f"chunks[{number}].embedding",
            )


def _ranked(vector_db_id: str, hits: Sequence[Hit]) -> list[ContextHit]:
    return [ContextHit(vector_db_id, hit, rank, hit.score) for rank, hit in enumerate(hits, 1)]


def _merge(lists: Sequence[list[ContextHit]]) -> list[ContextHit]:
    """Return the hits of several vector DBs by fused rank; those of one as they are."""
    if len(lists) == 1:
        return lists[0]
    # NUL is in no id and sorts first, so the order of keys is that of (vector DB id, chunk id).
    keyed = [{f"{e.vector_db_id}\0{e.hit.chunk.chunk_id}": e for e in hits} for hits in lists]
    fused = merge_ranked([[(key, e.hit.score) for key, e in each.items()] for each in keyed])
    found = {key: e for each in keyed for key, e in each.items()}
    return [_rescored(found[key], score) for key, score in fused]


def _rescored(each: ContextHit, score: float) -> ContextHit:
    hit = Hit(each.hit.chunk, score, each.hit.explanation)
    return ContextHit(each.vector_db_id, hit, each.rank, each.vector_db_score)


async def _all(coroutines: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Return the results of all, run at once; the first failure cancels the others."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
