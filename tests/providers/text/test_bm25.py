"""BM25: the two halves of the formula, by hand and against SQLite's own."""

from __future__ import annotations

import math

import apsw
import numpy as np
import pytest

from corral.providers.text.bm25 import K1, B, idf, term_weight


def test_parameters() -> None:
    """The parameters are Lucene's and SQLite's defaults; scores on disk and on the wire need it."""
    assert (K1, B) == (1.2, 0.75)


@pytest.mark.parametrize(
    ("frequency", "count", "expected"),
    [
        (0, 0, math.log(2)),  # (0 + 0.5) / 0.5 = 1
        (1, 1, math.log(4 / 3)),  # 0.5 / 1.5 = 1/3
        (1, 2, math.log(2)),  # 1.5 / 1.5 = 1
        (3, 10, math.log(22 / 7)),  # 7.5 / 3.5 = 15/7
        (10, 10, math.log(22 / 21)),  # 0.5 / 10.5 = 1/21
    ],
)
def test_idf(frequency: int, count: int, expected: float) -> None:
    """idf is ln(1 + (N - n + 0.5) / (n + 0.5)), above 0 even for a term in every document."""
    assert idf(frequency, count) == pytest.approx(expected, rel=1e-15)
    assert idf(frequency, count) > 0


@pytest.mark.parametrize(
    ("frequency", "length", "average", "expected"),
    [
        (0, 7, 10.0, 0.0),
        (1, 10, 10.0, 1.0),  # norm 1: 2.2 / 2.2
        (2, 5, 10.0, 1.6),  # norm 0.25 + 0.75 / 2 = 0.625: 4.4 / (2 + 0.75)
        (1, 20, 10.0, 2.2 / 3.1),  # norm 0.25 + 1.5 = 1.75: 2.2 / (1 + 2.1)
        (3, 0, 10.0, 2.0),  # norm 0.25: 6.6 / (3 + 0.3)
    ],
)
def test_term_weight(frequency: int, length: int, average: float, expected: float) -> None:
    """The weight is f (k1 + 1) / (f + k1 (1 - b + b length / average)).

    If this fails: was the factor (k1 + 1) dropped, or b applied to the wrong side?
    """
    assert term_weight(frequency, length, average) == pytest.approx(expected, rel=1e-15, abs=0)


def test_weight_saturates() -> None:
    """Repeating a term adds less and less: the weight rises with f and stays below k1 + 1."""
    weights = [term_weight(f, 10, 10.0) for f in range(1, 1000)]
    assert weights == sorted(weights)
    assert weights[-1] < K1 + 1


def test_arrays() -> None:
    """Arrays give element by element what numbers give, as float64."""
    frequencies = np.array([[0, 1], [2, 30]])
    lengths = np.array([4, 9], dtype=np.uint32)
    weights = term_weight(frequencies, lengths, 6.5)
    rarities = idf(frequencies, 30)
    assert weights.dtype == rarities.dtype == np.float64
    for row, column in np.ndindex(2, 2):
        f = int(frequencies[row, column])
        assert weights[row, column] == term_weight(f, int(lengths[column]), 6.5)
        assert rarities[row, column] == pytest.approx(idf(f, 30), rel=1e-15)
    assert idf(np.array([], dtype=np.int64), 0).shape == (0,)


@pytest.mark.parametrize("frequency", [-1, 11, np.array([3, 11]), np.array([-1, 3])])
def test_broken_statistics_are_refused(frequency: int) -> None:
    """A term cannot be in more documents than there are, nor in fewer than none."""
    with pytest.raises(ValueError, match=r"\[0, 10\]"):
        idf(frequency, 10)


@pytest.mark.parametrize("average", [0.0, -1.0, math.nan])
def test_average_length_is_positive(average: float) -> None:
    """Without a document that has a term there is no weight."""
    with pytest.raises(ValueError, match="average length"):
        term_weight(1, 1, average)


def test_agrees_with_sqlite() -> None:
    """SQLite's bm25() is minus its idf, which lacks the added 1, times our term weight."""
    texts = ["a a b", "b c d e f g", "a c", "d", "e e e", "f g", "g", "c d", "b", "e f"]
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5(x, tokenize='ascii')")
    connection.executemany("INSERT INTO t VALUES (?)", [(text,) for text in texts])
    average = sum(len(text.split()) for text in texts) / len(texts)
    rows = connection.execute("SELECT rowid, bm25(t) FROM t WHERE t MATCH 'a'").fetchall()
    assert {row for row, _ in rows} == {1, 3}
    for row, score in rows:
        assert isinstance(row, int)
        assert isinstance(score, float)
        words = texts[row - 1].split()
        weight = term_weight(words.count("a"), len(words), average)
        assert -score == pytest.approx(math.log(8.5 / 2.5) * weight, rel=1e-12)
