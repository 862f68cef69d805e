"""Intervals, tests and verdicts say what the queries can bear, and no more."""

from __future__ import annotations

import numpy as np
import pytest

from corral.bench.quality.statistics import (
    bootstrap,
    compare,
    detectable,
    holm,
    randomization_test,
    seed_of,
)


def by_query(values: list[float]) -> dict[str, float]:
    """Return values by query id."""
    return {f"q{number}": value for number, value in enumerate(values)}


def test_an_interval_is_as_wide_as_theory_says() -> None:
    """For 400 normal values: the mean +- 1.96 / 20 standard deviations, within 7 %."""
    data = np.random.default_rng(1).standard_normal(400)
    found = bootstrap(data)
    assert found.mean == pytest.approx(data.mean())
    assert found.low < found.mean < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 * data.std() / 20, rel=0.07)


def test_intervals_hold_what_they_promise() -> None:
    """Of 400 seeded samples of 100 values like nDCG, 92 to 97.5 % hold the true mean."""
    rng = np.random.default_rng(2)
    levels, shares = np.array([0.0, 0.63, 1.0]), [0.25, 0.25, 0.5]
    mean, hits = float(levels @ shares), 0
    for number in range(400):
        found = bootstrap(rng.choice(levels, 100, p=shares), seed=number)
        hits += found.low <= mean <= found.high
    assert 368 <= hits <= 390


def test_a_seed_gives_the_same_interval() -> None:
    """Equal values and seed give equal intervals, another seed a slightly different one."""
    data = np.random.default_rng(3).random(50)
    assert bootstrap(data, 7) == bootstrap(data, 7) != bootstrap(data, 8)


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1.0, 1.0, 1.0], 2 / 8),  # of 8 patterns, all plus and all minus
        ([3.0, 1.0], 2 / 4),  # |4|, |2|, |2|, |4|: two as far as 4
        ([3.0, 1.0, 0.0, 0.0], 2 / 4),  # a query without difference tells nothing
        ([0.5, -0.5], 1.0),
        ([0.0, 0.0], 1.0),
    ],
)
def test_a_randomization_test_by_hand(differences: list[float], p: float) -> None:
    """Few queries: p is the exact share of sign patterns that are as extreme."""
    assert randomization_test(differences) == pytest.approx(p)


def test_random_patterns_come_near_the_exact_share() -> None:
    """Beyond 13 queries patterns are drawn: 10 of 14 equal differences positive has p 0.1796."""
    drawn = randomization_test([1.0] * 10 + [-1.0] * 4, seed=1)
    assert drawn == pytest.approx(0.1796, abs=0.015)
    assert 0 < randomization_test([1.0] * 50) < 0.001


def test_holm_by_hand() -> None:
    """The smallest p times 3, the next times 2, the last as it is, never falling, at most 1."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.7, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_verdicts() -> None:
    """Clear differences are named; small ones are `same` only where the interval says so."""
    rng = np.random.default_rng(5)
    base = rng.random(200)
    noisy = rng.standard_normal(200)
    found = compare(
        {
            "up": by_query(list(base + 0.1 + 0.05 * noisy)),
            "down": by_query(list(base - 0.1 + 0.05 * noisy)),
            "equal": by_query(list(base)),
            "near": by_query(list(base + 0.002 * noisy)),
            "unclear": by_query(list(rng.random(200))),
        },
        "base",
        by_query(list(base)),
    )
    verdicts = {name: comparison.verdict for name, comparison in found.items()}
    assert verdicts == {
        "up": "better", "down": "worse", "equal": "same", "near": "same",
        "unclear": "not resolvable",
    }  # fmt: skip
    assert "not resolvable at 200 queries" in found["unclear"].statement
    assert found["up"].difference.mean == pytest.approx(0.1, abs=0.01)


def test_few_queries_resolve_nothing() -> None:
    """Three queries, all better, are not called better; the statement says how many there were."""
    found = compare({"up": by_query([0.9, 0.8, 0.7])}, "base", by_query([0.5, 0.5, 0.5]))["up"]
    assert (found.verdict, found.p) == ("not resolvable", 0.25)
    assert found.statement.startswith("not resolvable at 3 queries")


def test_the_same_question_counts_once() -> None:
    """A copy of a system, and one that equals the baseline, cost the others no power.

    If this fails: Holm's correction counts backends and not questions.
    """
    base, up = by_query([0.0] * 10), by_query([0.1] * 9 + [-0.1])
    alone = compare({"up": up}, "base", base)["up"]
    crowd = compare({"up": up, "copy": dict(up), "base too": dict(base)}, "base", base)
    assert crowd["up"] == crowd["copy"] == alone
    other = by_query([0.3, -0.1, 0.2, 0.2, 0.1, 0.4, 0.1, 0.1, 0.1, -0.05])
    assert compare({"up": up, "other": other}, "base", base)["up"].p_holm > alone.p_holm


def test_systems_without_a_common_query_are_refused() -> None:
    """Nothing is compared with nothing."""
    with pytest.raises(ValueError, match="no query in common"):
        compare({"one": {"a": 1.0}}, "base", {"b": 1.0})


def test_what_would_be_found() -> None:
    """The detectable difference falls with the root of the number of queries."""
    data = np.tile([0.1, -0.1], 50)
    assert detectable(data) == pytest.approx(2.8 * data.std(ddof=1) / 10)
    assert detectable(data[:1]) == float("inf")


def test_seeds_of_things_differ() -> None:
    """Each thing of a run has a seed of its own, the same in every process."""
    assert seed_of(0, "scifact", "bootstrap") == 67187299
    assert len({seed_of(0, "a"), seed_of(1, "a"), seed_of(0, "b"), seed_of(0, "a", "b")}) == 4
