"""The best rows of a query's terms, without looking at every row that holds a common word.

A row that holds only words that nearly all rows hold cannot win. So the rare words, which count
most, choose the rows that can still be among the best, and of the common words only what they add
to those rows is looked up (MaxScore: Turtle and Flood: "Query evaluation: strategies and
optimizations", Information Processing & Management 31(6), 1995). Nothing is approximate: scores
are added in the order given, so that they are those of looking at everything, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corral.providers.vector_io.kit.rows import RowSet, best_rows

FEW = 20_000
"""Postings that are added up without choosing."""
LOOK_UP = 8
"""Looking up a row's score takes as long as adding up so many postings, about."""
_ROUNDING = 1 - 1e-9  # sums in another order differ by less


@dataclass(frozen=True, slots=True)
class TermScores:
    """What one term of a query is worth in the rows that hold it.

    Attributes:
        rows: Ascending, distinct, shape (n,).
        worth: Scores above 0.
        shapes: The place in `worth` of each row's score, shape (n,); None where `worth` has a score
            for each row.
        most: The highest score.
    """

    rows: NDArray[np.integer]
    worth: NDArray[np.float64]
    shapes: NDArray[np.integer] | None
    most: float

    @classmethod
    def of(
        cls,
        rows: NDArray[np.integer],
        worth: NDArray[np.float64],
        shapes: NDArray[np.integer] | None = None,
    ) -> TermScores:
        """Return the scores of a term."""
        return cls(rows, worth, shapes, float(worth.max(initial=0.0)))

    def scores(self, places: NDArray[np.intp] | slice = slice(None)) -> NDArray[np.float64]:
        """Return the scores of the rows at some places, all by default."""
        shapes = places if self.shapes is None else self.shapes[places]
        found: NDArray[np.float64] = self.worth[shapes]
        return found

    def times(self, factor: float) -> TermScores:
        """Return all scores times a factor above 0."""
        return TermScores(self.rows, self.worth * factor, self.shapes, self.most * factor)

    def find(self, rows: NDArray[np.integer]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Return which of some rows hold the term, and the places of those that do."""
        places = np.searchsorted(self.rows, rows.astype(self.rows.dtype))
        places = places.clip(max=len(self.rows) - 1)
        holding: NDArray[np.bool_] = self.rows[places] == rows
        return places[holding], holding


def best_by_terms(
    terms: Sequence[TermScores], k: int, allowed: RowSet | None
) -> tuple[NDArray[np.integer], NDArray[np.float64]]:
    """Return the k best rows by the sums of their terms' scores, and those tied with the last.

    Args:
        terms: Not empty.
        k: At least 1.
        allowed: The rows that may be returned; None for all.

    Returns:
        Rows and scores, best first, ties in ascending order of rows.
    """
    rows, scores = _chosen(terms, k, allowed)
    best = best_rows(scores, k)
    return rows[best], scores[best]


def _chosen(
    terms: Sequence[TermScores], k: int, allowed: RowSet | None
) -> tuple[NDArray[np.integer], NDArray[np.float64]]:
    """Return rows among which the best are, and their scores."""
    by_worth = sorted(terms, key=lambda term: -term.most)
    total, taken = sum(len(term.rows) for term in terms), 0
    for number, term in enumerate(by_worth[:-1], 1):
        taken += len(term.rows)
        rest = sum(other.most for other in by_worth[number:])
        if total <= FEW or 4 * taken > total:
            break
        if sum(other.most for other in by_worth[:number]) <= rest:
            continue  # no row can be safe yet
        rows, scores = _added(by_worth[:number], allowed)
        if len(rows) >= k:
            least = np.partition(scores, len(scores) - k)[len(scores) - k] * _ROUNDING
            rows = rows[scores + rest >= least]
            if rest < least and LOOK_UP * len(rows) * len(terms) < total:
                return rows, _looked_up(terms, rows)
    return _added(terms, allowed)


def _added(
    terms: Sequence[TermScores], allowed: RowSet | None
) -> tuple[NDArray[np.integer], NDArray[np.float64]]:
    """Return all rows that hold one of the terms, and their scores."""
    rows, scores = _summed(terms)
    if allowed is None:
        return rows, scores
    passing = allowed.mask(rows)
    return rows[passing], scores[passing]


def _summed(
    terms: Sequence[TermScores],
) -> tuple[NDArray[np.integer], NDArray[np.float64]]:
    """Sum the scores of each row; both ways add in the order of the terms, so they agree."""
    largest = int(max(term.rows[-1] for term in terms))
    if largest > 8 * sum(len(term.rows) for term in terms):  # few: sorting them is cheaper
        every = np.concatenate([term.rows for term in terms])
        worth = np.concatenate([term.scores() for term in terms])
        distinct, place = np.unique(every, return_inverse=True)
        return distinct, np.asarray(np.bincount(place, weights=worth), dtype=np.float64)
    total = np.zeros(largest + 1)
    for term in terms:
        total[term.rows] += term.scores()
    held = np.flatnonzero(total)
    return held, total[held]


def _looked_up(terms: Sequence[TermScores], rows: NDArray[np.integer]) -> NDArray[np.float64]:
    total = np.zeros(len(rows))
    for term in terms:
        places, holding = term.find(rows)
        total[holding] += term.scores(places)
    return total
