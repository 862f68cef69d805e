"""Rankers: the fusion methods of a hybrid query and their parameters; see `fusion.py`."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import AliasChoices, ConfigDict, Field, model_validator

from corral.api.wire import Strict

LegName = Literal["vector", "keyword"]
LEGS: tuple[LegName, ...] = ("vector", "keyword")

MIN_CANDIDATES = 40
"""Minimum candidates of a leg for fusion: with fewer, a chunk that is second-best in both legs can
be missed for small k."""
MIN_WEIGHTED_CANDIDATES = 100
"""Minimum candidates of a leg if scores are normalized: their spread is estimated from them."""
RANK_CONSTANT = 60.0
"""Default `rank_constant`, also used to merge lists by rank."""
DEFAULT_ALPHA = 0.55
"""Default alpha, the vector leg's share, for a query that the embedding model reads well."""
MIN_ALPHA = 0.05
"""The vector leg's share if the model cannot read the query. The leg is still searched: it finds
chunks even if no chunk contains a word of the query."""
MAX_CANDIDATES = 10_000
"""Maximum candidates of a leg that a request may set."""


class LegWeights(Strict):
    """Weight of each leg: >= 0, not both 0; for rrf only their ratio matters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    vector: float = Field(default=1.0, ge=0, le=1000, allow_inf_nan=False)
    keyword: float = Field(default=1.0, ge=0, le=1000, allow_inf_nan=False)

    @model_validator(mode="after")
    def _some(self) -> LegWeights:
        if self.vector + self.keyword <= 0:
            raise ValueError("at least one weight, vector or keyword, must be above 0")
        return self

    def of(self, leg: LegName) -> float:
        """Return the weight of a leg."""
        return self.vector if leg == "vector" else self.keyword


class _Ranker(Strict):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, frozen=True)

    candidates: int | None = Field(
        default=None,
        ge=1,
        le=MAX_CANDIDATES,
        description="Chunks that each leg passes on to fusion; default max(2k, 40), and max(2k, "
        "100) for `weighted`.",
    )
    fewest: ClassVar[int] = MIN_CANDIDATES

    def leg_size(self, k: int) -> int:
        """Return the number of candidates to request from each leg for k hits."""
        return max(k, self.candidates or max(2 * k, self.fewest))

    @abstractmethod
    def weight(self, leg: LegName) -> float:
        """Return the weight of a leg, >= 0."""

    @property
    def adapts(self) -> bool:
        """True if the weights depend on the share of the query that the embedding model reads."""
        return False

    def reading(self, share: float) -> Self:
        """Return the ranker for a query if the model reads this share of it, in [0, 1]."""
        return self

    def counted(self) -> list[LegName]:
        """Return the legs with a weight above 0; the others are not searched."""
        return [leg for leg in LEGS if self.weight(leg) > 0]


def _show_impact_factor(schema: dict[str, Any]) -> None:
    constant = {**schema["properties"]["rank_constant"], "title": "Impact Factor"}
    del constant["default"]
    constant["description"] = "Llama Stack's name for `rank_constant`; send one of them."
    schema["properties"]["impact_factor"] = constant


class RRFRanker(_Ranker):
    """Reciprocal rank fusion. Wire alias of `rank_constant`: Llama Stack's `impact_factor`."""

    model_config = ConfigDict(json_schema_extra=_show_impact_factor)

    type: Literal["rrf"] = "rrf"
    rank_constant: float = Field(
        default=RANK_CONSTANT,
        ge=0,
        le=1e6,
        allow_inf_nan=False,
        validation_alias=AliasChoices("rank_constant", "impact_factor"),
        description="Larger values reduce the advantage of the top ranks.",
    )
    weights: LegWeights = LegWeights()

    def weight(self, leg: LegName) -> float:
        """Return the weight of a leg."""
        return self.weights.of(leg)


class _Weights(Strict):
    """The alternative to `alpha` in a request's weighted ranker."""

    weights: LegWeights


def _show_weights(schema: dict[str, Any]) -> None:
    description = "Instead of `alpha`, which is then the vector leg's share of their sum."
    schema["properties"]["weights"] = LegWeights.model_json_schema() | {"description": description}


class WeightedRanker(_Ranker):
    """Weighted sum of the legs' scores; alpha 1 is the vector leg alone, 0 the keyword leg alone.

    Instead of `alpha` a request may send `weights`; only their ratio matters: alpha is the vector
    leg's share of their sum.
    """

    model_config = ConfigDict(json_schema_extra=_show_weights)

    type: Literal["weighted"] = "weighted"
    alpha: float | None = Field(
        default=None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Weight of the vector leg (0-1; default 0.55, and less if the embedding model "
        "does not know the language of the query).",
    )
    normalization: Literal["raw", "min_max", "z_score"] = Field(
        default="z_score",
        description="raw: scores in [0, 1] as they are; min_max: each leg scaled to [0, 1]; "
        "z_score: each leg in units of its standard deviation, so that a leg counts "
        "more if its scores differ more.",
    )
    fewest: ClassVar[int] = MIN_WEIGHTED_CANDIDATES

    @model_validator(mode="before")
    @classmethod
    def _alpha_of_weights(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("weights") is None:
            return data
        if data.get("alpha") is not None:
            raise ValueError("alpha and weights mean the same; send one of them")
        # Validate a model that has the field `weights`, so that a finding's location includes it.
        weights = _Weights.model_validate({"weights": data["weights"]}).weights
        rest = {key: value for key, value in data.items() if key not in ("weights", "alpha")}
        return {**rest, "alpha": weights.vector / (weights.vector + weights.keyword)}

    def weight(self, leg: LegName) -> float:
        """Return alpha for the vector leg, 1 - alpha for the keyword leg."""
        alpha = DEFAULT_ALPHA if self.alpha is None else self.alpha
        return alpha if leg == "vector" else 1.0 - alpha

    @property
    def adapts(self) -> bool:
        """True if alpha is not set; an explicit alpha never changes."""
        return self.alpha is None

    def reading(self, share: float) -> Self:
        """Return the ranker for a query if the model reads this share of it, in [0, 1].

        A model that cannot read a query orders chunks at random.
        """
        if not self.adapts:
            return self
        return self.model_copy(update={"alpha": max(MIN_ALPHA, DEFAULT_ALPHA * share)})


class MaxRanker(_Ranker):
    """The larger of the two weighted scores. Weights are at most 1, so the score stays in [0, 1].

    The keyword default 0.7 comes from the browser co-pilot that inspired this design.
    """

    type: Literal["max"] = "max"
    weights: LegWeights = LegWeights(vector=1.0, keyword=0.7)

    @model_validator(mode="after")
    def _bounded(self) -> MaxRanker:
        if max(self.weights.vector, self.weights.keyword) > 1:
            raise ValueError("weights of a max ranker must be <= 1")
        return self

    def weight(self, leg: LegName) -> float:
        """Return the weight of a leg."""
        return self.weights.of(leg)


Ranker: TypeAlias = Annotated[RRFRanker | WeightedRanker | MaxRanker, Field(discriminator="type")]
"""The fusion of hybrid results: `{"type": "rrf" | "weighted" | "max", ...}`."""

DEFAULT_RANKER = WeightedRanker()
