"""The right answer, by brute force and without any engine: exact cosines, and BM25.

Quality and speed runs compare answers with it.

    score(q, d) = sum over the terms t of q:  idf(t) * f (k1 + 1) / (f + k1 (1 - b + b len / avg))

with Lucene's idf, ln(1 + (N - n + 0.5) / (n + 0.5)), k1 1.2 and b 0.75: Robertson and Zaragoza,
"The Probabilistic Relevance Framework: BM25 and Beyond", 2009, section 3.4. Terms are those of
Corral's analyzer; the sum is a second implementation, so that it can disagree with the providers'.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.vector_dbs import SearchMode
from corral.providers.text.analyzer import analyzer
from corral.providers.text.fields import BESIDE_WEIGHT

K1, B = 1.2, 0.75
TIE = 1e-5
"""Maximum difference of tied cosines, or shares of a BM25 score: single precision cannot tell them
apart."""


class Truth:
    """The right answers to questions, in double precision, computed on demand.

    Args:
        texts: Texts of all chunks.
        embeddings: Embeddings of the chunks, shape (n, dimension), length 1.
        language: English name.
        questions: Texts of the questions.
        asked: Embeddings of the questions.
    """

    def __init__(
        self,
        texts: Sequence[str],
        embeddings: NDArray[np.float32],
        language: str,
        questions: Sequence[str],
        asked: NDArray[np.float32],
    ) -> None:
        self._texts = texts
        self._embeddings = embeddings
        self._language = language
        self._questions = questions
        self._asked = asked

    def of(self, mode: SearchMode, question: int) -> NDArray[np.float64]:
        """Return the cosine (vector) or the BM25 score (keyword) of every chunk, shape (n,)."""
        if mode is SearchMode.VECTOR:
            row: NDArray[np.float64] = self._cosines[question]
            return row
        return self._scores[question]

    @cached_property
    def _cosines(self) -> NDArray[np.float64]:
        return cosines(self._embeddings, self._asked)

    @cached_property
    def _scores(self) -> list[NDArray[np.float64]]:
        words = Words.of(self._texts, self._language)
        return [words.scores(text) for text in self._questions]


def findable(
    truth: NDArray[np.float64], mode: SearchMode, passing: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the scores, with -inf for chunks that cannot be in a right answer.

    These are the chunks that fail the filter and, in keyword mode, chunks without a common word.
    """
    able = passing & (truth > 0) if mode is SearchMode.KEYWORD else passing
    return np.where(able, truth, -np.inf)


def among_best(
    values: NDArray[np.float64], k: int, slack: float | None = None
) -> NDArray[np.bool_]:
    """Return the chunks that are among the k best, or tie with the last of them.

    Args:
        values: Score of every chunk, higher is better; chunks with -inf, from `findable`, are
            excluded.
        k: Number of best chunks.
        slack: Maximum difference of a tie; None for `TIE`.
    """
    count = min(k, int(np.isfinite(values).sum()))
    if not count:
        return np.zeros(len(values), bool)
    least = float(np.partition(values, -count)[-count])
    edge = TIE * max(1.0, abs(least)) if slack is None else slack
    among: NDArray[np.bool_] = values >= least - edge
    return among


def recall(
    values: NDArray[np.float64], found: Iterable[int], k: int, slack: float | None = None
) -> float:
    """Return the share of the k best that were found; 1.0 if there are none.

    Args:
        values, k, slack: As for `among_best`.
        found: Distinct rows.
    """
    wanted = min(k, int(np.isfinite(values).sum()))
    if not wanted:
        return 1.0
    return min(1.0, int(among_best(values, k, slack)[list(found)].sum()) / wanted)


def cosines(embeddings: NDArray[np.float32], asked: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the cosine of each row of `asked` with each embedding, shape (len(asked), n)."""
    wide = asked.astype(np.float64).T
    parts = np.array_split(embeddings, max(1, len(embeddings) // 10_000))
    return np.concatenate([part.astype(np.float64) @ wide for part in parts]).T


class Words:
    """An inverted index of texts in arrays: `add` them all, then ask for `scores`.

    Args:
        language: English name.
    """

    def __init__(self, language: str) -> None:
        self._analyzer = analyzer(language)
        self._numbers: dict[str, int] = {}
        self._which, self._where, self._counts = array("q"), array("q"), array("d")
        self._lengths = array("d")

    @classmethod
    def of(cls, texts: Sequence[str], language: str) -> Words:
        """Return a complete index of texts."""
        words = cls(language)
        words.add(texts)
        words.finish()
        return words

    def add(self, texts: Sequence[str]) -> None:
        """Append texts; text n, over all calls, is row n."""
        for text in texts:
            terms = self._analyzer.analyze(text)
            found: dict[str, float] = {**Counter(terms.words)}
            found |= dict.fromkeys(terms.beside, BESIDE_WEIGHT)
            for term, count in found.items():
                self._which.append(self._numbers.setdefault(term, len(self._numbers)))
                self._where.append(len(self._lengths))
                self._counts.append(count)
            self._lengths.append(len(terms.words) or len(terms.beside))

    def finish(self) -> None:
        """Sort the added postings by term; no texts can be added afterwards."""
        which, lengths = _array(self._which), _array(self._lengths)
        order = np.argsort(which, kind="stable")
        self._rows = _array(self._where)[order]
        self._starts = np.searchsorted(which[order], np.arange(len(self._numbers) + 1))
        self._weights = _weights(_array(self._counts)[order], lengths, self._rows)
        self._count = len(lengths)
        self._which = self._where = array("q")
        self._counts = array("d")

    def scores(self, question: str) -> NDArray[np.float64]:
        """Return the BM25 score of every text, shape (n,); 0 if no word is shared."""
        total = np.zeros(self._count)
        for term, times in Counter(self._analyzer.terms(question)).items():
            number = self._numbers.get(term)
            if number is None:
                continue
            part = slice(self._starts[number], self._starts[number + 1])
            frequency = part.stop - part.start
            idf = np.log1p((self._count - frequency + 0.5) / (frequency + 0.5))
            total[self._rows[part]] += times * idf * self._weights[part]
        return total


def _weights(
    counts: NDArray[np.float64], lengths: NDArray[np.float64], rows: NDArray[np.int64]
) -> NDArray[np.float64]:
    average = max(float(lengths.mean()), 1e-9) if len(lengths) else 1.0
    norm = K1 * (1 - B + B * lengths / average)
    weights: NDArray[np.float64] = counts * (K1 + 1) / (counts + norm[rows])
    return weights


def _array(values: array[Any]) -> NDArray[Any]:
    return np.frombuffer(values, values.typecode) if len(values) else np.zeros(0, values.typecode)
