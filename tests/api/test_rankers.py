"""Rankers as they come over the wire."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from corral.api.checks import check_ranker
from corral.api.errors import InvalidRequest
from corral.api.rankers import (
    MAX_CANDIDATES,
    LegWeights,
    MaxRanker,
    RRFRanker,
    WeightedRanker,
)
from corral.api.vector_dbs import SearchSettings


@pytest.mark.parametrize(
    ("data", "ranker"),
    [
        ({"type": "rrf"}, RRFRanker()),
        ({"type": "rrf", "impact_factor": 10}, RRFRanker(rank_constant=10)),
        ({"type": "rrf", "rank_constant": 10.0}, RRFRanker(rank_constant=10)),
        ({"type": "rrf", "weights": {"keyword": 2}}, RRFRanker(weights=LegWeights(keyword=2))),
        ({"type": "weighted", "alpha": 0.2}, WeightedRanker(alpha=0.2)),
        ({"type": "weighted", "normalization": "raw"}, WeightedRanker(normalization="raw")),
        ({"type": "max"}, MaxRanker()),
        ({"type": "max", "candidates": 7}, MaxRanker(candidates=7)),
    ],
)
def test_rankers_are_read_from_json(data: dict[str, Any], ranker: Any) -> None:
    """A request and a registration read the same shape; impact_factor is the RRF constant."""
    assert check_ranker(data) == ranker
    assert SearchSettings.model_validate({"ranker": data}).ranker == ranker
    assert check_ranker(ranker.model_dump()) == ranker


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({}, "ranker"),
        ({"type": "rff"}, "ranker"),
        ({"type": None}, "ranker"),
        ("rrf", "ranker"),
        (["rrf"], "ranker"),
        ({"type": "rrf", "surprise": 1}, "ranker.rrf.surprise"),
        ({"type": "rrf", "rank_constant": -1}, "ranker.rrf.rank_constant"),
        ({"type": "rrf", "rank_constant": float("nan")}, "ranker.rrf.rank_constant"),
        ({"type": "rrf", "rank_constant": float("inf")}, "ranker.rrf.rank_constant"),
        ({"type": "rrf", "rank_constant": 5, "impact_factor": 5}, "ranker.rrf.impact_factor"),
        ({"type": "rrf", "weights": {"vector": 0, "keyword": 0}}, "ranker.rrf.weights"),
        ({"type": "rrf", "weights": {"vector": -1}}, "ranker.rrf.weights.vector"),
        ({"type": "rrf", "weights": {"text": 1}}, "ranker.rrf.weights.text"),
        ({"type": "weighted", "alpha": 1.1}, "ranker.weighted.alpha"),
        ({"type": "weighted", "alpha": -0.1}, "ranker.weighted.alpha"),
        ({"type": "weighted", "normalization": "z"}, "ranker.weighted.normalization"),
        ({"type": "max", "weights": {"vector": 1.1}}, "ranker.max"),
        ({"type": "rrf", "candidates": 0}, "ranker.rrf.candidates"),
        ({"type": "rrf", "candidates": MAX_CANDIDATES + 1}, "ranker.rrf.candidates"),
    ],
)
def test_malformed_rankers_are_refused_with_the_path(data: Any, path: str) -> None:
    """An unknown type, key or value is refused by its path, never replaced by a default ranker."""
    with pytest.raises(InvalidRequest) as caught:
        check_ranker(data)
    assert (caught.value.field or "").startswith(path)
    assert "rrf, weighted, max" in caught.value.hint
    with pytest.raises(ValidationError):
        SearchSettings.model_validate({"ranker": data})


@pytest.mark.parametrize(
    ("k", "candidates", "size"),
    [
        (1, None, 40),
        (20, None, 40),
        (21, None, 42),
        (1000, None, 2000),
        (5, 100, 100),
        (50, 10, 50),
    ],
)
def test_each_leg_hands_over_enough_candidates(k: int, candidates: int | None, size: int) -> None:
    """max(2k, 40) a leg unless given, and never fewer than k; 100 where scores are normalized."""
    assert RRFRanker(candidates=candidates).leg_size(k) == size
    spread = WeightedRanker(candidates=candidates).leg_size(k)
    assert spread == (max(size, 100) if candidates is None else size)


def test_rankers_cannot_be_changed_in_place() -> None:
    """The default ranker is shared by all registrations, so it is frozen."""
    with pytest.raises(ValidationError):
        RRFRanker().rank_constant = 1.0  # type: ignore[misc]
    assert not math.isnan(RRFRanker().rank_constant)
