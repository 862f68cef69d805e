"""Search one or several vector DBs: open them, plan, embed the question, search, merge the hits.

    open -> plan -> embed -> `ranking.py`, for each vector DB or group of comparable vector DBs
    -> merge by confidence -> for a context: select, read adjacent chunks

A request without a question lists chunks instead (`listing.py`). If a rebuild replaces an index
during the search, `Retrieval._answer` opens the new index and starts again at the plan.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from corral.api.checks import MAX_K
from corral.api.confidence import UNKNOWN, Evidence
from corral.api.embedder import Embedder
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import (
    CorralError,
    InvalidRequest,
    MissingDependency,
    NotFound,
    ProviderError,
)
from corral.api.filters import AutoFilters
from corral.api.hits import QueryChunksResponse, Step
from corral.api.library import Library
from corral.api.options import MaxChunks, RetrievalOptions
from corral.api.rag import RAGQueryConfig
from corral.api.recording import record_chunks, record_question
from corral.api.reranker import ModelRerank, Reranker
from corral.api.spans import TEXT, span
from corral.providers.rag.auto_filters import Proposal, propose
from corral.providers.rag.corpus import corpora, merged, steps_of
from corral.providers.rag.listing import list_chunks
from corral.providers.rag.passages import Neighbors, adjacent
from corral.providers.rag.plan import (
    ContextPlan,
    Plan,
    SearchPlan,
    plan_context,
    plan_search,
    request_of,
)
from corral.providers.rag.question_cache import Embedding, QuestionCache
from corral.providers.rag.ranking import Searchable, most_confident, rank
from corral.providers.rag.selection import ContextHit, Selection, select
from corral.providers.rag.tasks import run_all
from corral.providers.rerank import reranker_for

P = TypeVar("P", bound=Plan)
T = TypeVar("T")

Indexes = Mapping[str, EmbeddingIndex]
"""Indexes by vector DB id. Each holds its registration, so a request reads it only once."""

SPARE = 4
"""Factor of k in the first search if documents are capped, and in each search that duplicates
make necessary."""


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The hits of one or several vector DBs.

    Attributes:
        hits: Best first.
        steps: By vector DB id, the steps of its search.
        notes: Messages for the caller.
        evidence: The evidence of the search with the largest confidence.
        reason: As in `QueryChunksResponse`.
    """

    hits: list[ContextHit] = field(default_factory=list)
    steps: Mapping[str, list[Step]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    evidence: Evidence = UNKNOWN
    reason: Literal["nothing_relevant"] | None = None


@dataclass(frozen=True, slots=True)
class ContextMaterial:
    """Everything that a context is assembled from.

    Attributes:
        plan: The plan of the request.
        retrieved: All hits.
        selection: The hits that can be in the context.
        neighbors: The chunks adjacent to the selected ones, by vector DB id.
    """

    plan: ContextPlan
    retrieved: Retrieved
    selection: Selection
    neighbors: Neighbors


class Retrieval:
    """Embeds questions and searches vector DBs.

    Args:
        library: The vector DBs and models; usually a `Stack`.
        max_k: Maximum number of hits of a query with `k="auto"`.
    """

    def __init__(self, library: Library, max_k: int = MAX_K) -> None:
        self.library = library
        self._max_k = max_k

    async def search(
        self,
        vector_db_id: str,
        query: str,
        *,
        k: MaxChunks = 5,
        options: RetrievalOptions | None = None,
        **single_options: Any,
    ) -> QueryChunksResponse:
        """Return the k best chunks of one vector DB, as `search_many` does."""
        answer = await self.search_many(
            [vector_db_id], query, k=k, options=options, **single_options
        )
        return QueryChunksResponse(
            [each.hit for each in answer.hits],
            answer.steps.get(vector_db_id, []),
            answer.notes,
            answer.evidence,
            answer.reason,
        )

    async def search_many(
        self,
        vector_db_ids: Sequence[str],
        query: str,
        *,
        k: MaxChunks = 5,
        options: RetrievalOptions | None = None,
        weights: Mapping[str, float] | None = None,
        **single_options: Any,
    ) -> Retrieved:
        """Return the k best chunks of several vector DBs, best first.

        All vector DBs are searched at once. Options that are not given come from the registration.
        A query is embedded once per model. Vector DBs with comparable scores are searched as one
        (`corpus.py`), with the same answer as from one vector DB with all their chunks. If some are
        not comparable, because of another model, metric, mode, ranker or analyzer, the score of a
        hit is multiplied by the confidence of its search (0.5 if unknown). Ties are ordered by
        chunk id, then vector DB id.

        Args:
            vector_db_ids: At least one; repetitions are ignored.
            query: The question; blank only if `options.queries` has other wordings, or to list
                chunks by `options.filters` or `options.order_by`; see `list_chunks`.
            k: Maximum number of hits, 1 to 1000. `auto` is the square root of the total number of
                chunks, rounded up.
            options: The search options. `score_threshold` applies before weights and confidence.
            weights: By vector DB id, the factor of its scores, relative to the largest (default 1).
            single_options: Options by name, instead of `options`.

        Raises:
            NotFound: One of the vector DBs does not exist. No vector DB was searched.
            InvalidRequest: A bad argument (see `EmbeddingIndex.query`), or an empty question.
            ProviderError: An embedder, a re-ranker or a backend failed.
        """
        record_question(query, vector_db_ids)
        request = request_of(options, weights, single_options)

        async def plan(indexes: Indexes) -> Plan:
            return await plan_search(indexes, query, request, k, self._max_k)

        retrieved = await self._answer(vector_db_ids, plan, self._search_all)
        for each in retrieved.hits:
            record_chunks(each.vector_db_id, [each.hit.chunk.chunk_id])
        return retrieved

    async def search_for_context(
        self, content: str | Sequence[str], vector_db_ids: Sequence[str], request: RAGQueryConfig
    ) -> ContextMaterial:
        """Search for a context, and return everything that it is assembled from.

        Args:
            content: The question. The query generator joins several texts, or rewrites them.
            vector_db_ids: At least one; repetitions are ignored.
            request: The options for searching and selecting.

        Raises:
            NotFound, InvalidRequest, ProviderError: As `search_many` and `plan_context` say.
        """

        async def plan(indexes: Indexes) -> ContextPlan:
            return await plan_context(self.library, indexes, content, request, self._max_k)

        return await self._answer(vector_db_ids, plan, self._search_until_full)

    async def _answer(
        self,
        vector_db_ids: Sequence[str],
        plan: Callable[[Indexes], Awaitable[P]],
        search: Callable[[P, Indexes], Awaitable[T]],
    ) -> T:
        """Open, plan, embed and search. No other function repeats a request.

        A rebuild deletes the index that it replaces, so calls to the old index raise NotFound. The
        request then starts again at the plan, with the new index. If no index has changed, the
        vector DB was deleted, and the error is raised.
        """
        indexes = await self._open_indexes(vector_db_ids)
        while True:
            try:
                planned = await self._with_proposals(await plan(indexes), indexes)
                return await search(await self._embed(planned), indexes)
            except NotFound:
                current = await self._open_indexes(list(indexes))
                if _built_at(current) == _built_at(indexes):
                    raise
                indexes = current

    async def _open_indexes(self, vector_db_ids: Sequence[str]) -> Indexes:
        """Return the indexes of these vector DBs, each once.

        Raises:
            NotFound: One of them does not exist.
            InvalidRequest: `vector_db_ids` is empty.
            ProviderError: A backend cannot be reached.
        """
        if not vector_db_ids:
            raise InvalidRequest("No vector DB is named.", field="vector_db_ids")
        names = list(dict.fromkeys(vector_db_ids))
        return dict(zip(names, await run_all(map(self.library.index, names)), strict=True))

    async def _with_proposals(self, plan: P, indexes: Indexes) -> P:
        """Return the plan with the filters that language models propose from its question.

        Vector DBs with the same `auto_filters` get the same filter.

        Raises:
            InvalidRequest: A language model is not configured.
        """
        asking: dict[AutoFilters, list[str]] = {}
        for name, how in plan.searches.items():
            if how.vector_db.auto_filters != "none" and how.queries:
                asking.setdefault(how.vector_db.auto_filters, []).append(name)
        if not asking:
            return plan
        question = plan.question.text
        if not question.strip():
            question = next(iter(plan.searches.values())).queries[0].text
        proposed = await run_all(
            propose(question, auto, [indexes[name] for name in names], self.library)
            for auto, names in asking.items()
        )
        groups = zip(asking.values(), proposed, strict=True)
        return plan.with_proposals({name: each for names, each in groups for name in names})

    async def _embed(self, plan: P) -> P:
        """Return the plan with embedded queries. Each text is embedded once per model.

        Queries that have an embedding, from the request, keep it.

        Raises:
            Conflict: The embeddings of a vector DB were made with another version of its model.
            ProviderError: An embedder failed.
        """
        embedding = [how for how in plan.searches.values() if how.lacks_embeddings]
        if not embedding:
            return plan
        embedders = {
            how.vector_db.embedding_model: await self.library.embedder_of(how.vector_db)
            for how in embedding
        }
        keys = dict.fromkeys(key for how in embedding for key in _embedding_keys(how))
        tenant = embedding[0].vector_db.tenant
        rows = await run_all(embed_question(embedders[m], tenant, text) for m, text in keys)
        embeddings = dict(zip(keys, rows, strict=True))
        covered = {key for how in embedding if how.uses_coverage for key in _embedding_keys(how)}
        coverages = {(m, text): embedders[m].reads(text) for m, text in covered}
        searches = {}
        for name, how in plan.searches.items():
            queries = how.queries
            if how.lacks_embeddings:
                queries = tuple(
                    replace(
                        query,
                        embedding=embeddings[key],
                        token_coverage=coverages[key] if how.uses_coverage else 1.0,
                    )
                    for key, query in zip(_embedding_keys(how), queries, strict=True)
                )
            searches[name] = replace(how, queries=queries)
        return replace(plan, searches=searches)

    async def _search_all(self, plan: Plan, indexes: Indexes) -> Retrieved:
        """Return the best chunks of all vector DBs, at most `plan.k`.

        Search again without the proposed filters if they leave no hit.
        """
        if plan.lists:
            return Retrieved(*await list_chunks(plan, indexes))
        retrieved = await self._search_each(plan, indexes)
        if plan.is_narrowed and not retrieved.hits:
            dropped = {name: each.dropped() for name, each in plan.proposals.items()}
            plan = plan.with_proposals(dropped)
            retrieved = await self._search_each(plan, indexes)
        return _noted(retrieved, plan.proposals)

    async def _search_each(self, plan: Plan, indexes: Indexes) -> Retrieved:
        """Return the best chunks as `_search_all` does, with the filters of the plan."""
        if len(indexes) == 1:
            [(name, index)] = indexes.items()
            answer = await self._search(index, index.vector_db.provider_id, plan.searches[name])
            hits = [
                ContextHit(name, hit, rank, hit.score)
                for rank, hit in enumerate(answer.hits[: plan.k], 1)
            ]
            return Retrieved(
                hits, {name: answer.steps}, answer.notes, answer.evidence, answer.reason
            )
        groups = corpora(plan, indexes)
        answers = await run_all(
            self._search(corpus, corpus.provider, how) for how, corpus in groups
        )
        hits = merged(plan, answers)
        reasons = [answer.reason for answer in answers if answer.reason and not hits]
        notes = [note for _, corpus in groups for note in corpus.notes]
        notes += [note for answer in answers for note in answer.notes]
        return Retrieved(
            hits[: plan.k],
            steps_of(plan, [corpus for _, corpus in groups], answers),
            notes,
            most_confident(answers),
            reasons[0] if reasons else None,
        )

    async def _search_until_full(self, plan: ContextPlan, indexes: Indexes) -> ContextMaterial:
        """Return the hits, the selection for the context, and the chunks adjacent to it.

        Search deeper while duplicates leave places free. If documents are capped, or the selection
        is spread over documents, the first search is deeper already. A list goes from `plan.k` to
        the limit at once.
        """
        limit = MAX_K if plan.lists else min(self._max_k, MAX_K)
        first = k = plan.k
        if any(plan.caps.values()) and not plan.lists:
            first = k = max(plan.k, min(plan.k * SPARE, limit))
        else:
            k = max(plan.k, min(plan.spread_hits, limit))
        while True:
            retrieved = await self._search_all(plan.with_k(k), indexes)
            selection = _select(retrieved.hits, plan)
            is_full = len(selection.hits) >= plan.k
            if is_full or not (selection.has_duplicates or plan.lists):
                break
            if len(retrieved.hits) < k or k >= limit:
                break
            k = limit if plan.lists else min(k * SPARE, limit)
        # Ignore hits beyond the last one that a deeper search was needed for.
        reach = max([first, *(selection.ranks[each.key] for each in selection.hits)])
        selection = selection.within(reach)
        neighbors = await _neighbors(plan, indexes, selection)
        return ContextMaterial(plan, retrieved, selection, neighbors)

    async def _search(
        self, index: Searchable, provider: str, how: SearchPlan
    ) -> QueryChunksResponse:
        """Return the ranked hits of one vector DB, or of several as one."""
        attributes = {"provider": provider, "mode": how.mode.value, "k": how.k}
        texts = {} if len(how.queries) != 1 else {TEXT: how.queries[0].text}
        with span("search", **attributes, **texts) as traced:
            answer = await rank(index, how, await self._reranker(how))
            traced["hits"] = len(answer.hits)
        return answer

    async def _reranker(self, how: SearchPlan) -> Reranker | CorralError | None:
        """Return the re-ranker, or the error of loading it if the search can go on without it."""
        if not isinstance(how.rerank, ModelRerank):
            return None if how.rerank is None else reranker_for(how.rerank, how.vector_db)
        try:
            return await self.library.reranker(how.rerank.model)
        except (ProviderError, MissingDependency) as error:
            if how.rerank.on_error != "degrade":
                raise
            return error


def _noted(retrieved: Retrieved, proposals: Mapping[str, Proposal]) -> Retrieved:
    """Return the hits with the notes and the steps of the proposed filters."""
    notes = dict.fromkeys(each.note for each in proposals.values() if each.note)
    steps = {name: [each.step] for name, each in proposals.items()}
    steps = {name: [*steps.get(name, []), *after] for name, after in retrieved.steps.items()}
    return replace(retrieved, steps=steps, notes=[*notes, *retrieved.notes])


def _built_at(indexes: Indexes) -> dict[str, float]:
    return {name: index.vector_db.built_at for name, index in indexes.items()}


def _embedding_keys(how: SearchPlan) -> list[tuple[str, str]]:
    """Return the (model, text) pairs that a search needs embeddings for."""
    return [(how.vector_db.embedding_model, query.embedded_text) for query in how.queries]


def _select(hits: Sequence[ContextHit], plan: Plan) -> Selection:
    deduplicate, window = plan.request.deduplicate, plan.spread_hits
    return select(hits, plan.k, plan.caps, deduplicate, window=window)


async def _neighbors(plan: Plan, indexes: Indexes, selection: Selection) -> Neighbors:
    """Return the chunks adjacent to the selected ones, if their vector DB expands its hits."""
    names = {each.vector_db_id for each in selection.hits}
    expanded = sorted(name for name in names if plan.searches[name].vector_db.expand)
    chunks = await run_all(
        adjacent(
            indexes[name],
            [each.hit.chunk for each in selection.hits if each.vector_db_id == name],
            plan.searches[name].vector_db.expand,
            plan.request.filters,
        )
        for name in expanded
    )
    return dict(zip(expanded, chunks, strict=True))


_caches: WeakKeyDictionary[Embedder, QuestionCache] = WeakKeyDictionary()


async def embed_question(embedder: Embedder, tenant: str, text: str) -> Embedding:
    """Return the embedding of a question, shape (dimension,), read-only.

    An embedding depends only on the text and the model, so a cache hit says nothing about stored
    chunks. Tenants do not share entries, so the response time says nothing about the questions of
    another tenant.

    Args:
        embedder: Each embedder has its own cache, which lives as long as the embedder.
        tenant: The tenant of the vector DB.
        text: The question.

    Raises:
        ProviderError: See `Embedder.embed_query`. The cache is then unchanged.
    """
    cache = _caches.get(embedder) or _caches.setdefault(embedder, QuestionCache())
    return await cache.of(_digest(tenant, text), partial(_embed, embedder, text))


async def _embed(embedder: Embedder, text: str) -> Embedding:
    with span("embed", provider=embedder.info.model, text=text):
        # Copy the row, which may keep its whole batch in memory. Callers share it: read-only.
        embedding = np.array(await embedder.embed_query(text))
    embedding.flags.writeable = False
    return embedding


def _digest(tenant: str, text: str) -> bytes:
    key = f"{tenant}\0{text}".encode("utf-8", "surrogatepass")
    return blake2b(key, digest_size=16).digest()
