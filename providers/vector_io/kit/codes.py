"""Embeddings quantized to int8, and an exact search over them.

A row x is stored as x = scale * code + residual, code in [-127, 127], with the length of the
residual. For a query q of length 1, quantized in the same way as q' with the residual p,

    q . x  =  q' . (scale * code)  +  p . (scale * code)  +  q . residual

and by the Cauchy-Schwarz inequality the first term, an integer product times two scales, has an
error of at most  |p| (|x| + |residual|) + |residual|.  The k rows with the greatest first terms are
scored exactly; at least k rows reach the lowest of these scores. A row is not among the k best if
its first term plus the bound is below that score. All other rows are scored exactly as well (a
filter-and-refine search with a lower-bounding distance: Seidl and Kriegel: "Optimal multi-step
k-nearest neighbor search", SIGMOD 1998). RFC 0008 has the figures.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from corral.api.errors import ProviderError
from corral.api.scoring import Metric
from corral.providers.vector_io.kit.exact import exact_scores, rounding_slack
from corral.providers.vector_io.kit.rows import greatest_places

numkong: Any = importlib.import_module("numkong")  # Its type stubs do not accept numpy arrays.

BYTES_BESIDES = 8
"""Number of bytes of a row's scale and residual."""
MIN_USABLE_SHARE = 0.05
"""Below this share of usable rows, they are copied out instead of masked."""

_MOST = 127
_BLOCK_ROWS = 4096  # Products and scores of this many rows fit the processor's cache.
_BLOCK_ROWS_ALONE = 131_072  # For a single query: each block may wait for the other leg's thread.
_TOGETHER = 16
_TOGETHER_BYTES = 2**27  # Maximum size of the scores of one pass.


@dataclass(frozen=True, slots=True)
class Codes:
    """Rows quantized to int8.

    Attributes:
        codes: In [-127, 127], int8, shape (n, dimension), contiguous.
        scales: Factor of each row's codes, float32, shape (n,).
        residuals: Upper bound for the length of each row's residual, float32, shape (n,).
    """

    codes: NDArray[np.int8]
    scales: NDArray[np.float32]
    residuals: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, places: NDArray[np.intp] | slice) -> Codes:
        """Return some of the rows."""
        return Codes(self.codes[places], self.scales[places], self.residuals[places])


def coded(matrix: NDArray[np.floating]) -> Codes:
    """Quantize rows.

    Args:
        matrix: Finite, shape (n, dimension). Not mutated.
    """
    wide = np.asarray(matrix, dtype=np.float32)
    largest = np.abs(wide).max(axis=1, initial=0.0)
    scales = np.maximum(largest / np.float32(_MOST), np.finfo(np.float32).tiny)
    codes = np.rint(wide / scales[:, None])
    left = wide - codes * scales[:, None]
    lengths = np.sqrt(np.einsum("ij,ij->i", left, left, dtype=np.float64))
    lengths += 1e-6 * largest  # covers the rounding errors of `left`
    return Codes(codes.astype(np.int8), scales, np.nextafter(lengths.astype(np.float32), np.inf))


Found = tuple[NDArray[np.intp], NDArray[np.float32]]
"""Row indices and their embeddings."""


def begun(
    scan: Scan,
    squared_norms: NDArray[np.float64],
    query: NDArray[np.float32],
    k: int,
    metric: Metric,
    usable: NDArray[np.bool_] | None,
    read: Callable[[NDArray[np.intp]], NDArray[np.float32]],
) -> Callable[[], Found]:
    """Enqueue a search; return a function that returns a superset of the k nearest rows.

    The query waits for a shared pass until the function is called. The result includes all rows
    that tie with the k-th nearest; `exact.nearest` selects the answer from it.

    Args:
        scan: The scan of all rows, shared with other queries; under cosine, the scales and
            residuals of its codes are for rows of length 1.
        squared_norms: Squared lengths of the embeddings, shape (n,).
        query: Shape (dimension,).
        k: At least 1.
        metric: The metric that defines near.
        usable: Mask of the rows that may be returned, shape (n,); None for all.
        read: Returns the embeddings at some row indices, shape (n, dimension).
    """
    stored = scan.stored
    k = min(k, len(stored) if usable is None else int(np.count_nonzero(usable)))
    if not k:
        none = np.empty(0, dtype=np.intp), np.empty((0, len(query)), dtype=np.float32)
        return lambda: none
    if usable is not None and np.count_nonzero(usable) < MIN_USABLE_SHARE * len(stored):
        return _begun_among(np.flatnonzero(usable), scan, squared_norms, query, k, metric, read)
    question = _Query(query, metric)
    scores = scan.ask(question.codes)

    def found() -> Found:
        rough = question.compared(scores(), squared_norms)
        if usable is not None:
            rough[~usable] = -np.inf
        first = greatest_places(rough, k)
        embeddings = read(first)
        least = question.comparable(exact_scores(embeddings, query, metric)).min()
        longest = squared_norms.max(keepdims=True)
        least -= 2 * rounding_slack(longest, question.scale, metric)
        near = question.reaching(least, rough, scan, squared_norms, float(np.sqrt(longest[0])))
        more = np.setdiff1d(near, first, assume_unique=True)
        if not len(more):
            return first, embeddings
        return np.concatenate([first, more]), np.concatenate([embeddings, read(more)])

    return found


