"""What a score means: in [0, 1], finite, higher is better, for every provider, metric and mode.

Providers hand over *raw* relevance (higher is better, unbounded); this module is the only place
that turns it into a score, so that a `score_threshold` means the same everywhere.

| leg     | metric                     | raw                      | score              |
|---------|----------------------------|--------------------------|--------------------|
| vector  | any, normalized embeddings | cosine in [-1, 1]        | (1 + cos) / 2      |
| vector  | l2, `normalize: false`     | minus the distance, <= 0 | 1 / (1 + d)        |
| vector  | dot, `normalize: false`    | inner product            | 1 / (1 + exp(-ip)) |
| keyword | BM25                       | s >= 0                   | s / (1 + s)        |

On unit vectors the inner product is the cosine and the squared L2 distance is 2 - 2 cos, so the
three metrics give the same score. A cosine within `SINGLE_PRECISION_SLACK` of 1 counts as 1, on
every engine, so that an embedding finds itself with the score 1.

s / (1 + s) is the bounded form that PostgreSQL documents for text ranks as normalization 32
(PostgreSQL manual, section 12.3.3).
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
"""Largest absolute value of an embedding's component: its square still fits a float32."""

SINGLE_PRECISION_SLACK = 1e-5
"""Bound of the rounding error of a single-precision product, relative to the vectors' lengths;
measured below 1e-6 at 384 dimensions and below 6e-6 at 16,000."""

ROWS_AT_ONCE = 1024
"""Rows that are checked at a time: copies in double precision take memory."""


class Metric(StrEnum):
    """Similarity of two embeddings. With normalized embeddings all three rank alike."""

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
        raw: Cosine in [-1, 1] where `normalized` or the metric is cosine; otherwise minus the L2
            distance (<= 0), or the inner product (any finite number).
        metric: The metric of the vector DB.
        normalized: Whether its embeddings are unit vectors (the default registration).
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
    """Return a cosine that engines computed in single precision; 1 if it may be 1.

    An embedding of length 1 has that length within rounding only, and engines round on. Without
    this a text would be found by itself with a score below 1, and not pass `score_threshold: 1`.

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

    It is raw / (1 + raw), written so that rounding never gives the better one the lower score: each
    step here is monotone, while in the quotient numerator and denominator are rounded apart.
    """
    return 1.0 / (1.0 + 1.0 / raw) if raw > 0 else 0.0


def competition_ranks(scores: Sequence[float]) -> list[int]:
    """Give each of some scores, sorted from best to worst, its rank from 1; equal scores share one.

    SQL's `rank()`, not `row_number()`, so that ties do not depend on chance.

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
        embeddings: Shape (n, dimension), any real dtype. It is not modified.
        dimension: The dimension registered with the vector DB.
        metric: The metric registered with the vector DB.
        normalize: Whether to scale each row to length 1 (the default, so that a provider may use
            its cheapest operator).
        field: The request's name for the embeddings, for the error.

    Raises:
        InvalidEmbedding: Not numbers, wrong shape, NaN, infinity, a component beyond 1e15, or a
            zero vector where a direction is needed (cosine, or `normalize`).
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
    for first in range(0, max(1, len(given)), ROWS_AT_ONCE):
        rows = given[first : first + ROWS_AT_ONCE]
        checked = _checked_rows(rows, first, dimension, metric, normalize, field)
        result[first : first + ROWS_AT_ONCE] = checked
    return result


def _checked_rows(
    given: NDArray[Any], first: int, dimension: int, metric: Metric, normalize: bool, field: str
) -> NDArray[np.float32]:
    """Return some rows as `check_embeddings` does; `first` is the number of the first one."""
    # A copy in double precision: a huge number must be seen before float32 makes it infinite.
    array = np.array(given, dtype=np.float64, ndmin=2)
    _check_values(array, first, dimension, field)
    if normalize:
        with np.errstate(invalid="ignore"):  # a zero row becomes NaN, which the next step refuses
            array /= np.abs(array).max(axis=1, keepdims=True)  # first, so that tiny rows survive
            array /= np.linalg.norm(array, axis=1, keepdims=True)
    result = np.ascontiguousarray(array, dtype=np.float32)
    if normalize or metric is Metric.COSINE:
        _check_directions(result, first, field)
    return result


def _as_array(embeddings: ArrayLike) -> NDArray[Any]:
    """Return embeddings as an array, of a list one row at a time.

    One call would hold the interpreter until all numbers are read, and with it every other thread.
    """
    if isinstance(embeddings, list) and embeddings and isinstance(embeddings[0], list):
        return np.stack([np.asarray(row) for row in embeddings])
    return np.asarray(embeddings)


def _check_directions(array: NDArray[np.float32], first: int, field: str) -> None:
    """Refuse rows without a direction, as an engine that computes in float32 sees them."""
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
        found = array.shape[1]
        raise InvalidEmbedding(
            f"The embedding has {found} dimensions, the vector DB has {dimension}.",
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
