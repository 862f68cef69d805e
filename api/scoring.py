"""Scores: in [0, 1], finite, higher is better, for every provider, metric and mode.

Providers return *raw* relevance (higher is better, unbounded); only this module converts it into a
score, so that a `score_threshold` means the same everywhere.

| leg     | metric                     | raw                      | score              |
|---------|----------------------------|--------------------------|--------------------|
| vector  | any, normalized embeddings | cosine in [-1, 1]        | (1 + cos) / 2      |
| vector  | l2, `normalize: false`     | minus the distance, <= 0 | 1 / (1 + d)        |
| vector  | dot, `normalize: false`    | inner product            | 1 / (1 + exp(-ip)) |
| keyword | BM25                       | s >= 0                   | s / (1 + s)        |

On unit vectors the inner product is the cosine and the squared L2 distance is 2 - 2 cos, so the
three metrics give the same score. A cosine within `SINGLE_PRECISION_SLACK` of 1 counts as 1, on
every engine, so that an embedding matches itself with the score 1.

s / (1 + s) is PostgreSQL's normalization 32 of text ranks (PostgreSQL manual, section 12.3.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corral.api.errors import InvalidEmbedding

LARGEST_COMPONENT = 1e15
"""Largest absolute value of an embedding's component; its square still fits a float32."""

SINGLE_PRECISION_SLACK = 1e-5
"""Bound of the rounding error of a single-precision product, relative to the vectors' lengths;
measured below 1e-6 at 384 dimensions and below 6e-6 at 16,000."""

BATCH_ROWS = 1024
"""Rows to check at a time, which bounds the memory of the double-precision copy."""


class Metric(StrEnum):
    """Similarity of two embeddings. With normalized embeddings all three rank identically."""

    COSINE = "cosine"
    L2 = "l2"
    DOT = "dot"


def vector_score(raw: float, metric: Metric = Metric.COSINE, *, normalized: bool = True) -> float:
    """Turn a raw vector relevance into a score in [0, 1], monotonically.

    Examples:
        >>> vector_score(0.5)
        0.75
        >>> vector_score(-3.0, Metric.L2, normalized=False)
        0.25

    Args:
        raw: Cosine in [-1, 1] if `normalized` or the metric is cosine; otherwise minus the L2
            distance (<= 0), or the inner product (any finite number).
        metric: The metric of the vector DB.
        normalized: True if the embeddings are unit vectors, the default registration.
    """
    if normalized or metric is Metric.COSINE:
        return min(1.0, max(0.0, (1.0 + raw) / 2.0))
    if metric is Metric.L2:
        return 1.0 / (1.0 + max(0.0, -raw))
    if raw >= 0:
        return 1.0 / (1.0 + math.exp(-raw))
    power = math.exp(max(raw, -700.0))  # exp(-raw) overflows below -709
    return power / (1.0 + power)


def whole_cosine(cosine: float) -> float:
    """Round a single-precision cosine up to 1 if it differs from 1 by rounding only.

    Otherwise a query with a chunk's own text could score below 1 and fail `score_threshold: 1`,
    because both the length of a unit vector and the engine's product are rounded.

    Examples:
        >>> whole_cosine(0.99999998)
        1.0
    """
    return 1.0 if cosine >= 1.0 - SINGLE_PRECISION_SLACK else cosine


def keyword_score(raw: float) -> float:
    """Turn a raw keyword relevance (BM25, >= 0, unbounded) into a score in [0, 1].

    Examples:
        >>> keyword_score(3.0)
        0.75

    The formula is raw / (1 + raw), rewritten so that rounding never reverses two scores: each step
    here is monotone, but the quotient's numerator and denominator would be rounded separately.
    """
    return 1.0 / (1.0 + 1.0 / raw) if raw > 0 else 0.0


def competition_ranks(scores: Sequence[float]) -> list[int]:
    """Return the rank, from 1, of each score in a descending list; equal scores share a rank.

    It is SQL's `rank()`, not `row_number()`, so that ties do not depend on chance.

    Examples:
        >>> competition_ranks([0.9, 0.7, 0.7, 0.1])
        [1, 2, 2, 4]
    """
    ranks: list[int] = []
    for position, score in enumerate(scores):
        tied = position > 0 and score == scores[position - 1]
        ranks.append(ranks[-1] if tied else position + 1)
    return ranks


