"""The metrics are trec_eval's, and what is judged is the order that a user sees."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest

from corral.bench.data.readers import write_run
from corral.bench.quality.metrics import NAMES, measure

FILL = [f"x{n}" for n in range(20)]

Judged = dict[str, int]


def values(judged: Judged, ranked: list[str]) -> list[float]:
    """Return the five metrics of one query, to 4 decimals."""
    found = measure({"q": judged}, {"q": ranked})
    return [round(found[name]["q"], 4) for name in NAMES]


@pytest.mark.parametrize(
    ("judged", "ranked", "expected"),
    [
        # DCG 1/log2(2) + 2/log2(3) = 2.2619, ideal 2 + 1/log2(3) = 2.6309.
        ({"a": 2, "b": 1, "c": 0}, ["b", "a", "d"], [0.8597, 1.0, 1.0, 1.0, 1.0]),
        # At ranks 3 and 11 of three: DCG 1/log2(4) = 0.5, ideal 2.1309; AP (1/3) / 3.
        (
            {"a": 1, "b": 1, "c": 1},
            [*FILL[:2], "a", *FILL[2:9], "b"],
            [0.2346, 0.3333, 0.6667, 0.3333, 0.1111],
        ),
        # At ranks 2 and 4: DCG 1/log2(3) + 1/log2(5) = 1.0616, ideal 1.6309; AP (1/2 + 2/4) / 2.
        (
            {"a": 1, "b": 1},
            ["x", "a", "y", "b"],
            [0.6509, 1.0, 1.0, 0.5, 0.5],
        ),
        # The first relevant one at rank 11: only recall@100 sees it.
        ({"a": 3}, [*FILL[:10], "a"], [0.0, 0.0, 1.0, 0.0, 0.0]),
        ({"a": 1}, [], [0.0] * 5),
        # Judged, and nothing is relevant.
        ({"a": 0}, ["a"], [0.0] * 5),
        # More relevant ones than ten: the ideal ranking is cut at ten, too.
        ({f"x{n}": 1 for n in range(12)}, FILL[:10], [1.0, 0.8333, 0.8333, 1.0, 0.8333]),
    ],
)
def test_by_hand(judged: Judged, ranked: list[str], expected: list[float]) -> None:
    """nDCG@10, R@10, R@100, RR@10 and AP@10 of rankings that were computed with a pencil."""
    assert values(judged, ranked) == expected


def by_formula(judged: Judged, ranked: list[str]) -> list[float]:
    """Return the five metrics, written down from their definitions."""
    relevant = {key for key, grade in judged.items() if grade > 0}
    found = [place for place, key in enumerate(ranked, 1) if key in relevant]
    top = [place for place in found if place <= 10]
    gains = [max(judged.get(key, 0), 0) / math.log2(n + 1) for n, key in enumerate(ranked[:10], 1)]
    ideal = sorted((g for g in judged.values() if g > 0), reverse=True)[:10]
    best = sum(grade / math.log2(place + 1) for place, grade in enumerate(ideal, 1))
    precisions = [number / place for number, place in enumerate(top, 1)]
    some = len(relevant) or 1
    return [
        sum(gains) / best if best else 0.0,
        len(top) / some,
        len([place for place in found if place <= 100]) / some,
        1 / top[0] if top else 0.0,
        sum(precisions) / some,
    ]


def test_random_rankings_agree_with_the_definitions() -> None:
    """On 200 seeded rankings of up to 150 documents with grades -1 to 3, to 4 decimals."""
    rng = np.random.default_rng(4)
    for _ in range(200):
        names = [f"d{n}" for n in rng.permutation(150)]
        judged = {name: int(rng.integers(-1, 4)) for name in names[: rng.integers(1, 30)]}
        ranked = [names[n] for n in rng.permutation(150)[: rng.integers(0, 120)]]
        assert values(judged, ranked) == pytest.approx(by_formula(judged, ranked), abs=1e-4)


def test_ties_keep_the_order_that_was_answered() -> None:
    """Of two hits with one score the first one counts as first, whatever their ids are.

    If this fails: equal scores reached trec_eval, which orders them by id, descending.
    """
    assert values({"a": 1}, ["a", "b"])[0] == 1.0
    tied = ir_measures.calc_aggregate(
        [ir_measures.nDCG @ 10], {"q": {"a": 1}}, {"q": {"a": 0.5, "b": 0.5}}
    )
    assert round(tied[ir_measures.nDCG @ 10], 4) == 0.6309, "trec_eval's own order of ties"


def test_a_query_that_found_nothing_counts_zero() -> None:
    """A query that is missing from a run is not left out of the mean."""
    found = measure({"q": {"a": 1}, "r": {"b": 1}}, {"q": ["a"]})
    assert found["nDCG@10"] == {"q": 1.0, "r": 0.0}


def test_a_run_file_gives_the_same_figures(tmp_path: Path) -> None:
    """What is written is a TREC run whose scores fall strictly, and measures like the answers."""
    run = {"q": ["z", "a", "m"], "r": ["b"]}
    qrels = {"q": {"a": 2, "m": 1}, "r": {"b": 1}}
    write_run(tmp_path / "runs" / "one.run", run, "sqlite")
    lines = (tmp_path / "runs" / "one.run").read_text("utf-8").splitlines()
    assert lines == [
        "q Q0 z 1 3 sqlite",
        "q Q0 a 2 2 sqlite",
        "q Q0 m 3 1 sqlite",
        "r Q0 b 1 1 sqlite",
    ]
    library: Any = ir_measures  # its functions have no types
    read = list(library.read_trec_run(str(tmp_path / "runs" / "one.run")))
    measured = ir_measures.iter_calc([ir_measures.nDCG @ 10], qrels, read)
    assert {one.query_id: one.value for one in measured} == measure(qrels, run)["nDCG@10"]
