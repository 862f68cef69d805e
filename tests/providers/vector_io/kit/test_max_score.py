"""The best rows of a query's terms: common words are looked up, and nothing changes for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.providers.vector_io.kit.max_score import TermScores, best_by_terms
from corral.providers.vector_io.kit.rows import RowSet, best_rows

SHARES = (0.9, 0.6, 0.3, 0.05, 0.01, 0.004)


def some_terms(rng: np.random.Generator, rows: int) -> list[TermScores]:
    """Return terms, common ones worth little, with scores that often tie."""
    terms = []
    for share in rng.permutation(SHARES)[: int(rng.integers(1, 7))]:
        held = np.flatnonzero(rng.random(rows) < share)
        if not len(held):
            continue
        worth = -np.log(share) * rng.choice([0.5, 1.0, 1.5, 2.0], 6)
        terms.append(TermScores.of(held.astype(np.uint32), worth, rng.integers(0, 6, len(held))))
    return terms or some_terms(rng, rows)


@pytest.mark.parametrize("few", [0, 10**9])
@pytest.mark.parametrize("seed", range(40))
def test_the_best_are_those_of_adding_everything_up(seed: int, few: int) -> None:
    """Rows, order and scores equal those of every row's sum, bit for bit, ties included.

    If this fails: a row that only holds common words could win, or scores add in another order.
    """
    rng = np.random.default_rng(seed)
    count = int(rng.integers(5, 3000))
    terms, k = some_terms(rng, count), int(rng.choice([1, 3, 10, 50]))
    allowed = None
    if seed % 3 == 0:
        allowed = RowSet(np.flatnonzero(rng.random(count) < 0.2), negated=seed % 2 == 0)
    total = np.zeros(count)
    for term in terms:
        total[term.rows] += term.scores()
    held = np.flatnonzero(total)
    held = held if allowed is None else held[allowed.mask(held)]
    expected = held[best_rows(total[held], k)]
    rows, scores = best_by_terms(terms, k, allowed, few=few, look_up=seed % 2)
    assert rows.tolist() == expected.tolist()
    assert scores.tolist() == total[expected].tolist()


def test_common_words_are_looked_up_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rare word in the query, no common word's postings are added up.

    If this fails: answers are right, and each takes as long as its commonest word.
    """
    rows = np.arange(100_000)
    rare = TermScores.of(rows[::1000], np.array([9.0]), np.zeros(100, np.uint8))
    common = TermScores.of(rows, np.array([0.5, 1.0]), (rows % 7 == 0).astype(np.uint8))
    looked: list[int] = []
    plain = TermScores.scores

    def counted(self: TermScores, *places: Any) -> NDArray[np.float64]:
        found = plain(self, *places)
        looked.append(len(found))
        return found

    monkeypatch.setattr(TermScores, "scores", counted)
    best, scores = best_by_terms([common, rare], 10, None)
    assert best.tolist() == rows[::7000].tolist()[:15]
    assert set(scores.tolist()) == {10.0}
    assert sum(looked) < 1000