def check_embeddings(
    embeddings: ArrayLike,
    *,
    dimension: int,
    metric: Metric = Metric.COSINE,
    normalize: bool = True,
    field: str = "embedding",
) -> NDArray[np.float32]:
    """Check embeddings and return them as a C-contiguous float32 array of shape (n, dimension).

    Args:
        embeddings: Shape (n, dimension), any real dtype. Not mutated.
        dimension: The dimension registered with the vector DB.
        metric: The metric registered with the vector DB.
        normalize: True to scale each row to length 1 (default), so that a provider can use its
            cheapest operator.
        field: The request field of the embeddings, for errors.

    Raises:
        InvalidEmbedding: The input is not numeric, has the wrong shape, NaN, infinity or a
            component beyond 1e15, or a zero vector under cosine or with `normalize`.
    """
    try:
        given = _as_array(embeddings)
        if given.dtype.kind not in "iuf":  # strings, booleans, None, complex or huge numbers
            raise TypeError(f"dtype {given.dtype}")
    except (TypeError, ValueError) as error:
        raise InvalidEmbedding(
            "The embedding is not a list of numbers of equal length.",
            hint=f"Send {dimension} numbers.",
            field=field,
        ) from error
    if given.ndim != 2:
        return _checked_rows(given, 0, dimension, metric, normalize, field)
    result = np.empty((len(given), dimension), np.float32)
    for first in range(0, max(1, len(given)), BATCH_ROWS):
        rows = given[first : first + BATCH_ROWS]
        checked = _checked_rows(rows, first, dimension, metric, normalize, field)
        result[first : first + BATCH_ROWS] = checked
    return result


def _checked_rows(
    given: NDArray[Any], first: int, dimension: int, metric: Metric, normalize: bool, field: str
) -> NDArray[np.float32]:
    """Return a block of checked rows; `first` is the number of its first row."""
    # Copy in double precision, to detect huge numbers before float32 turns them into infinity.
    array = np.array(given, dtype=np.float64, ndmin=2)
    _check_values(array, first, dimension, field)
    if normalize:
        with np.errstate(invalid="ignore"):  # a zero row becomes NaN; the next step rejects it
            array /= np.abs(array).max(axis=1, keepdims=True)  # first, so that tiny rows survive
            array /= np.linalg.norm(array, axis=1, keepdims=True)
    result = np.ascontiguousarray(array, dtype=np.float32)
    if normalize or metric is Metric.COSINE:
        _check_directions(result, first, field)
    return result


def _as_array(embeddings: ArrayLike) -> NDArray[Any]:
    """Return embeddings as an array; convert a list of lists row by row.

    A single call would hold the interpreter lock, and block all threads, until it ends.
    """
    if isinstance(embeddings, list) and embeddings and isinstance(embeddings[0], list):
        return np.stack([np.asarray(row) for row in embeddings])
    return np.asarray(embeddings)


def _check_directions(array: NDArray[np.float32], first: int, field: str) -> None:
    """Reject rows that are zero in float32, the precision of the engines."""
    without = ~(np.linalg.norm(array, axis=1) > 0)
    if without.any():
        row = first + int(np.flatnonzero(without)[0])
        raise InvalidEmbedding(
            f"Embedding {row} is a zero vector, which has no direction to compare.",
            hint="Leave the text out, or register the vector DB with metric l2 or dot and "
            "normalize: false.",
            field=field,
        )


def _check_values(array: NDArray[np.float64], first: int, dimension: int, field: str) -> None:
    if array.ndim != 2:
        raise InvalidEmbedding(
            f"Embeddings must be a list of lists of numbers (got {array.ndim} levels).", field=field
        )
    if array.shape[1] != dimension:
        dimensions = array.shape[1]
        raise InvalidEmbedding(
            f"The embedding has {dimensions} dimensions, the vector DB has {dimension}.",
            hint="Use the embedding model that the vector DB was registered with.",
            field=field,
        )
    bad = ~((array <= LARGEST_COMPONENT) & (array >= -LARGEST_COMPONENT))  # NaN is neither
    if bad.any():
        row, column = (int(n) for n in np.argwhere(bad)[0])
        raise InvalidEmbedding(
            f"Embedding {first + row} holds {array[row, column]} at position {column}.",
            hint=f"Every component must be a finite number within ±{LARGEST_COMPONENT:.0e}.",
            field=field,
        )
