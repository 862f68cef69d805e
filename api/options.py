"""The options of a query: how to retrieve and order chunks.

Set any option at registration or per request; the request wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    FiniteFloat,
    StringConstraints,
    ValidationError,
    model_validator,
)

from corral.api.checks import MAX_K, MAX_QUERY_CHARACTERS
from corral.api.errors import InvalidRequest
from corral.api.filters import WireFilter, refused_filter
from corral.api.findings import known_keys, path_of, sent_location, sentence, unknown_key
from corral.api.rankers import RANK_CONSTANT, LegWeights, Ranker, RRFRanker, WeightedRanker
from corral.api.reranker import ModelRerank, NoRerank, Rerank
from corral.api.vector_dbs import SearchMode, SearchOverrides
from corral.api.wire import Storable, Strict

M = TypeVar("M", bound=BaseModel)

MAX_QUERIES = 8
"""Maximum additional wordings of one question."""

MaxChunks: TypeAlias = Annotated[int, Field(ge=1, le=MAX_K)] | Literal["auto"]
"""Number of chunks, or `auto` for ceil(sqrt(chunks in the vector DB))."""


class HybridSearchWeights(Strict):
    """OpenAI's weights of hybrid search, by reciprocal rank fusion."""

    embedding_weight: float = Field(ge=0, le=1000, allow_inf_nan=False)
    text_weight: float = Field(ge=0, le=1000, allow_inf_nan=False)


def _without_neural(weights: Any) -> Any:
    """Refuse Llama Stack's weight of a re-ranking model."""
    if isinstance(weights, dict) and weights.get("neural") is not None:
        raise ValueError(
            "a re-ranking model orders the hits alone, without a weight (neural); send the ranker "
            "neural"
        )
    return weights


class RankingOptions(Strict):
    """`ranker` and `score_threshold` in the format of OpenAI and Llama Stack's extensions.

    `hybrid_search`, `weights` and `impact_factor` select reciprocal rank fusion, `alpha` a weighted
    combination; send one of the two.
    """

    ranker: Literal["none", "auto", "default-2024-11-15", "rrf", "weighted", "neural"] | None = (
        Field(
            default=None,
            description="none: no re-ranking. auto, default-2024-11-15: as registered. neural: "
            "re-rank with `model`.",
        )
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="A configured re-ranking model, for the ranker neural.",
    )
    score_threshold: float | None = Field(default=None, ge=0, le=1)
    hybrid_search: HybridSearchWeights | None = None
    alpha: float | None = Field(default=None, ge=0, le=1)
    impact_factor: float | None = Field(default=None, ge=0, le=1e6)
    weights: Annotated[LegWeights, BeforeValidator(_without_neural)] | None = None

    @model_validator(mode="after")
    def _one_ranker(self) -> Self:
        self.fusion()
        self.rerank()
        return self

    def rerank(self) -> ModelRerank | NoRerank | None:
        """Return the requested re-ranking, None for the registered one.

        Raises:
            ValueError: The request has `model` without the ranker neural, or vice versa.
        """
        if (self.model is not None) != (self.ranker == "neural"):
            raise ValueError(
                "the ranker neural needs the name of a re-ranking model in model, and model is "
                "for that ranker only"
            )
        if self.model is not None:
            return ModelRerank(model=self.model)
        return NoRerank() if self.ranker == "none" else None

    def fusion(self) -> RRFRanker | WeightedRanker | None:
        """Return the requested ranker, None for the registered one.

        Raises:
            ValueError: The options select two rankers.
        """
        given = self.hybrid_search
        leg_weights = self.weights
        if given is not None:
            if leg_weights is not None:
                raise ValueError("hybrid_search and weights mean the same; send one of them")
            leg_weights = LegWeights(vector=given.embedding_weight, keyword=given.text_weight)
        by_rank = leg_weights is not None or self.impact_factor is not None or self.ranker == "rrf"
        if self.alpha is not None or self.ranker == "weighted":
            if by_rank:
                raise ValueError("alpha is for weighted, the other options for rrf; send one kind")
            return WeightedRanker() if self.alpha is None else WeightedRanker(alpha=self.alpha)
        if not by_rank:
            return None
        constant = RANK_CONSTANT if self.impact_factor is None else self.impact_factor
        return RRFRanker(rank_constant=constant, weights=leg_weights or LegWeights())


