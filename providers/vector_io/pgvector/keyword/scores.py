"""The scores of rows by the postings that were read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corral.providers.text.bm25 import K1, B
from corral.providers.vector_io.pgvector.keyword.postings import Pieces

UNIT = 2.0**32
"""Each term's share of a score is a whole number of 1 / UNIT. Sums of whole numbers do not depend
on their order, so equal texts have equal scores however they are added up; 1e-10 is lost."""

SCORED_AT_ONCE = 8192
"""Postings that are scored at a time."""

KEPT_BYTES = 2**24
"""Memory for a question of very common words, with room to spare."""

Scores = NDArray[np.float64]
RowScores = tuple[NDArray[np.int64], Scores]


def scores_of(pieces: Pieces, weights: Sequence[float], average: float) -> RowScores:
    """Return the rows of some pieces of postings, and their scores from these, in units.

    By the one definition of BM25 (`ranking/bm25.py`), some postings at a time: what is worked on
    stays in the processor's cache, which halves the time.

    Args:
        weights: Of each piece, the largest share of a score, in units.
        average: Average length of a chunk.
    """
    shares = np.repeat(np.array(weights, np.float64), pieces.sizes)
    for start in range(0, len(shares), SCORED_AT_ONCE):
        posted = pieces.posted[start : start + SCORED_AT_ONCE]
        share = shares[start : start + SCORED_AT_ONCE]
        frequency = posted["frequency"].astype(np.float64)
        norm = posted["length"].astype(np.float64)
        norm *= K1 * B
        norm /= average
        norm += frequency + K1 * (1.0 - B)
        share *= frequency
        share /= norm
        np.maximum(1.0, np.rint(share, out=share), out=share)
    return summed(pieces.rows, shares)


def keep_memory() -> None:
    """Have glibc keep what a query frees for the next one, and do nothing on other systems.

    It gives memory beyond a limit back to the system, which fills it with zeros for the next query:
    a fifth of the time of common words. The limit is twice the largest block that was ever freed
    (mallopt(3), M_MMAP_THRESHOLD), so it differed with what was searched before.
    """
    np.empty(KEPT_BYTES, np.uint8)


def kth_best(scores: Scores, k: int) -> float:
    """Return the k-th best score, 0 if there are fewer."""
    return (
        float(np.partition(scores, len(scores) - k)[len(scores) - k]) if len(scores) >= k else 0.0
    )


def summed(rows: NDArray[np.int64], shares: Scores) -> RowScores:
    """Return the distinct rows, ascending, and the sum of each one's shares, all above 0."""
    if not len(rows):
        return rows, shares
    if int(rows.max()) > 8 * len(rows):  # few postings in a large table: sorting them is cheaper
        distinct, place = np.unique(rows, return_inverse=True)
        return distinct, np.asarray(np.bincount(place, weights=shares), np.float64)
    total = np.asarray(np.bincount(rows, weights=shares), np.float64)
    held = np.flatnonzero(total)
    return held, total[held]
