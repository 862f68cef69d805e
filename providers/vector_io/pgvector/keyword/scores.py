"""Scores of rows, computed from the postings that were read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corral.providers.text.bm25 import K1, B
from corral.providers.vector_io.pgvector.keyword.postings import Pieces

UNIT = 2.0**32
"""Each term's share of a score is a multiple of 1 / UNIT. Sums of integers do not depend on their
order, so equal texts get equal scores; the rounding error is 1e-10."""

SCORED_AT_ONCE = 8192
"""Postings scored per pass."""

KEPT_BYTES = 2**24
"""Memory for a query of very common words, with a margin."""

Scores = NDArray[np.float64]
RowScores = tuple[NDArray[np.int64], Scores]


def scores_of(pieces: Pieces, weights: Sequence[float], average: float) -> RowScores:
    """Return the rows in these pieces of postings, and their scores in units.

    The scores follow the definition of BM25 (`providers/text/bm25.py`). Postings are processed in
    parts that fit the processor's cache, which halves the time.

    Args:
        weights: Maximum share of a score for each piece, in units.
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
    """Make glibc keep freed memory for the next query; do nothing on other systems.

    By default glibc returns large blocks to the system, which zeroes them for the next query; this
    takes a fifth of the time of a query of common words. The default threshold depends on the
    largest block freed so far (mallopt(3), M_MMAP_THRESHOLD), and so on earlier queries.
    """
    np.empty(KEPT_BYTES, np.uint8)


def kth_best(scores: Scores, k: int) -> float:
    """Return the k-th best score, 0 if there are fewer."""
    return (
        float(np.partition(scores, len(scores) - k)[len(scores) - k]) if len(scores) >= k else 0.0
    )


def summed(rows: NDArray[np.int64], shares: Scores) -> RowScores:
    """Return the distinct rows, ascending, and the sum of each row's shares, all above 0."""
    if not len(rows):
        return rows, shares
    if int(rows.max()) > 8 * len(rows):  # few postings in a large table: sorting is cheaper
        distinct, place = np.unique(rows, return_inverse=True)
        return distinct, np.asarray(np.bincount(place, weights=shares), np.float64)
    total = np.asarray(np.bincount(rows, weights=shares), np.float64)
    held = np.flatnonzero(total)
    return held, total[held]
