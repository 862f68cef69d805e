"""The plan of a query: what each step does, decided once.

The request wins over the registration, the registration over the default. Every step below reads
the plan and asks neither of them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from corral.api.checks import AnyRanker
from corral.api.errors import InvalidRequest
from corral.api.filters import Filter
from corral.api.rag import RAGQueryConfig
from corral.api.reranker import BM25Rerank, MMRRerank, ModelRerank, NoRerank
from corral.api.vector_dbs import Cutoff, QuerySyntax, SearchMode, VectorDB
from corral.providers.text.tokens import EMBEDDER

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """How one vector DB is searched, and what of it may be in a context.

    Attributes:
        k: How many hits are wanted.
        rerank: None for no re-ranking.
        weight: What the scores of the vector DB are multiplied by, relative to the largest.
        max_chunks_per_document: Most chunks of one document in a context; None for no bound.
        expand: How many adjacent chunks join a chunk in a context, on each side.
    """

    vector_db: VectorDB
    k: int
    mode: SearchMode
    ranker: AnyRanker
    rerank: MMRRerank | BM25Rerank | ModelRerank | None
    cutoff: Cutoff
    query_syntax: QuerySyntax
    fuzzy: bool
    filters: Filter | None
    score_threshold: float
    min_confidence: float
    include_embeddings: bool
    explain: bool
    weight: float
    max_chunks_per_document: int | None
    expand: int

    @property
    def candidates(self) -> int:
        """How many chunks are retrieved: those wanted, or more where they are re-ranked."""
        return max(self.k, self.rerank.candidates if self.rerank else 0)

    @property
    def embeds(self) -> bool:
        """Whether the queries have to be embedded."""
        by_meaning = isinstance(self.rerank, MMRRerank) and self.rerank.relevance != "bm25"
        return self.mode is not SearchMode.KEYWORD or by_meaning

    @property
    def reads(self) -> bool:
        """Whether fusion has to know how much of a query the embedding model reads."""
        return self.mode is SearchMode.HYBRID and self.ranker.adapts


@dataclass(frozen=True, slots=True)
class Plan:
    """How a request is served.

    Attributes:
        searches: By vector DB id, in the order of the request.
        k: How many hits are wanted, in the answer and in its context.
        request: For the options that no registration has, such as the budget.
        tokenizer_model: The embedding model whose tokenizer counts the budget; None where the
            request names a tokenizer.
    """

    searches: Mapping[str, SearchPlan]
    k: int
    request: RAGQueryConfig
    tokenizer_model: str | None

    @property
    def caps(self) -> dict[str, int | None]:
        """By vector DB id, the most chunks of one document; None for no bound."""
        return {name: each.max_chunks_per_document for name, each in self.searches.items()}

    def weight(self, vector_db_id: str) -> float:
        """Return the weight of a vector DB, divided by the largest of all."""
        return self.searches[vector_db_id].weight / max(
            how.weight for how in self.searches.values()
        )

    def wanting(self, k: int) -> Plan:
        """Return the plan that finds another number of hits."""
        searches = {name: replace(each, k=k) for name, each in self.searches.items()}
        return replace(self, searches=searches, k=k)


def resolve(registrations: Sequence[VectorDB], request: RAGQueryConfig, k: int) -> Plan:
    """Return how a request is served. The one place where precedence is decided.

    Args:
        registrations: The vector DBs of the request, each once.
        request: Its options.
        k: How many hits it wants: `max_chunks`, with a number in the place of `auto`.

    Raises:
        InvalidRequest: `vector_db_weights` names a vector DB that is not among them; the budget is
            to be counted by their embedding model, and they have several.
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


def _search(vector_db: VectorDB, request: RAGQueryConfig, k: int) -> SearchPlan:
    rerank = _first(request.rerank, vector_db.rerank)
    return SearchPlan(
        vector_db=vector_db,
        k=k,
        mode=_first(request.mode, vector_db.search_mode),
        ranker=_first(request.ranker, vector_db.ranker),
        rerank=None if isinstance(rerank, NoRerank) else rerank,
        cutoff=_first(request.cutoff, vector_db.cutoff),
        query_syntax=_first(request.query_syntax, vector_db.query_syntax),
        fuzzy=_first(request.fuzzy, vector_db.fuzzy),
        filters=request.filters,
        score_threshold=request.score_threshold or 0.0,
        min_confidence=_first(request.min_confidence, vector_db.min_confidence),
        include_embeddings=request.include_embeddings,
        explain=request.explain,
        weight=request.vector_db_weights.get(vector_db.identifier, 1.0),
        max_chunks_per_document=_first(
            request.max_chunks_per_document, vector_db.max_chunks_per_document
        ),
        expand=_first(request.expand, vector_db.expand),
    )


def _first(requested: T | None, registered: T) -> T:
    return registered if requested is None else requested


def _tokenizer_model(registrations: Sequence[VectorDB], request: RAGQueryConfig) -> str | None:
    if request.tokenizer != EMBEDDER:
        return None
    models = list(dict.fromkeys(each.embedding_model for each in registrations))
    if len(models) != 1:
        raise no_tokenizer(f"The vector DBs have {len(models)} embedding models: {models}.")
    return models[0]


def no_tokenizer(message: str) -> InvalidRequest:
    """Return the refusal of the tokenizer `embedder`."""
    return InvalidRequest(
        message, hint="Use the tokenizer cl100k, o200k or bytes.", field="query_config.tokenizer"
    )
