"""Embeddings in one byte a number: the candidates hold the exact answer, whatever the data."""

from __future__ import annotations

import threading
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from corral.api.errors import ProviderError
from corral.api.scoring import Metric
from corral.providers.vector_io.kit import codes as codes_module
from corral.providers.vector_io.kit.codes import Codes, Scan, begun, coded, products
from corral.providers.vector_io.kit.exact import Nearest, nearest

DIMENSION = 24


def rows_of(kind: str, count: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return embeddings of some kind, none of them zero."""
    plain = rng.standard_normal((count, DIMENSION)).astype(np.float32)
    near = plain[rng.integers(0, min(3, count), count)]
    kinds = {
        "plain": plain,
        "clusters": near + 0.2 * plain,
        "nearly equal": plain[:1] + np.float32(1e-3) * plain,
        "equal": near,
        "one large number": plain * np.where(np.arange(DIMENSION) == 3, np.float32(1e3), 1),
        "lengths apart": plain
        * np.float32(10) ** rng.integers(-4, 5, (count, 1)).astype(np.float32),
        "whole": np.rint(np.clip(40 * plain, -126, 126)) + 127 * np.eye(DIMENSION)[:1],
        "tiny": plain * np.float32(1e-30),
        "huge": plain * np.float32(1e18),
    }
    return kinds[kind].astype(np.float32)


def both(
    matrix: NDArray[np.float32],
    query: NDArray[np.float32],
    k: int,
    metric: Metric,
    usable: NDArray[np.bool_] | None = None,
) -> tuple[Nearest, Nearest, int]:
    """Return the answer among the candidates, the one among all rows, and how many were read."""
    norms = (matrix.astype(np.float64) ** 2).sum(axis=1)
    codes = coded(matrix)
    if metric is Metric.COSINE:
        unit = 1 / np.sqrt(norms)
        codes = Codes(
            codes.codes,
            (codes.scales * unit).astype(np.float32),
            (codes.residuals * unit).astype(np.float32),
        )
    places, read = begun(Scan(codes), norms, query, k, metric, usable, lambda p: matrix[p])()
    assert read.tolist() == matrix[places].tolist()
    assert len(set(places.tolist())) == len(places)
    order = np.argsort(places)
    found = nearest(places[order], read[order], query, k, metric)
    every = np.arange(len(matrix)) if usable is None else np.flatnonzero(usable)
    return found, nearest(every, matrix[every], query, k, metric), len(places)


@settings(max_examples=60)
@given(
    kind=st.sampled_from(
        [
            "plain",
            "clusters",
            "nearly equal",
            "equal",
            "one large number",
            "lengths apart",
            "whole",
            "tiny",
            "huge",
        ]
    ),
    metric=st.sampled_from(list(Metric)),
    count=st.integers(1, 300),
    k=st.integers(1, 40),
    share=st.sampled_from([None, 0.0, 0.03, 0.5]),
    seed=st.integers(0, 10**6),
)
@example("tiny", Metric.L2, 203, 31, 0.5, 15432)  # what a residual adds is below single precision
def test_the_answer_is_the_exact_one(
    kind: str, metric: Metric, count: int, k: int, share: float | None, seed: int
) -> None:
    """Rows, order and scores, ties at the cut included, equal those of comparing every embedding.

    If this fails: the bound is too tight, or something is left out of it (the query's own coding,
    a row's length, rounding).
    """
    rng = np.random.default_rng(seed)
    matrix = rows_of(kind, count, rng)
    query = matrix[rng.integers(count)] * np.float32(rng.choice([0.1, 1, 3]))
    query = query + np.float32(0.1 * np.abs(query).mean()) * rng.standard_normal(DIMENSION)
    usable = None if share is None else rng.random(count) < share
    found, expected, _ = both(matrix, query.astype(np.float32), k, metric, usable)
    assert found.rows.tolist() == expected.rows.tolist()
    assert found.scores.tolist() == expected.scores.tolist()


@pytest.mark.parametrize("metric", list(Metric))
def test_what_codes_cannot_tell_apart_is_compared(metric: Metric) -> None:
    """Rows with equal codes are ordered by their own numbers."""
    base = np.linspace(-1, 1, DIMENSION, dtype=np.float32)
    steps = np.arange(50, dtype=np.float32)[::-1, None] * np.float32(1e-5)
    matrix = base + steps * np.eye(DIMENSION, dtype=np.float32)[5]
    assert len(np.unique(coded(matrix).codes, axis=0)) == 1
    query = np.eye(DIMENSION, dtype=np.float32)[5]
    found, expected, _ = both(matrix, query, 7, metric)
    assert found.rows.tolist() == expected.rows.tolist()


def test_few_rows_are_read() -> None:
    """The bound is tight enough to be of use: of 5,000 rows in clusters under 200 are compared.

    If this fails: answers are right, and a search reads far more of the file than it needs to.
    """
    rng = np.random.default_rng(1)
    centers = rng.standard_normal((50, 384), dtype=np.float32)
    matrix = centers[rng.integers(0, 50, 5000)] + 0.7 * rng.standard_normal((5000, 384))
    unit = (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).astype(np.float32)
    for number in range(5):
        query = unit[number] + np.float32(0.02) * rng.standard_normal(384).astype(np.float32)
        found, expected, read = both(unit, query, 10, Metric.DOT)
        assert found.rows.tolist() == expected.rows.tolist()
        assert read < 200


def test_what_the_query_leaves_out_counts_too() -> None:
    """Where codes are the rows themselves, only the query's own rest can mislead."""
    rng = np.random.default_rng(4)
    matrix = rng.integers(-60, 60, (4000, 384)).astype(np.float32)
    matrix[:, 0] = 127
    assert coded(matrix).residuals.max() < 1e-3
    for _ in range(10):
        query = rng.standard_normal(384).astype(np.float32)
        query[1] = 40  # its other numbers take few steps
        found, expected, _ = both(matrix, query, 3, Metric.DOT)
        assert found.rows.tolist() == expected.rows.tolist()


def test_codes_and_residuals_add_up() -> None:
    """A row is scale times code plus a rest that is no longer than its stored length."""
    rng = np.random.default_rng(2)
    for kind in ("plain", "one large number", "tiny", "huge"):
        matrix = np.vstack([rows_of(kind, 20, rng), np.zeros((1, DIMENSION), np.float32)])
        codes = coded(matrix)
        assert codes.codes.dtype == np.int8
        assert np.abs(codes.codes.astype(int)).max() <= 127
        scaled = codes.codes.astype(np.float64) * codes.scales[:, None].astype(np.float64)
        rest = np.linalg.norm(matrix.astype(np.float64) - scaled, axis=1)
        assert (rest <= codes.residuals).all()
        assert (
            codes.residuals[:20] < 0.1 * np.linalg.norm(matrix[:20].astype(float), axis=1)
        ).all()


def test_a_processor_that_multiplies_wrongly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products that are off are an error, not an answer that misses chunks."""
    products.cache_clear()
    right = codes_module.numkong.cdist
    with monkeypatch.context() as patched:
        patched.setattr(codes_module.numkong, "cdist", lambda *a: np.asarray(right(*a)) + 1)
        with pytest.raises(ProviderError, match="numkong multiplies bytes wrongly"):
            products()
    ones = np.ones((2, 5), np.int8)
    assert np.asarray(products()(ones[:1], ones, "dot")).tolist() == [[5, 5]]


def test_a_processor_that_multiplies_several_wrongly_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The products of several queries at once are tried too: another part of the library."""
    products.cache_clear()
    right = codes_module.numkong.dots_packed
    with monkeypatch.context() as patched:
        patched.setattr(codes_module.numkong, "dots_packed", lambda *a: np.asarray(right(*a)) + 1)
        with pytest.raises(ProviderError, match="numkong multiplies bytes wrongly"):
            products()


class Passes:
    """Counts the passes over the codes, and holds the first one up until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.began, self.go_on = threading.Event(), threading.Event()
        self._multiplied = codes_module._multiplied
        monkeypatch.setattr(codes_module, "_multiplied", self._counted)

    def _counted(
        self, queries: list[Codes], stored: Codes, rows_alone: int
    ) -> list[NDArray[np.float32]]:
        self.sizes.append(len(queries))
        self.began.set()
        assert self.go_on.wait(60)
        return self._multiplied(queries, stored, rows_alone)


def scores_of(scan: Scan, query: Codes) -> NDArray[np.float32]:
    """Return the scores of one query, asked at once."""
    return scan.ask(query)()


def all_at_once(scan: Scan, queries: list[Codes], passes: Passes) -> list[Future[Any]]:
    """Ask one query, and the others while its pass is under way."""
    with ThreadPoolExecutor(len(queries)) as pool:
        first = pool.submit(scores_of, scan, queries[0])
        assert passes.began.wait(60)
        others = [pool.submit(scores_of, scan, query) for query in queries[1:]]
        deadline = time.monotonic() + 60
        while len(scan._waiting) < len(queries) and time.monotonic() < deadline:
            time.sleep(0.001)
        passes.go_on.set()
        return [first, *others]


def test_blocks_in_several_threads_are_one_pass() -> None:
    """A pass over many blocks multiplies every row once, for itself and beside other passes.

    If this fails: from 131,073 chunks on, answers miss chunks or hold wrong ones.
    """
    rng = np.random.default_rng(5)
    stored, asked = coded(rows_of("plain", 400, rng)), coded(rows_of("plain", 8, rng))
    products_ = asked.codes.astype(np.int64) @ stored.codes.T.astype(np.int64)
    expected = products_ * (stored.scales * asked.scales[:, None])

    def scores(number: int) -> NDArray[np.float32]:
        return scores_of(Scan(stored, rows_alone=37), asked[np.array([number])])

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(scores, [0, 1, 2, 3, 4, 5, 6, 7]))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_queries_that_wait_share_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five queries that come during a pass take one more, and each gets what it gets alone.

    If this fails: many users read the codes as often as they ask, or get each other's answers.
    """
    rng = np.random.default_rng(5)
    stored = coded(rng.standard_normal((9000, DIMENSION)))
    queries = [coded(rng.standard_normal((1, DIMENSION))) for _ in range(6)]
    alone = [scores_of(Scan(stored), query) for query in queries]
    passes = Passes(monkeypatch)
    found = all_at_once(Scan(stored), queries, passes)
    assert passes.sizes == [1, 5]
    for future, expected in zip(found, alone, strict=True):
        assert future.result().tolist() == expected.tolist()


def test_a_pass_keeps_no_scores_that_were_taken() -> None:
    """Scores of a million rows take 4 MB a query: a batch holds those of one pass at most.

    If this fails: 64 users of a million chunks take a quarter of a gigabyte more.
    """
    rng = np.random.default_rng(7)
    scan = Scan(coded(rng.standard_normal((50, DIMENSION))), max_queries=3)
    begun = [scan.ask(coded(rng.standard_normal((1, DIMENSION)))) for _ in range(8)]
    held: list[weakref.ref[Any]] = []
    for finish in begun:
        held.append(weakref.ref(finish()))
        assert len(scan._waiting) <= 5
    assert [each() for each in held] == [None] * 8


def test_a_pass_that_fails_harms_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error reaches the query whose turn it is; the others are tried again on their own."""
    rng = np.random.default_rng(6)
    stored = coded(rng.standard_normal((50, DIMENSION)))
    wrong, right = (coded(rng.standard_normal((1, size))) for size in (DIMENSION + 1, DIMENSION))
    scan, passes = Scan(stored), Passes(monkeypatch)
    found = all_at_once(scan, [right, wrong, right], passes)
    assert found[0].exception() is None
    assert found[1].exception() is not None
    assert scores_of(scan, right).tolist() == found[0].result().tolist()
    assert not scan._waiting