class OrderBy(Strict):
    """The order of chunks that are listed without a question.

    Numbers order by value, texts by code point, false before true. Chunks without the field are
    last in both directions; chunk_id breaks ties.
    """

    key: Annotated[Storable, Field(min_length=1)] = Field(description="A metadata key.")
    direction: Literal["asc", "desc"] = "asc"


class RetrievalOptions(SearchOverrides):
    """Options of a search; null takes what the vector DB was registered with."""

    mode: SearchMode | None = Field(default=None, description="null: the registered mode.")
    ranker: Ranker | None = Field(default=None, description="null: the registered ranker.")
    ranking_options: RankingOptions | None = Field(
        default=None,
        description="OpenAI's form of `ranker` and `score_threshold`.",
    )
    rerank: Rerank | None = Field(
        default=None,
        description="Re-ranking of the best chunks: mmr, bm25, model or none; null: as registered.",
    )
    queries: list[Annotated[str, StringConstraints(max_length=MAX_QUERY_CHARACTERS)]] = Field(
        default_factory=list,
        max_length=MAX_QUERIES,
        description="Other wordings of the question: each is searched, and the results are fused.",
    )
    filters: WireFilter | None = Field(
        default=None,
        description="In OpenAI's format: `{type: eq|ne|gt|gte|lt|lte|in|nin, key, value}`, "
        "`{type: and|or, filters: [...]}`. Applied before the best hits are selected.",
    )
    order_by: OrderBy | None = Field(
        default=None,
        description="For an empty question: order the chunks that pass `filters` by a metadata "
        "field, `{key, direction: asc|desc}`; null: by chunk_id. Every score is then 1.",
    )
    score_threshold: float | None = Field(
        default=0.0, ge=0, le=1, description="Minimum final score (0-1; null or 0: all)."
    )
    embedding: Annotated[list[FiniteFloat], Field(min_length=1, max_length=16_000)] | None = Field(
        default=None,
        description="The embedding of the question, which may then be empty; null: the vector DB's "
        "model embeds it.",
    )
    include_embeddings: bool = Field(default=False, description="Return each chunk's embedding.")
    explain: bool = Field(default=False, description="Explain the score of each chunk.")

    @model_validator(mode="after")
    def _in_openais_words(self) -> Self:
        """Translate `ranking_options` into the other fields, so that there is one form to read."""
        ranking = self.ranking_options
        if ranking is None:
            return self
        ranker = ranking.fusion()
        if ranker is not None:
            if self.ranker is not None:
                raise ValueError("ranker and ranking_options mean the same; send one of them")
            self.ranker = ranker
        rerank = ranking.rerank()
        if rerank is not None:
            if self.rerank is not None:
                raise ValueError(
                    f"rerank and the ranker {ranking.ranker!r} of ranking_options contradict each "
                    "other"
                )
            self.rerank = rerank
        if ranking.score_threshold is not None:
            if self.score_threshold:
                raise ValueError(
                    "score_threshold and that of ranking_options differ; send one of them"
                )
            self.score_threshold = ranking.score_threshold
        self.ranking_options = None
        return self


def checked(model: type[M], fields: Mapping[str, Any]) -> M:
    """Return a model of these fields.

    Raises:
        InvalidFilter: A filter is malformed.
        InvalidRequest: Another field is invalid; the message names it.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location = tuple(sent_location(first, fields))
        path = path_of(location)
        if first["type"] == "extra_forbidden":
            message = unknown_key(location, known_keys(model, location[:-1], fields))
        else:
            message = sentence(path, first, first["input"])
        raise refused_filter(first, path) or InvalidRequest(message, field=path or None) from None
