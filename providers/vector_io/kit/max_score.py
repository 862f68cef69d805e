"""The best rows for a query's terms, without visiting every row that contains a common word.

A row that contains only very common words cannot win. So the rare words, which score highest,
select the rows that can still be among the best, and the scores of the common words are looked up
for these rows only (MaxScore: Turtle and Flood: "Query evaluation: strategies and optimizations",
Information Processing & Management 31(6), 1995). Nothing is approximate: scores are added in the
given order, so that they equal an exhaustive evaluation bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corral.providers.vector_io.kit.rows import RowSet, best_rows

FEW = 20_000
"""Up to this number of postings, all are added up without a selection."""
LOOK_UP = 8
"""Cost of looking up a row's score, in postings added up in the same time."""
_ROUNDING = 1 - 1e-9  # sums in another order differ by less


@dataclass(frozen=True, slots=True)
class TermScores:
    """The scores of one query term in the rows that contain it.

    Attributes:
        rows: Ascending, distinct, shape (n,).
        worth: Scores above 0.
        shapes: Index into `worth` of each row's score, shape (n,); None if `worth` has one score
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
        """Return the scores of a term, with their maximum."""
        return cls(rows, worth, shapes, float(worth.max(initial=0.0)))

    def scores(self, places: NDArray[np.intp] | slice = slice(None)) -> NDArray[np.float64]:
        """Return the scores of the rows at some indices, all by default."""
        shapes = places if self.shapes is None else self.shapes[places]
        worths: NDArray[np.float64] = self.worth[shapes]
        return worths

    def times(self, factor: float) -> TermScores:
        """Return all scores times a factor above 0."""
        return TermScores(self.rows, self.worth * factor, self.shapes, self.most * factor)

    def find(self, rows: NDArray[np.integer]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Return the indices of the rows that contain the term, and a mask over `rows`."""
        places = np.searchsorted(self.rows, rows.astype(self.rows.dtype))
        places = places.clip(max=len(self.rows) - 1)
        holding: NDArray[np.bool_] = self.rows[places] == rows
        return places[holding], holding


def best_by_terms(
    terms: Sequence[TermScores],
    k: int,
    allowed: RowSet | None,
    *,
    few: int = FEW,
    look_up: int = LOOK_UP,
) -> tuple[NDArray[np.integer], NDArray[np.float64]]:
    """Return the k best rows by the sums of their terms' scores, and all that tie with the k-th.

    Args:
        terms: Not empty.
        k: At least 1.
        allowed: The rows that may be returned; None for all.
        few: Up to this number of postings, all are added up without a selection.
        look_up: Cost of looking up a row's score, in postings added up in the same time.

    Returns:
        Rows and scores, best first, ties in ascending order of rows.
    """
    rows, scores = _chosen(terms, k, allowed, few, look_up)
    best = best_rows(scores, k)
    return rows[best], scores[best]


def _chosen(
    terms: Sequence[TermScores], k: int, allowed: RowSet | None, few: int, look_up: int
) -> tuple[NDArray[np.integer], NDArray[np.float64]]:
    """Return a superset of the best rows, and their scores."""
    by_worth = sorted(terms, key=lambda term: -term.most)
    total, taken = sum(len(term.rows) for term in terms), 0
    for number, term in enumerate(by_worth[:-1], 1):
        taken += len(term.rows)
        rest = sum(other.most for other in by_worth[number:])
        if total <= few or 4 * taken > total:
            break
        if sum(other.most for other in by_worth[:number]) <= rest:
            continue  # the other terms could still outweigh any row
        rows, scores = _added(by_worth[:number], allowed)
        if len(rows) >= k:
            least = np.partition(scores, len(scores) - k)[len(scores) - k] * _ROUNDING
            rows = rows[scores + rest >= least]
            if rest < least and look_up * len(rows) * len(terms) < total:
                return rows, _looked_up(terms, rows)
    return _added(terms, allowed)


def _added(
    terms: Sequence[TermScores], allowed: RowSet | None
) -> tuple[NDArray[np.integer], NDArray[np.float64]]:
    """Return all rows that contain one of the terms, and their scores."""
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
    if largest > 8 * sum(len(term.rows) for term in terms):  # sparse: sorting is cheaper
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
