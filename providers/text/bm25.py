"""BM25, defined once for every engine, so that keyword scores agree across backends.

    score(q, d) = sum over the terms t of q of  idf(t) * term_weight(f(t, d), len(d), avg)

Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", section
3.4 (Foundations and Trends in Information Retrieval 3(4), 2009), with the idf of Lucene's
`BM25Similarity`: its added 1 keeps the logarithm above zero for terms in more than half of the
documents. Lucene has dropped the constant factor (k1 + 1), which does not change the order. Corral
keeps it, like the paper and SQLite's `bm25()`, since the score of a hit depends on it.

The sum splits into a part of the document and a part of the query. So an engine without BM25 but
with sparse inner products stores `term_weight` and queries with `idf`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import overload

import numpy as np
from numpy.typing import NDArray

K1 = 1.2
"""Saturation of repeated occurrences of a term, >= 0. Lucene's and SQLite's default."""

B = 0.75
"""Weight of the length of a document, in [0, 1]. Lucene's and SQLite's default."""

FloatArray = NDArray[np.float64]
Numbers = NDArray[np.floating] | NDArray[np.integer]


@overload
def idf(document_frequency: int, count: int) -> float: ...
@overload
def idf(document_frequency: Numbers, count: int) -> FloatArray: ...
def idf(document_frequency: int | Numbers, count: int) -> float | FloatArray:
    """Return the weight of a term: ln(1 + (N - n + 0.5) / (n + 0.5)), > 0 and falling in n.

    Args:
        document_frequency: n, the number of documents that contain the term, in [0, count]; a
            number or an array of any shape.
        count: N, the number of documents, >= 0.

    Returns:
        A float, or float64 of the shape of `document_frequency`.

    Raises:
        ValueError: n is negative or larger than N: the statistics are broken.
    """
    if isinstance(document_frequency, np.ndarray):
        n = document_frequency.astype(np.float64)
        if n.size and not (n.min() >= 0 and n.max() <= count):
            raise ValueError(f"document frequencies outside [0, {count}]")
        return np.log1p((count - n + 0.5) / (n + 0.5))
    if not 0 <= document_frequency <= count:
        raise ValueError(f"document frequency {document_frequency} outside [0, {count}]")
    return math.log1p((count - document_frequency + 0.5) / (document_frequency + 0.5))


@overload
def term_weight(
    frequency: float, length: float, average_length: float, *, k1: float = K1, b: float = B
) -> float: ...
@overload
def term_weight(
    frequency: Numbers,
    length: float | Numbers,
    average_length: float,
    *,
    k1: float = K1,
    b: float = B,
) -> FloatArray: ...
def term_weight(
    frequency: float | Numbers,
    length: float | Numbers,
    average_length: float,
    *,
    k1: float = K1,
    b: float = B,
) -> float | FloatArray:
    """Return the saturated weight of a term in a document: f (k1 + 1) / (f + k1 norm).

    norm = 1 - b + b * length / average_length. The weight is 0 for f = 0, 1 for f = 1 in a document
    of average length, and stays below k1 + 1 (2.2 by default).

    Args:
        frequency: f, the number of occurrences of the term in the document, >= 0; a number, or an
            array of any shape.
        length: Number of terms in the document, >= 0; a number, or, if `frequency` is an array, an
            array that broadcasts with it.
        average_length: Mean number of terms of a document of the vector DB, > 0.
        k1: Saturation; only re-rankers change it. With k1 = 0, only the presence of a term counts,
            and frequencies must be above 0.
        b: Weight of the length; only re-rankers change it.

    Returns:
        A float, or float64 of the broadcast shape.

    Raises:
        ValueError: The average length is not above 0: no document has a term.
    """
    if not average_length > 0:
        raise ValueError(f"average length {average_length}; it must be above 0")
    norm = 1.0 - b + np.asarray(length, np.float64) * (b / average_length)
    f = np.asarray(frequency, np.float64)
    weight: FloatArray = f * (k1 + 1.0) / (f + k1 * norm)
    return weight if isinstance(frequency, np.ndarray) else float(weight)


def greatest(terms: Iterable[tuple[int, int]], count: int) -> float:
    """Return the upper bound of a query's scores: (k1 + 1) * sum of times * idf.

    A term in no document counts too, with the largest idf, because a document that answers the
    query would contain it. Callers leave such a term out if it is a term beside the words of the
    query (`Analyzer.analyze`), as the words have the same meaning.

    Examples:
        >>> round(greatest([(1, 0), (2, 3)], 10), 3)  # 2.2 * (ln 22 + 2 ln(1 + 7.5 / 3.5))
        11.839

    Args:
        terms: For each term, its number in the query and the number of documents that contain it; a
            number above `count`, which a write between two counts can cause, counts as `count`.
        count: N, the number of documents, >= 0.

    Returns:
        A float >= 0; 0 for a query without a term.
    """
    return (K1 + 1.0) * sum(times * idf(min(held, count), count) for times, held in terms)
