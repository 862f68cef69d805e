"""Store and search chunks of vector DBs: texts are embedded here, indexes do the rest."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError

from corral.api.checks import MAX_K, AnyRanker, check_k, check_ranker
from corral.api.chunks import Chunk
from corral.api.embedder import Embedder
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import ContractViolation, InvalidEmbedding, InvalidRequest
from corral.api.filters import Filter, parse_filter
from corral.api.fusion import merge_ranked
from corral.api.hits import Hit, QueryChunksResponse, Step
from corral.api.options import MaxChunks, RetrievalOptions
from corral.api.reranker import ModelRerank, Reranker
from corral.api.vector_dbs import SearchMode, VectorDB
from corral.providers.rag.context import ContextHit
from corral.providers.rag.searching import Embedded, Plan, plan, run_all, search
from corral.providers.ranking.text import clean_text
from corral.providers.rerank import reranker_for

EMBED_BATCH = 512
"""Texts handed to an embedder at once. It batches for its model itself; this only lets other
requests have their turn."""


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What a search of one or several vector DBs found.

    Attributes:
        hits: Best first.
        steps: By vector DB id, what each step of its search did.
        notes: What the caller has to know.
    """

    hits: list[ContextHit] = field(default_factory=list)
    steps: Mapping[str, list[Step]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Library(Protocol):
    """Where vector DBs, their indexes and embedders are found; `Stack` is one."""

    async def vector_db(self, vector_db_id: str) -> VectorDB:
        """Return a registered vector DB, or raise NotFound naming the id."""

    async def index(self, vector_db_id: str) -> EmbeddingIndex:
        """Return the index of a registered vector DB."""

    async def embedder(self, model: str) -> Embedder:
        """Return the embedder of a model."""

    async def reranker(self, model: str) -> Reranker:
        """Return the re-ranker of a model, or raise InvalidRequest naming those there are."""


class Retrieval:
    """Stores and searches chunks, embedding what has to be embedded.

    Args:
        library: Where the vector DBs are.
        max_k: Most hits of a query that asks for `auto`.
    """

    def __init__(self, library: Library, max_k: int = MAX_K) -> None:
        self.library = library
        self._max_k = max_k

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
        vector_db = await self.library.vector_db(vector_db_id)
        cleaned = await asyncio.to_thread(_all_cleaned, chunks, vector_db.embedding_dimension)
        embeddings = await self._embeddings(vector_db, cleaned)
        index = await self.library.index(vector_db_id)
        await index.add_chunks(cleaned, embeddings, replace_documents=replace_documents)

    async def search(
        self,
        vector_db_id: str,
        query: str,
        *,
        k: MaxChunks = 5,
        options: RetrievalOptions | None = None,
        filters: Filter | dict[str, Any] | None = None,
        **given: Any,
    ) -> QueryChunksResponse:
        """Return the k best chunks of one vector DB, as `search_many` does."""
        found = await self.search_many(
            [vector_db_id], query, k=k, options=options, filters=filters, **given
        )
        hits = [each.hit for each in found.hits]
        return QueryChunksResponse(hits, found.steps.get(vector_db_id, []), found.notes)

    async def search_many(
        self,
        vector_db_ids: Sequence[str],
        query: str,
        *,
        k: MaxChunks = 5,
        options: RetrievalOptions | None = None,
        filters: Filter | dict[str, Any] | None = None,
        weights: Mapping[str, float] | None = None,
        **given: Any,
    ) -> Retrieved:
        """Return the k best chunks of several vector DBs, best first.

        All are searched at once, each as it was registered where the options say nothing, and a
        query is embedded once for each model. `score_threshold` applies to a chunk's score in its
        own vector DB. With one vector DB its scores stay. Scores of several cannot be compared, so
        their hits are merged by rank (`merge_ranked`; ties by vector DB id, then chunk id) and the
        score is the merged one: at most 1 / n with n vector DBs that count alike, as a chunk is in
        one of them only.

        Args:
            vector_db_ids: At least one; repetitions are ignored.
            query: The question; blank only where `options.queries` say more.
            k: Most hits, 1 to 1000, of each vector DB and of the answer; `auto`: the root of the
                number of chunks in all of them, rounded up.
            options: How to search.
            filters: Instead of `options.filters`, which are JSON.
            weights: By vector DB id, how much it counts in the merging; 1 where it is not named.
            given: Single options by name, instead of `options`.

        Raises:
            NotFound: One of the vector DBs does not exist; none was searched.
            InvalidRequest: A bad argument, as `EmbeddingIndex.query` says, or an empty question.
            ProviderError: An embedder, a re-ranker or a backend failed.
        """
        if not vector_db_ids:
            raise InvalidRequest("No vector DB is named.", field="vector_db_ids")
        vector_dbs = await registered(self.library, vector_db_ids)
        chosen = _chosen(options, given)
        passing = parse_filter(chosen.filters if filters is None else filters)
        most = await self.most(vector_db_ids, k)
        questions = [query, *chosen.queries]
        plans = [plan(vector_db, questions, most, chosen, passing) for vector_db in vector_dbs]
        if not all(how.queries for how in plans):
            raise _empty_question()
        embedded = await self._embed_queries(vector_dbs, plans)
        answers = await run_all(
            self._search(vector_db, how, embedded.get(vector_db.embedding_model, {}))
            for vector_db, how in zip(vector_dbs, plans, strict=True)
        )
        found = {v.identifier: a for v, a in zip(vector_dbs, answers, strict=True)}
        merged = _merge({name: _ranked(name, a.hits) for name, a in found.items()}, weights or {})
        notes = [note for answer in answers for note in answer.notes]
        return Retrieved(merged[:most], {name: a.steps for name, a in found.items()}, notes)

    async def most(self, vector_db_ids: Sequence[str], k: MaxChunks) -> int:
        """Return how many hits are wanted of some vector DBs; see `MaxChunks`."""
        if k != "auto":
            return check_k(k)
        indexes = [await self.library.index(name) for name in dict.fromkeys(vector_db_ids)]
        chunks = sum(await run_all(index.count() for index in indexes))
        return min(max(math.ceil(math.sqrt(chunks)), 1), self._max_k)

    async def _search(
        self, vector_db: VectorDB, how: Plan, embedded: Embedded
    ) -> QueryChunksResponse:
        index = await self.library.index(vector_db.identifier)
        reranker = await self._reranker(vector_db, how)
        return await search(index, how, embedded, reranker)

    async def _reranker(self, vector_db: VectorDB, how: Plan) -> Reranker | None:
        if how.rerank is None:
            return None
        if isinstance(how.rerank, ModelRerank):
            return await self.library.reranker(how.rerank.model)
        return reranker_for(how.rerank, vector_db)

    async def _embed_queries(
        self, vector_dbs: Sequence[VectorDB], plans: Sequence[Plan]
    ) -> dict[str, dict[str, NDArray[np.float32]]]:
        """Return the queries' embeddings by model and text, each text embedded once a model."""
        wanted = {
            (vector_db.embedding_model, query.meaning): None
            for vector_db, how in zip(vector_dbs, plans, strict=True)
            for query in (how.queries if how.embeds else ())
        }

        async def embed(model: str, text: str) -> NDArray[np.float32]:
            return await (await self.library.embedder(model)).embed_query(text)

        vectors = await run_all(embed(model, text) for model, text in wanted)
        embedded: dict[str, dict[str, NDArray[np.float32]]] = {}
        for (model, text), vector in zip(wanted, vectors, strict=True):
            embedded.setdefault(model, {})[text] = vector
        return embedded

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


async def registered(library: Library, vector_db_ids: Sequence[str]) -> list[VectorDB]:
    """Return the vector DBs of these ids, each once.

    Raises:
        NotFound: One of them does not exist; the first is named.
    """
    return [await library.vector_db(name) for name in dict.fromkeys(vector_db_ids)]


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


def _empty_question() -> InvalidRequest:
    return InvalidRequest(
        "The question is empty: it has no visible character.",
        hint="Send what to look for, as a question or as words.",
        field="query",
    )


def _all_cleaned(chunks: Sequence[Chunk], dimension: int) -> list[Chunk]:
    """Return the chunks with cleaned texts, their embeddings checked; not on the event loop."""
    cleaned = [_cleaned(number, chunk) for number, chunk in enumerate(chunks)]
    _check_dimensions(cleaned, dimension)
    return cleaned


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


def _merge(lists: Mapping[str, list[ContextHit]], weights: Mapping[str, float]) -> list[ContextHit]:
    """Return the hits of several vector DBs by fused rank; those of one as they are."""
    if len(lists) == 1:
        return next(iter(lists.values()))
    # NUL is in no id and sorts first, so the order of keys is that of (vector DB id, chunk id).
    keyed = [
        {f"{e.vector_db_id}\0{e.hit.chunk.chunk_id}": e for e in hits} for hits in lists.values()
    ]
    ranked = [[(key, e.hit.score) for key, e in each.items()] for each in keyed]
    fused = merge_ranked(ranked, weights=[weights.get(name, 1.0) for name in lists])
    found = {key: e for each in keyed for key, e in each.items()}
    return [_rescored(found[key], score) for key, score in fused]


def _rescored(each: ContextHit, score: float) -> ContextHit:
    hit = Hit(each.hit.chunk, score, each.hit.explanation)
    return ContextHit(each.vector_db_id, hit, each.rank, each.vector_db_score)


def _chosen(options: RetrievalOptions | None, given: Mapping[str, Any]) -> RetrievalOptions:
    if options is None:
        return options_of(**given)
    if given:
        raise TypeError(f"options and {', '.join(given)} are both given; pass one of them")
    return options


def options_of(
    mode: SearchMode | str | None = None,
    ranker: AnyRanker | dict[str, Any] | None = None,
    **given: Any,
) -> RetrievalOptions:
    """Return single options as one value.

    Raises:
        InvalidRequest: An option is unknown or malformed.
    """
    chosen = None if mode is None else SearchMode.parse(mode)
    try:
        return RetrievalOptions(mode=chosen, ranker=check_ranker(ranker), **given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(map(str, first["loc"]))
        raise InvalidRequest(f"Malformed option {path}: {first['msg']}.", field=path) from None
