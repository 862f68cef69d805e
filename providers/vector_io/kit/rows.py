"""Sets of row numbers as arrays, for filters, and the selection of the best rows by score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_PER_GROUP = 32
_TABLE_SHARE = 16


@dataclass(frozen=True, slots=True)
class RowSet:
    """A set of rows or, if `negated`, its complement. Combines without a list of all rows.

    Attributes:
        rows: Ascending, distinct, int64, shape (n,).
        negated: True for the complement of `rows`.
    """

    rows: NDArray[np.int64]
    negated: bool = False

    def __invert__(self) -> RowSet:
        return RowSet(self.rows, not self.negated)

    def __and__(self, other: RowSet) -> RowSet:
        if self.negated and other.negated:
            return RowSet(np.union1d(self.rows, other.rows), negated=True)
        if self.negated or other.negated:
            included, excluded = (other, self) if self.negated else (self, other)
            return RowSet(np.setdiff1d(included.rows, excluded.rows, assume_unique=True))
        return RowSet(np.intersect1d(self.rows, other.rows, assume_unique=True))

    def __or__(self, other: RowSet) -> RowSet:
        return ~(~self & ~other)  # De Morgan

    def mask(self, rows: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return a mask, shape (n,), of the rows, ascending and distinct, that are in the set.

        A few rows are found by binary search. For many rows, each is looked up in a table, unless
        the table would be long.
        """
        inside: NDArray[np.bool_] = np.zeros(len(rows), dtype=np.bool_)
        last = int(self.rows[-1]) if len(self.rows) else 0
        if len(self.rows) * _TABLE_SHARE >= len(rows) and last <= len(rows) * _TABLE_SHARE:
            table = np.zeros(last + 2, dtype=np.bool_)
            table[self.rows] = True
            inside = table[np.minimum(rows, last + 1)]
        else:
            places = np.searchsorted(rows, self.rows)
            within = places < len(rows)
            places = places[within]
            inside[places[rows[places] == self.rows[within]]] = True
        return ~inside if self.negated else inside


def best_rows(scores: NDArray[Any], k: int, slack: float = 0.0) -> NDArray[np.intp]:
    """Return the indices of the k best scores and of all that tie with the k-th, best first.

    Args:
        scores: Shape (n,), higher is better.
        k: At least 1.
        slack: Maximum distance below the k-th best score that still counts as tied; for scores
            with rounding errors that are computed again exactly.

    Returns:
        Indices, by descending score, then ascending index. Cost: O(n).
    """
    if k < len(scores):
        last = np.partition(scores, len(scores) - k)[len(scores) - k]
        places = np.flatnonzero(scores >= last - slack)
    else:
        places = np.arange(len(scores))
    order: NDArray[np.intp] = places[np.argsort(-scores[places], kind="stable")]
    return order


def greatest_places(scores: NDArray[Any], k: int) -> NDArray[np.intp]:
    """Return the indices of the k greatest scores, in any order.

    At least k scores reach the k-th greatest of the groups' maxima, so smaller scores need no
    partition. This takes a fifth to a third of the time of one partition of all scores.

    Args:
        scores: Shape (n,), no NaN.
        k: 1 to n.
    """
    places, groups = None, len(scores) // _PER_GROUP
    if groups > k:
        # Neighbors often have similar scores, so each group takes scores that are far apart.
        best = scores[: groups * _PER_GROUP].reshape(_PER_GROUP, groups).max(axis=0)
        places = np.flatnonzero(scores >= np.partition(best, groups - k)[groups - k])
        scores = scores[places]
    chosen: NDArray[np.intp] = np.argpartition(scores, len(scores) - k)[len(scores) - k :]
    return chosen if places is None else places[chosen]