def _begun_among(
    places: NDArray[np.intp],
    scan: Scan,
    squared_norms: NDArray[np.float64],
    query: NDArray[np.float32],
    k: int,
    metric: Metric,
    read: Callable[[NDArray[np.intp]], NDArray[np.float32]],
) -> Callable[[], Found]:
    """Do the work of `begun` if only a few rows are usable, given by their indices."""
    some, norms = Scan(scan.stored[places]), squared_norms[places]
    finish = begun(some, norms, query, k, metric, None, lambda rows: read(places[rows]))

    def found() -> Found:
        among, embeddings = finish()
        return places[among], embeddings

    return found


@cache
def products() -> Callable[..., Any]:
    """Return the function that multiplies codes, after one test of its results.

    The error bound holds only if the integer products are exact.

    Raises:
        ProviderError: The function multiplies wrongly on this processor.
    """
    codes = np.random.default_rng(0).integers(-_MOST, _MOST + 1, (9, 403), dtype=np.int8)
    expected = codes[:3].astype(np.int64) @ codes.T.astype(np.int64)
    one = np.asarray(numkong.cdist(codes[:1], codes, "dot"))
    three = np.asarray(numkong.dots_packed(codes, numkong.dots_pack(codes[:3]))).T
    if [*one.tolist(), *three.tolist()] != [*expected[:1].tolist(), *expected.tolist()]:
        raise ProviderError(
            "numkong multiplies bytes wrongly on this processor; answers would miss chunks.",
            hint="Install another version of numkong.",
        )
    return cast(Callable[..., Any], numkong.cdist)


