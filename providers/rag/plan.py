"""The plan of a query: the options of all steps, decided and checked once.

The request wins over the registration, and the registration over the default. The question is
parsed here as well, so later steps only read checked values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from corral.api.checks import AnyRanker, check_k, check_query_text, check_ranker
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import InvalidRequest
from corral.api.filters import Filter
from corral.api.invisible import clean_text
from corral.api.library import Library
from corral.api.options import MaxChunks, RetrievalOptions, checked
from corral.api.rag import LLMQueryGenerator, RAGQueryConfig
from corral.api.reranker import (
    DEFAULT_RERANK_CANDIDATES,
    BM25Rerank,
    MMRRerank,
    ModelRerank,
    NoRerank,
)
from corral.api.spans import span
from corral.api.vector_dbs import ContextDefaults, SearchDefaults, SearchMode, VectorDB
from corral.providers.rag.auto_filters import Proposal
from corral.providers.rag.query_generator import Question, generate_query, plain_question
from corral.providers.rag.query_syntax import Checker, parse
from corral.providers.rag.tasks import run_all
from corral.providers.text.tokens import EMBEDDER, Tokenizer, own_tokenizer, tokenizer

P = TypeVar("P", bound="Plan")

SPREAD_FACTOR = 4
"""Factor of k: the number of hits to choose a context from."""

MAX_SPREAD = 50
"""Maximum of it: the legs of the default ranker have as many candidates as for fewer hits."""

_BLANK = Question("", "")
_DEFAULTS = RAGQueryConfig()
_REGISTERED = (*SearchDefaults.model_fields, *ContextDefaults.model_fields)


@dataclass(frozen=True, slots=True)
class Query:
    """One wording of a question, checked and parsed for one vector DB.

    Attributes:
        text: The text that the keyword leg searches.
        embedded_text: The text that is embedded.
        checker: Checks chunks for phrases and excluded words; None if every chunk passes.
        embedding: The embedding of `embedded_text`, shape (dimension,); None if no step of the
            search uses it.
        token_coverage: Share of `embedded_text` that the embedding model tokenizes, in [0, 1].
    """

    text: str
    embedded_text: str
    checker: Checker | None = None
    embedding: NDArray[np.float32] | None = None
    token_coverage: float = 1.0


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The search plan of one vector DB.

    Attributes:
        vector_db: The registration, overridden by the options of the request.
        k: Maximum number of hits.
        rerank: None for no re-ranking.
        weight: Factor of the vector DB's scores; only its ratio to the largest weight matters.
        queries: The wordings of the question; empty if the request lists chunks.
    """

    vector_db: VectorDB
    k: int
    ranker: AnyRanker
    rerank: MMRRerank | BM25Rerank | ModelRerank | None
    filters: Filter | None
    score_threshold: float
    include_embeddings: bool
    explain: bool
    weight: float
    queries: tuple[Query, ...] = ()

    @property
    def mode(self) -> SearchMode:
        """The search mode."""
        return self.vector_db.search_mode

    @property
    def candidates(self) -> int:
        """The number of chunks to retrieve: k, or more for a step that reorders them."""
        reordered = self.rerank.candidates if self.rerank else 0
        if self.vector_db.recency is not None and self.vector_db.recency.weight > 0:
            reordered = max(reordered, DEFAULT_RERANK_CANDIDATES)
        return max(self.k, reordered)

    @property
    def embeds(self) -> bool:
        """True if a step of the search reads the embeddings of the queries."""
        by_embedding = isinstance(self.rerank, MMRRerank) and self.rerank.relevance != "bm25"
        return self.mode is not SearchMode.KEYWORD or by_embedding

    @property
    def lacks_embeddings(self) -> bool:
        """True if a model has to embed the queries."""
        return self.embeds and any(query.embedding is None for query in self.queries)

    @property
    def uses_coverage(self) -> bool:
        """True if the fusion weights depend on the token coverage of the query."""
        return self.mode is SearchMode.HYBRID and self.ranker.adapts


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a request.

    Attributes:
        searches: By vector DB id, in the order of the request.
        k: Maximum number of hits, in the answer and in its context.
        request: The request, for options that registrations do not have, such as the budget.
        tokenizer_model: The embedding model with the tokenizer that counts the budget; None if the
            request names a tokenizer.
        question: The question and the query that is searched; blank if chunks are listed.
        proposals: By vector DB id, the filter that a language model proposed, if it was asked.
    """

    searches: Mapping[str, SearchPlan]
    k: int
    request: RAGQueryConfig
    tokenizer_model: str | None
    question: Question = _BLANK
    proposals: Mapping[str, Proposal] = field(default_factory=dict)

    @property
    def lists(self) -> bool:
        """True if the request has no question and lists chunks by `filters` or `order_by`."""
        return not any(each.queries for each in self.searches.values())

    @property
    def caps(self) -> dict[str, int | None]:
        """Maximum number of chunks per document, by vector DB id; None for no limit."""
        return {
            name: each.vector_db.max_chunks_per_document for name, each in self.searches.items()
        }

    @property
    def spread_hits(self) -> int:
        """Number of hits to choose the k of a context from, so that documents alternate.

        It is k for a list, MMR or a cutoff, which choose by other rules. A re-ranking model reads
        no more candidates for it.
        """
        searches = self.searches.values()
        others = any(
            isinstance(each.rerank, MMRRerank) or each.vector_db.cutoff != "none"
            for each in searches
        )
        if self.lists or others:
            return self.k
        models = (each.rerank for each in searches)
        read = [each.candidates for each in models if isinstance(each, ModelRerank)]
        return max(self.k, min([self.k * SPREAD_FACTOR, MAX_SPREAD, *read]))

    def weight(self, vector_db_id: str) -> float:
        """Return the weight of a vector DB, divided by the largest weight of the plan."""
        return self.searches[vector_db_id].weight / max(
            how.weight for how in self.searches.values()
        )

    def with_k(self, k: int) -> Self:
        """Return the plan with another number of hits."""
        searches = {name: replace(each, k=k) for name, each in self.searches.items()}
        return replace(self, searches=searches, k=k)

    @property
    def is_narrowed(self) -> bool:
        """True if a proposed filter narrows a search."""
        return any(each.filter is not None for each in self.proposals.values())

    def with_proposals(self, proposals: Mapping[str, Proposal]) -> Self:
        """Return the plan with the filters of proposals, by vector DB id, besides its own."""
        own = self.request.filters
        searches = {
            name: replace(each, filters=proposals[name].with_own(own) if name in proposals else own)
            for name, each in self.searches.items()
        }
        return replace(self, searches=searches, proposals=proposals)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPlan(Plan):
    """The plan of a request for a context.

    Attributes:
        tokenizer: Counts the budget.
    """

    tokenizer: Tokenizer


async def plan_search(
    indexes: Mapping[str, EmbeddingIndex],
    question: str,
    request: RAGQueryConfig,
    k: MaxChunks,
    max_k: int,
) -> Plan:
    """Return the plan of a search, with its question parsed for each vector DB.

    Args:
        indexes: By vector DB id; each index has its registration.
        question: May be blank if `request.queries` has other wordings, or to list chunks.
        request: The options.
        k: Maximum number of hits. `auto` is the square root of the number of chunks, rounded up, at
            most `max_k`.
        max_k: Upper limit of `auto`.

    Raises:
        InvalidRequest: See `resolve`; the question is blank, too long, or has only exclusions;
            or the request has both a question and `order_by`.
        ProviderError: A backend failed.
    """
    plan = await _resolved(indexes, request, k, max_k)
    return _with_question(plan, Question(question, question))


async def plan_context(
    library: Library,
    indexes: Mapping[str, EmbeddingIndex],
    content: str | Sequence[str],
    request: RAGQueryConfig,
    max_k: int,
) -> ContextPlan:
    """Return the plan of a context of `request.max_chunks` hits, as `plan_search` does.

    Args:
        library: The models.
        content: The question. The query generator joins several texts, or rewrites them.

    Raises:
        InvalidRequest: See `plan_search`; the tokenizer is unknown; no query can be generated.
        ProviderError: A backend or a language model failed.
    """
    plan = await _resolved(indexes, request, request.max_chunks, max_k)
    tokens = await _tokenizer(library, plan)
    plan = ContextPlan(plan.searches, plan.k, request, plan.tokenizer_model, tokenizer=tokens)
    generator = request.query_generator_config
    if isinstance(generator, LLMQueryGenerator):
        return _with_question(plan, await generate_query(content, generator, library))
    return _with_question(plan, plain_question(content, generator.separator))


async def _resolved(
    indexes: Mapping[str, EmbeddingIndex], request: RAGQueryConfig, k: MaxChunks, max_k: int
) -> Plan:
    """Return the plan of a request without its question; k is a number, even for `auto`."""
    with span("plan"):
        if k == "auto":
            chunks = sum(await run_all(index.count() for index in indexes.values()))
            k = min(max(math.ceil(math.sqrt(chunks)), 1), max_k)
        return resolve([index.vector_db for index in indexes.values()], request, check_k(k))


def _with_question(plan: P, question: Question) -> P:
    """Return the plan with the queries of a question; it has none if the request lists chunks."""
    request = plan.request
    texts = _texts(question.query, request)
    if not texts and request.embedding is not None:
        texts = [""]
    if not texts and (request.order_by is not None or request.filters is not None):
        return replace(plan, question=question)
    if texts and request.order_by is not None:
        raise InvalidRequest(
            "order_by is for requests without a question; hits of a question are in the order of "
            "their scores.",
            hint="Leave out order_by, or leave the question empty.",
            field="order_by",
        )
    searches = {name: _with_queries(how, texts) for name, how in plan.searches.items()}
    if not all(how.queries for how in searches.values()):
        raise empty_question()
    if request.embedding is not None:
        searches = _with_embedding(searches, request.embedding)
    return replace(plan, searches=searches, question=question)


async def _tokenizer(library: Library, plan: Plan) -> Tokenizer:
    """Return the tokenizer that counts the budget."""
    if plan.tokenizer_model is None:
        return tokenizer(plan.request.tokenizer)
    tokens = (await library.embedder(plan.tokenizer_model)).tokenizer
    if tokens is None:
        raise _no_tokenizer(f"The embedding model {plan.tokenizer_model!r} has no tokenizer here.")
    return own_tokenizer(tokens)


def resolve(registrations: Sequence[VectorDB], request: RAGQueryConfig, k: int) -> Plan:
    """Return the plan of a request without a question. Only this function decides precedence.

    Args:
        registrations: The vector DBs of the request, each once.
        request: The options of the request.
        k: Maximum number of hits: `max_chunks`, or the number computed for `auto`.

    Raises:
        InvalidRequest: `vector_db_weights` names a vector DB that is not searched, or the embedding
            model's tokenizer should count the budget and the vector DBs have several models.
    """
    names = [each.identifier for each in registrations]
    for name in request.vector_db_weights:
        if name not in names:
            raise InvalidRequest(
                f"vector_db_weights names {name!r}, which is not searched.",
                hint=f"Weights are for the vector DBs of the request: {names}.",
                field="query_config.vector_db_weights",
            )
    searches = {each.identifier: _search(each, request, k) for each in registrations}
    return Plan(searches, k, request, _tokenizer_model(registrations, request))


def request_of(
    options: RetrievalOptions | None,
    weights: Mapping[str, float] | None,
    single_options: Mapping[str, Any],
) -> RAGQueryConfig:
    """Return the options of a search as a request, with default options for the context.

    Args:
        options: The options of the search; None to read `single_options`.
        weights: By vector DB id.
        single_options: Options by name, instead of `options`.

    Raises:
        InvalidRequest: An option is unknown or malformed.
        TypeError: Both `options` and single options are given.
    """
    if options is None:
        mode, ranker = single_options.get("mode"), single_options.get("ranker")
        parsed = {
            "mode": None if mode is None else SearchMode.parse(mode),
            "ranker": check_ranker(ranker),
        }
        options = checked(RetrievalOptions, {**single_options, **parsed})
    elif single_options:
        raise TypeError(f"options and {', '.join(single_options)} are both given; pass one of them")
    fields = {name: getattr(options, name) for name in RetrievalOptions.model_fields}
    return _DEFAULTS.model_copy(update={**fields, "vector_db_weights": dict(weights or {})})


def is_blank(question: str, options: RetrievalOptions) -> bool:
    """Return True if a question has no visible character, no other wording, and no embedding."""
    return options.embedding is None and not _texts(question, options)


def empty_question() -> InvalidRequest:
    """Return the refusal of a request without a question."""
    return InvalidRequest(
        "The question is empty: it has no visible character.",
        hint="Send a question or keywords. To retrieve by filters alone, POST them to "
        "/v1/vector-io/list, or send an empty question with filters and order_by.",
        field="query",
    )


def _no_tokenizer(message: str) -> InvalidRequest:
    return InvalidRequest(
        message, hint="Use the tokenizer cl100k, o200k or bytes.", field="query_config.tokenizer"
    )


def _texts(question: str, options: RetrievalOptions) -> list[str]:
    """Return the wordings of a question that have a visible character, checked and cleaned."""
    texts = [clean_text(check_query_text(text)) for text in (question, *options.queries)]
    return [text for text in texts if text.strip()]


def _search(vector_db: VectorDB, request: RAGQueryConfig, k: int) -> SearchPlan:
    settings = _overridden(vector_db, request)
    rerank = settings.rerank
    # `prepare` only matters when chunks are stored. Dropped here, it cannot split a corpus.
    if isinstance(rerank, ModelRerank):
        rerank = rerank.model_copy(update={"prepare": False})
    return SearchPlan(
        vector_db=settings,
        k=k,
        ranker=settings.ranker if request.ranker is None else request.ranker,
        rerank=None if isinstance(rerank, NoRerank) else rerank,
        filters=request.filters,
        score_threshold=request.score_threshold or 0.0,
        include_embeddings=request.include_embeddings,
        explain=request.explain,
        weight=request.vector_db_weights.get(vector_db.identifier, 1.0),
    )


def _overridden(vector_db: VectorDB, request: RAGQueryConfig) -> VectorDB:
    """Return a registration, overridden by each option of the request that is not null."""
    requested = {name: getattr(request, name) for name in _REGISTERED}
    requested |= {"search_mode": request.mode, "rerank": request.rerank}
    given = {name: value for name, value in requested.items() if value is not None}
    if given.get("search_mode", vector_db.search_mode) is SearchMode.VECTOR:
        given["fuzzy"] = False  # Vector search matches no words.
    return vector_db.model_copy(update=given)


def _with_queries(how: SearchPlan, texts: Sequence[str]) -> SearchPlan:
    """Return the plan with a query for each wording; repeated plain wordings are dropped."""
    if how.vector_db.query_syntax != "web":
        return replace(how, queries=tuple(Query(text, text) for text in dict.fromkeys(texts)))
    return replace(how, queries=tuple(_web_query(text, how.vector_db) for text in texts))


def _with_embedding(
    searches: Mapping[str, SearchPlan], embedding: Sequence[float]
) -> dict[str, SearchPlan]:
    """Return the plans with the request's embedding of the question.

    Raises:
        InvalidRequest: There are several wordings, or vector DBs of several models.
    """
    models = sorted({how.vector_db.embedding_model for how in searches.values()})
    if len(models) > 1 or any(len(how.queries) > 1 for how in searches.values()):
        raise InvalidRequest(
            "embedding is the embedding of one question by one model; the request has several "
            f"{'models' if len(models) > 1 else 'wordings of the question'}.",
            hint="Send a request for each.",
            field="embedding",
        )
    row = np.array(embedding, np.float32)
    return {
        name: replace(how, queries=(replace(how.queries[0], embedding=row),))
        for name, how in searches.items()
    }


def _web_query(text: str, vector_db: VectorDB) -> Query:
    parsed = parse(text)
    checker = Checker(parsed, vector_db.language, vector_db.field_weights)
    return Query(parsed.text, parsed.embedded_text, checker if parsed.restricts else None)


def _tokenizer_model(registrations: Sequence[VectorDB], request: RAGQueryConfig) -> str | None:
    if request.tokenizer != EMBEDDER:
        return None
    models = list(dict.fromkeys(each.embedding_model for each in registrations))
    if len(models) != 1:
        raise _no_tokenizer(f"The vector DBs have {len(models)} embedding models: {models}.")
    return models[0]
