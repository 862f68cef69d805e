"""The trials of a tuning: modes, fusions with their parameters, and re-rankers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

from corral.api.checks import AnyRanker
from corral.api.filters import AutoFilters
from corral.api.rankers import DEFAULT_RANKER, LegWeights, MaxRanker, RRFRanker, WeightedRanker
from corral.api.recency import Recency
from corral.api.reranker import BM25Rerank, MMRRerank, ModelRerank, NoRerank
from corral.api.vector_dbs import SearchMode, VectorDB
from corral.bench.quality.fusions import label_of

ALPHAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
CANDIDATES = (40, 100, 200)
CONSTANTS = (1.0, 10.0, 60.0)
LAMBDAS = (0.5, 0.7, 0.9)
WEIGHTS = (0.4, 0.6, 1.0)
HALF_LIVES = (30.0, 365.0)
RERANKED = 20
"""Candidates that a model reads: the most that answers within a tenth of a second or so."""
NO_RERANK = NoRerank()
AnyRerank: TypeAlias = MMRRerank | BM25Rerank | ModelRerank | NoRerank


@dataclass(frozen=True, slots=True)
class Trial:
    """One way to search.

    Attributes:
        mode: The search mode.
        ranker: The fusion in hybrid mode.
        rerank: The re-ranker; `NoRerank` for none.
        recency: None if age does not count.
        auto_filters: The model that proposes filters, `none` for none.
    """

    mode: SearchMode
    ranker: AnyRanker = DEFAULT_RANKER
    rerank: AnyRerank = NO_RERANK
    recency: Recency | None = None
    auto_filters: AutoFilters | Literal["none"] = "none"

    @property
    def label(self) -> str:
        """The trial's label in a report."""
        fused = f" {label_of(self.ranker)}" if self.mode is SearchMode.HYBRID else ""
        after = "" if isinstance(self.rerank, NoRerank) else f" + {_short(self.rerank)}"
        if self.recency is not None:
            after += f" + recency({self.recency.field},half_life={self.recency.half_life:g})"
        if isinstance(self.auto_filters, AutoFilters):
            after += f" + auto_filters({self.auto_filters.model})"
        return f"{self.mode}{fused}{after}"

    def settings(self) -> dict[str, Any]:
        """Return the registration's settings for this kind of search."""
        found: dict[str, Any] = {"search_mode": str(self.mode)}
        if self.mode is SearchMode.HYBRID:
            found["ranker"] = self.ranker.model_dump(mode="json", exclude_none=True)
        if not isinstance(self.rerank, NoRerank):
            found["rerank"] = self.rerank.model_dump(mode="json", by_alias=True)
        for name in ("recency", "auto_filters"):
            value = getattr(self, name)
            if isinstance(value, BaseModel):
                found[name] = value.model_dump(mode="json")
        return found

    @property
    def complexity(self) -> int:
        """0: one leg. 1: the default hybrid. 2: another fusion. 3: a re-ranker, or recency. 4: with
        a model.
        """
        if isinstance(self.rerank, ModelRerank) or self.auto_filters != "none":
            return 4
        if not isinstance(self.rerank, NoRerank) or self.recency is not None:
            return 3
        if self.mode is not SearchMode.HYBRID:
            return 0
        return 1 if self.ranker == DEFAULT_RANKER else 2


def registered(vector_db: VectorDB) -> Trial:
    """Return the registered search of a vector DB."""
    is_hybrid = vector_db.search_mode is SearchMode.HYBRID
    ranker = vector_db.ranker if is_hybrid else DEFAULT_RANKER
    rerank, recency = vector_db.rerank or NO_RERANK, vector_db.recency
    if recency is not None and recency.weight == 0:
        recency = None
    return Trial(vector_db.search_mode, ranker, rerank, recency, vector_db.auto_filters)


def single_modes() -> list[Trial]:
    """Return vector and keyword search alone, as the references for hybrid trials."""
    return [Trial(SearchMode.VECTOR), Trial(SearchMode.KEYWORD)]


def fusions() -> list[Trial]:
    """Return all fusions to try: 40 convex combinations, 9 by rank, 3 by maximum."""
    rankers: list[AnyRanker] = [DEFAULT_RANKER]
    rankers += [
        WeightedRanker(alpha=alpha, normalization="z_score", candidates=size)
        for size in CANDIDATES
        for alpha in ALPHAS
    ]
    rankers += [WeightedRanker(alpha=alpha, normalization="min_max") for alpha in ALPHAS]
    rankers += [WeightedRanker(alpha=alpha, normalization="raw") for alpha in (0.2, 0.4, 0.6)]
    rankers += [
        RRFRanker(rank_constant=constant, weights=LegWeights(vector=vector, keyword=1))
        for constant in CONSTANTS
        for vector in (0.5, 1.0, 2.0)
    ]
    rankers += [MaxRanker(weights=LegWeights(vector=1, keyword=w)) for w in (0.5, 0.7, 1.0)]
    return [Trial(SearchMode.HYBRID, ranker) for ranker in rankers]


def re_ranked(trial: Trial, models: Iterable[ModelRerank] = ()) -> list[Trial]:
    """Return a trial with each re-ranker: by MMR, by BM25, and by each of the models.

    Args:
        trial: The search to re-rank.
        models: Their other options, such as `on_error`, stay.
    """
    rerankers: list[AnyRerank] = [
        MMRRerank(lambda_=share, relevance=relevance)
        for relevance in ("embedding", "both")
        for share in LAMBDAS
    ]
    rerankers.append(BM25Rerank())
    rerankers += [
        model.model_copy(update={"candidates": RERANKED, "weight": weight})
        for model in models
        for weight in WEIGHTS
    ]
    return [Trial(trial.mode, trial.ranker, rerank) for rerank in rerankers]


def by_metadata(trial: Trial, vector_db: VectorDB, dated: Iterable[str]) -> list[Trial]:
    """Return a trial with `recency` and with the registered `auto_filters`.

    Args:
        trial: The search before it.
        vector_db: Its registered `recency` is tried, too.
        dated: Metadata keys with a time.
    """
    recencies = [Recency(field=key, half_life=days) for key in dated for days in HALF_LIVES]
    if (current := registered(vector_db).recency) is not None:
        recencies.append(current)
    trials = [replace(trial, recency=each) for each in dict.fromkeys(recencies)]
    if vector_db.auto_filters != "none":
        trials.append(replace(trial, auto_filters=vector_db.auto_filters))
    return trials


def _short(rerank: MMRRerank | BM25Rerank | ModelRerank) -> str:
    if isinstance(rerank, BM25Rerank):
        return "bm25"
    if isinstance(rerank, ModelRerank):
        return f"model({rerank.model},candidates={rerank.candidates},weight={rerank.weight:g})"
    return f"mmr(lambda={rerank.lambda_:g},relevance={rerank.relevance})"