class Scan:
    """Multiplies the stored codes with the codes of queries. Safe to use from many threads.

    Reading the codes takes longer than multiplying them. So queries that arrive during a pass share
    the next pass: sixteen queries take as long as one. A query never waits for others to arrive,
    and waits for at most one pass before its own.

    Args:
        stored: The codes of all rows.
        max_queries: Maximum number of queries of a pass.
        rows_alone: Number of rows per block if a pass has a single query.
    """

    def __init__(
        self,
        stored: Codes,
        *,
        max_queries: int = _TOGETHER,
        rows_alone: int = _BLOCK_ROWS_ALONE,
    ) -> None:
        self.stored = stored
        self._rows_alone = rows_alone
        self.largest_residual = float(stored.residuals.max(initial=0.0))
        self._together = max(1, min(max_queries, _TOGETHER_BYTES // (4 * len(stored) + 1)))
        self._waiting: list[_Asked] = []
        self._lock, self._turn = threading.Lock(), threading.Lock()

    def ask(self, query: Codes) -> Callable[[], NDArray[np.float32]]:
        """Enqueue a query of one row for the next pass.

        Returns:
            A function that returns the product of each row with the query, shape (n,).
        """
        mine = _Asked(query)
        with self._lock:
            self._waiting.append(mine)
        return partial(self._served, mine)

    def _served(self, mine: _Asked) -> NDArray[np.float32]:
        """Return the scores and drop them here: a batch may have more queries than a pass."""
        with self._turn:
            if mine.scores is None:
                self._pass(mine)
        scores, mine.scores = mine.scores, None
        return cast(NDArray[np.float32], scores)

    def _pass(self, mine: _Asked) -> None:
        """Run a pass for a query and the longest waiting queries.

        If the pass fails, each of the other queries runs its own pass. A query that never fetches
        its scores is served once and dropped.
        """
        with self._lock:
            others = [each for each in self._waiting if each is not mine]
            batch = [mine, *others][: self._together]
        try:
            queries = [each.query for each in batch]
            products = _multiplied(queries, self.stored, self._rows_alone)
            for each, scores in zip(batch, products, strict=True):
                each.scores = scores
        finally:
            with self._lock:
                self._waiting = [each for each in self._waiting if each not in batch]


@dataclass(slots=True, eq=False)
class _Asked:
    """A waiting query, and its scores after the pass."""

    query: Codes
    scores: NDArray[np.float32] | None = None


@cache
def _helpers() -> ThreadPoolExecutor:
    """Return threads that share a single query's pass: one core reads memory at half the speed."""
    return ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="scan")


def _multiplied(queries: list[Codes], stored: Codes, rows_alone: int) -> list[NDArray[np.float32]]:
    """Return the product of each row with each query."""
    multiply = products()
    codes = np.concatenate([query.codes for query in queries])
    own = np.concatenate([query.scales for query in queries])
    packed = numkong.dots_pack(codes) if len(codes) > 1 else None
    step = rows_alone if packed is None else _BLOCK_ROWS
    scores = [np.empty(len(stored), dtype=np.float32) for _ in queries]

    def multiply_block(start: int) -> None:
        part = slice(start, start + step)
        rows = stored.codes[part]
        products = (
            np.asarray(multiply(codes, rows, "dot"))
            if packed is None
            else np.asarray(numkong.dots_packed(rows, packed)).T
        )
        for one, row, scale in zip(scores, products, own, strict=True):
            np.multiply(
                row, stored.scales[part] * scale, out=one[part], dtype=np.float32, casting="unsafe"
            )

    starts = range(0, len(stored), step)
    if packed is None and len(starts) > 1:
        list(_helpers().map(multiply_block, starts))
    else:
        for start in starts:
            multiply_block(start)
    return scores


class _Query:
    """A query in the form that is compared with codes.

    The compared value is the product with the query's direction; for L2 it is the squared length of
    the query minus the squared distance.
    """

    def __init__(self, query: NDArray[np.float32], metric: Metric) -> None:
        wide = query.astype(np.float64)
        self.length = float(np.linalg.norm(wide)) or 1.0
        self.unit = (wide / self.length).astype(np.float32)
        self.scale = query if metric is Metric.L2 else self.unit
        self._metric = metric
        self.codes = coded(self.unit[None])

    def reaching(
        self,
        least: float,
        rough: NDArray[np.floating],
        scan: Scan,
        squared_norms: NDArray[np.float64],
        longest: float,
    ) -> NDArray[np.intp]:
        """Return the indices of the rows that may reach a score; `longest` is the largest norm."""
        stored = scan.stored
        most = self._error(scan.largest_residual, 1.0 if self._metric is Metric.COSINE else longest)
        near = np.flatnonzero(rough >= least - most)
        norms = 1.0 if self._metric is Metric.COSINE else np.sqrt(squared_norms[near])
        near = near[rough[near] + self._error(stored.residuals[near], norms) >= least]
        # The unquantized query gives a tighter bound and leaves fewer rows.
        some = stored[near]
        uncoded = (some.codes.astype(np.float32) @ self.unit) * some.scales
        finer = self.compared(uncoded, squared_norms[near])
        slack = self._factor * some.residuals.astype(np.float64)  # in float32, 1e-50 would be 0
        left: NDArray[np.intp] = near[finer + slack >= least]
        return left

    def comparable(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert raw scores to the scale of `rough`."""
        if self._metric is Metric.L2:
            return self.length**2 - scores**2
        return scores if self._metric is Metric.COSINE else scores / self.length

    def compared(
        self, scores: NDArray[np.float32], squared_norms: NDArray[np.float64]
    ) -> NDArray[np.float32] | NDArray[np.float64]:
        """Convert products of codes to approximate scores, shape (n,)."""
        if self._metric is Metric.L2:
            return self._factor * scores.astype(np.float64) - squared_norms
        return scores

    @property
    def _factor(self) -> float:
        return 2 * self.length if self._metric is Metric.L2 else 1.0

    def _error(self, residuals: Any, norms: Any) -> Any:
        own = float(self.codes.residuals[0])
        return self._factor * (own * (norms + residuals) + residuals)
