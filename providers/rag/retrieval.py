"""Search one or several vector DBs: embed the question, search those together that compare."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from corral.api.checks import MAX_K, AnyRanker, check_k, check_ranker
from corral.api.confidence import EVEN_ODDS, UNKNOWN, Evidence
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import InvalidRequest, MissingDependency, NotFound, ProviderError
from corral.api.hits import QueryChunksResponse, Step
from corral.api.library import Library
from corral.api.options import MaxChunks, RetrievalOptions, checked
from corral.api.rag import RAGQueryConfig
from corral.api.recording import record_chunks, record_question
from corral.api.reranker import ModelRerank, Reranker
from corral.api.spans import TEXT, span
from corral.api.vector_dbs import SearchMode
from corral.providers.rag.corpus import Corpus, corpora, named, owner_of
from corral.providers.rag.listing import empty_question, is_listing, list_chunks
from corral.providers.rag.plan import Plan, SearchPlan, resolve
from corral.providers.rag.questions import embedded as embedded_by
from corral.providers.rag.searching import (
    AbsentReranker,
    Query,
    Searchable,
    most_confident,
    queries_of,
    run_all,
    search,
)
from corral.providers.rag.selection import ContextHit, Selection, select
from corral.providers.rerank import reranker_for

Indexes = Mapping[str, EmbeddingIndex]
"""By vector DB id. An index knows its registration, so that is read once for a request."""


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What a search of one or several vector DBs found.

    Attributes:
        hits: Best first.
        steps: By vector DB id, what each step of its search did.
        notes: What the caller has to know.
        evidence, reason: As of `QueryChunksResponse`; the evidence is that of the corpus with the
            largest confidence.
    """

    hits: list[ContextHit] = field(default_factory=list)
    steps: Mapping[str, list[Step]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    evidence: Evidence = UNKNOWN
    reason: Literal["nothing_relevant"] | None = None


Queries = Mapping[str, Sequence[Query]]
"""By vector DB id, how the question is said there."""

_DEFAULTS = RAGQueryConfig()

SPARE = 4
"""How many times more chunks are found than wanted where a document may only give some of them,
and than before where duplicates have left places free."""


class Retrieval:
    """Searches vector DBs, embedding what has to be embedded.

    Args:
        max_k: Most hits of a query that asks for `auto`.
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
        **given: Any,
    ) -> QueryChunksResponse:
        """Return the k best chunks of one vector DB, as `search_many` does."""
        found = await self.search_many([vector_db_id], query, k=k, options=options, **given)
        hits = [each.hit for each in found.hits]
        steps = found.steps.get(vector_db_id, [])
        return QueryChunksResponse(hits, steps, found.notes, found.evidence, found.reason)

    async def search_many(
        self,
        vector_db_ids: Sequence[str],
        query: str,
        *,
        k: MaxChunks = 5,
        options: RetrievalOptions | None = None,
        weights: Mapping[str, float] | None = None,
        **given: Any,
    ) -> Retrieved:
        """Return the k best chunks of several vector DBs, best first.

        All are searched at once, each as it was registered where the options say nothing, and a
        query is embedded once for each model. Vector DBs whose scores compare are searched as one
        (`corpus.py`): the answer is that of one vector DB with all their chunks. If some do not
        compare, because of another model, metric, mode, ranker or analyzer, a hit's score is
        multiplied by the confidence of the search that found it, 0.5 if that is unknown. Ties are
        ordered by chunk id, then vector DB id.

        Args:
            vector_db_ids: At least one; repetitions are ignored.
            query: The question; blank only if `options.queries` say more, or to list chunks by
                `options.filters` or `options.order_by`, see `list_chunks`.
            k: Most hits, 1 to 1000; `auto`: the root of the number of chunks in all of them,
                rounded up.
            options: How to search. `score_threshold` applies before weights and confidence.
            weights: By vector DB id, what its scores are multiplied by, relative to the largest; 1
                if it is not named.
            given: Single options by name, instead of `options`.

        Raises:
            NotFound: One of the vector DBs does not exist; none was searched.
            InvalidRequest: A bad argument, as `EmbeddingIndex.query` says, or an empty question.
            ProviderError: An embedder, a re-ranker or a backend failed.
        """
        record_question(query, vector_db_ids)
        request = _request(_chosen(options, given), weights or {})

        indexes = await self.open(vector_db_ids)
        while True:
            try:
                plan = await self.plan(indexes, request, k)
                if is_listing(query, request):
                    return _recorded(Retrieved(*await list_chunks(plan, indexes)))
                return _recorded(await self.run(plan, indexes, await self.queries(plan, query)))
            except NotFound as error:
                indexes = await self.reopened(indexes, error)

    async def open(self, vector_db_ids: Sequence[str]) -> Indexes:
        """Return the indexes of these vector DBs, each once.

        Raises:
            NotFound: One of them does not exist.
            InvalidRequest: None is named.
            ProviderError: A backend cannot be reached.
        """
        if not vector_db_ids:
            raise InvalidRequest("No vector DB is named.", field="vector_db_ids")
        names = list(dict.fromkeys(vector_db_ids))
        return dict(zip(names, await run_all(map(self.library.index, names)), strict=True))

    async def reopened(self, indexes: Indexes, error: NotFound) -> Indexes:
        """Return the indexes to search again, where a rebuild has replaced one of these meanwhile.

        Raises:
            NotFound, InvalidRequest, ProviderError: As `open` says; the error itself where none
                was replaced.
        """
        now = await self.open(list(indexes))
        if all(now[i].vector_db.built_at == indexes[i].vector_db.built_at for i in now):
            raise error
        return now

    async def plan(self, indexes: Indexes, request: RAGQueryConfig, k: MaxChunks) -> Plan:
        """Return how a request is served; see `resolve` and, for `auto`, `MaxChunks`."""
        with span("plan"):
            if k == "auto":
                chunks = sum(await run_all(index.count() for index in indexes.values()))
                k = min(max(math.ceil(math.sqrt(chunks)), 1), self._max_k)
            return resolve([index.vector_db for index in indexes.values()], request, check_k(k))

    async def queries(self, plan: Plan, question: str) -> Queries:
        """Return what each vector DB is asked, embedded where it needs that, once for each model.

        Raises:
            InvalidRequest: The question is blank or too long, or only says what must not be found.
            Conflict: A model is not the one that made a vector DB's embeddings.
            ProviderError: An embedder failed.
        """
        texts = [question, *plan.request.queries]
        queries = {name: queries_of(how, texts) for name, how in plan.searches.items()}
        if not all(queries.values()):
            raise empty_question()
        embedders = {
            how.vector_db.embedding_model: await self.library.embedder_of(how.vector_db)
            for how in plan.searches.values()
            if how.embeds
        }
        wanted = {
            (how.vector_db.embedding_model, query.meaning): None
            for name, how in plan.searches.items()
            for query in (queries[name] if how.embeds else ())
        }
        tenant = next(iter(plan.searches.values())).vector_db.tenant
        vectors = await run_all(embedded_by(embedders[m], tenant, text) for m, text in wanted)
        embedded = dict(zip(wanted, vectors, strict=True))
        adapting = {how.vector_db.embedding_model for how in plan.searches.values() if how.reads}
        reads = {(m, text): embedders[m].reads(text) for m, text in wanted if m in adapting}
        return {
            name: [_asked(how, one, embedded, reads) for one in queries[name]]
            for name, how in plan.searches.items()
        }

    async def run(self, plan: Plan, indexes: Indexes, queries: Queries) -> Retrieved:
        """Return the best chunks of all vector DBs, `plan.k` at most."""
        if len(indexes) == 1:
            [(name, index)] = indexes.items()
            how = plan.searches[name]
            found = await self._search(index, index.vector_db.provider_id, how, queries[name])
            hits = [
                ContextHit(name, hit, rank, hit.score) for rank, hit in enumerate(found.hits, 1)
            ]
            return Retrieved(
                hits[: plan.k], {name: found.steps}, found.notes, found.evidence, found.reason
            )
        together = corpora(plan, indexes)
        answers = await run_all(
            self._search(corpus, corpus.provider, how, queries[how.vector_db.identifier])
            for how, corpus in together
        )
        merged = _merged(plan, answers)
        reasons = [answer.reason for answer in answers if answer.reason and not merged]
        notes = [note for _, corpus in together for note in corpus.notes]
        notes += [note for answer in answers for note in answer.notes]
        return Retrieved(
            merged[: plan.k],
            _steps(plan, [corpus for _, corpus in together], answers),
            notes,
            most_confident(answers),
            reasons[0] if reasons else None,
        )

    async def fill(
        self, plan: Plan, indexes: Indexes, queries: Queries
    ) -> tuple[Retrieved, Selection]:
        """Return what is found, and which of it may be in the context.

        Where a document may only give some chunks, more are looked at from the beginning. Where
        duplicates leave places free, the search goes deeper until further hits fill them.
        """
        limit = min(self._max_k, MAX_K)
        first = k = max(plan.k, min(plan.k * SPARE, limit)) if any(plan.caps.values()) else plan.k
        while True:
            found = await self.run(plan.wanting(k), indexes, queries)
            selection = _selected(found.hits, plan)
            filled = len(selection.kept) >= plan.k or not selection.has_duplicates
            if filled or len(found.hits) < k or k >= limit:
                break
            k = min(k * SPARE, limit)
        # Of a deeper search only what fills the places was looked at.
        reach = max([first, *(selection.ranks[each.key] for each in selection.kept)])
        if reach < len(found.hits):
            selection = _selected(found.hits[:reach], plan)
        return found, selection

    async def _search(
        self, index: Searchable, provider: str, how: SearchPlan, queries: Sequence[Query]
    ) -> QueryChunksResponse:
        about = {"provider": provider, "mode": how.mode.value, "k": how.k}
        texts = {} if len(queries) != 1 else {TEXT: queries[0].words}
        with span("search", **about, **texts) as seen:
            found = await search(index, how, queries, await self._reranker(how))
            seen["hits"] = len(found.hits)
        return found

    async def _reranker(self, how: SearchPlan) -> Reranker | None:
        if how.rerank is None:
            return None
        if isinstance(how.rerank, ModelRerank):
            try:
                return await self.library.reranker(how.rerank.model)
            except (ProviderError, MissingDependency) as error:
                if how.rerank.on_error != "degrade":
                    raise
                return AbsentReranker(error)
        return reranker_for(how.rerank, how.vector_db)


def _recorded(found: Retrieved) -> Retrieved:
    """Return hits after their chunks are in the record of the request."""
    for each in found.hits:
        record_chunks(each.vector_db_id, [each.hit.chunk.chunk_id])
    return found


def _asked(
    how: SearchPlan,
    query: Query,
    embedded: Mapping[tuple[str, str], NDArray[np.float32]],
    reads: Mapping[tuple[str, str], float],
) -> Query:
    """Return a query with its embedding, and with how much of it the model reads."""
    key = how.vector_db.embedding_model, query.meaning
    if key not in embedded:
        return query
    return replace(query, embedding=embedded[key], read=reads[key] if how.reads else 1.0)


def _selected(hits: Sequence[ContextHit], plan: Plan) -> Selection:
    return select(hits, plan.k, plan.caps, plan.request.deduplicate)


def _merged(plan: Plan, answers: Sequence[QueryChunksResponse]) -> list[ContextHit]:
    """Return the hits of several corpora, best first; ties by chunk id, then vector DB id.

    A score is multiplied by the weight of its vector DB relative to the largest, and by the
    confidence of its corpus if there are several: fused scores say which of the candidates of one
    search is best, and confidence how good these are.
    """
    found: list[ContextHit] = []
    ranks = Counter[str]()
    for answer in answers:
        confidence = 1.0
        if len(answers) > 1:
            confidence = EVEN_ODDS if answer.confidence is None else answer.confidence
        for hit in answer.hits:
            chunk_id, name = owner_of(hit.chunk.chunk_id)
            ranks[name] += 1
            score = hit.score * confidence * plan.weight(name)
            whole = replace(hit, chunk=named(hit.chunk, chunk_id), score=score)
            found.append(ContextHit(name, whole, ranks[name], hit.score))
    if (
        len(answers) == 1
    ):  # whose order tells more than scores: a re-ranker leaves ties as they were
        return sorted(found, key=lambda each: -each.hit.score)
    return sorted(found, key=lambda each: (-each.hit.score, each.hit.chunk.chunk_id, each.key))


def _steps(
    plan: Plan, together: Sequence[Corpus], answers: Sequence[QueryChunksResponse]
) -> dict[str, list[Step]]:
    """Return by vector DB id, in the order of the request, the steps of the search it was part of.

    Those of a corpus of several vector DBs count the candidates of all.
    """
    steps: dict[str, list[Step]] = {name: [] for name in plan.searches}
    for corpus, answer in zip(together, answers, strict=True):
        note = f", {len(corpus.members)} vector DBs as one" if len(corpus.members) > 1 else ""
        told = [replace(step, detail=step.detail + note) for step in answer.steps]
        steps.update(dict.fromkeys(corpus.members, told))
    return steps


def _request(options: RetrievalOptions, weights: Mapping[str, float]) -> RAGQueryConfig:
    """Return options of a search alone as a request, whose context options are the defaults."""
    chosen = {name: getattr(options, name) for name in RetrievalOptions.model_fields}
    return _DEFAULTS.model_copy(update={**chosen, "vector_db_weights": dict(weights)})


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
    return checked(RetrievalOptions, {"mode": chosen, "ranker": check_ranker(ranker), **given})
