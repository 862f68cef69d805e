"""inline::extractive: the sentences of the sources that best answer a question."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corral.api.provider import Health, Quote, QuotedText, QuotingProvider
from corral.providers.inference.extractive.config import ExtractiveConfig
from corral.providers.text.analyzer import Analyzer, analyzer
from corral.providers.text.sentences import sentences

MODEL = "extractive"

MAX_SENTENCES = 200
"""Maximum number of sentences to compare; the sentences of the best sources come first."""

WEIGHTS = {"words": 0.3, "words_around": 0.6, "embedding": 0.9, "source": 1.0}
"""Weight of each feature in units of its standard deviation; fitted on one half of the questions of
xquad-en and xquad-de, on a grid of tenths (docs/benchmarks.md, "Answers")."""

MARGIN = 2.6
"""Further sentences are quoted if their score is at most this much below the best one's; fitted on
xquad-en and xquad-de for 1.8 sentences on average (docs/benchmarks.md, "Answers")."""


def create(provider_id: str, config: ExtractiveConfig, home: Path) -> ExtractiveProvider:
    """Return the provider; it has no files."""
    return ExtractiveProvider(provider_id, config)


class ExtractiveProvider(QuotingProvider):
    """Quotes whole sentences, in the order of the sources.

    A sentence's score combines the share of the question's words that it contains (weighted by
    their inverse document frequency among the sentences), the same share including the previous
    sentence, the cosine of its embedding with the question's, and the score of its source.
    """

    def __init__(self, provider_id: str, config: ExtractiveConfig) -> None:
        super().__init__(provider_id)
        self._config = config

    def models(self) -> list[str]:
        """Return the one model."""
        return [MODEL]

    async def health(self) -> Health:
        """Return OK."""
        return Health("OK")

    async def quote(
        self, question: str, texts: Sequence[QuotedText], confidence: float | None
    ) -> list[Quote]:
        """Return at most `max_sentences` sentences; see `QuotingProvider.quote`."""
        if confidence is not None and confidence < self._config.min_confidence:
            return []
        quotes = [
            Quote(place, start, end)
            for place, each in enumerate(texts)
            for start, end in sentences(each.text)
        ][:MAX_SENTENCES]
        if not quotes:
            return []
        cosines = await _cosines(question, texts, quotes)
        scores = await asyncio.to_thread(_scores, question, texts, quotes, cosines)
        best = np.argsort(-scores, kind="stable")[: self._config.max_sentences]
        chosen = [int(row) for row in best if scores[row] >= scores[best[0]] - MARGIN]
        return [quotes[row] for row in sorted(chosen)]


async def _cosines(
    question: str, texts: Sequence[QuotedText], quotes: Sequence[Quote]
) -> NDArray[np.float64]:
    """Return each sentence's cosine with the question, shape (n,); 0 without an embedder."""
    cosines = np.zeros(len(quotes))
    for embedder in {each.embedder for each in texts if each.embedder is not None}:
        rows = [row for row, quote in enumerate(quotes) if texts[quote.text].embedder is embedder]
        if not rows:
            continue
        written = [_written(texts, quotes[row]) for row in rows]
        query = await embedder.embed_query(question)
        cosine = np.asarray(await embedder.embed_documents(written), np.float64) @ query
        cosines[rows] = _standardized(cosine)
    return cosines


def _scores(
    question: str,
    texts: Sequence[QuotedText],
    quotes: Sequence[Quote],
    cosines: NDArray[np.float64],
) -> NDArray[np.float64]:
    overlap = _Overlap(question, texts, quotes)
    features = {
        "words": overlap.alone(),
        "words_around": overlap.with_the_one_before(),
        "embedding": cosines,
        "source": np.array([texts[quote.text].score for quote in quotes]),
    }
    scores = np.zeros(len(quotes))
    for name, values in features.items():
        scores += WEIGHTS[name] * _standardized(values)
    return scores


@dataclass(frozen=True, slots=True)
class _Terms:
    """The terms of a question and of one sentence, in the language of its source."""

    question: frozenset[str]
    sentence: frozenset[str]


class _Overlap:
    """Shares of the question's words in sentences, weighted by inverse document frequency."""

    def __init__(self, question: str, texts: Sequence[QuotedText], quotes: Sequence[Quote]) -> None:
        self._quotes = quotes
        words: dict[str, tuple[Analyzer, frozenset[str]]] = {}
        self._terms: list[_Terms] = []
        for quote in quotes:
            language = texts[quote.text].language
            if language not in words:
                words[language] = analyzer(language), frozenset(analyzer(language).terms(question))
            words_of, terms = words[language]
            written = frozenset(words_of.terms(_written(texts, quote)))
            self._terms.append(_Terms(terms, written))
        counts = Counter(term for each in self._terms for term in each.question & each.sentence)
        self._idf = {
            term: math.log1p((len(quotes) - counts[term] + 0.5) / (counts[term] + 0.5))
            for each in self._terms
            for term in each.question
        }

    def alone(self) -> NDArray[np.float64]:
        """Return the shares of the sentences, shape (n,), in [0, 1]."""
        return np.array([self._share(each.question, each.sentence) for each in self._terms])

    def with_the_one_before(self) -> NDArray[np.float64]:
        """Return the shares for each sentence with its predecessor, which may resolve `he`."""
        shares = []
        for row, each in enumerate(self._terms):
            follows = row > 0 and self._quotes[row - 1].text == self._quotes[row].text
            before = self._terms[row - 1].sentence if follows else frozenset()
            shares.append(self._share(each.question, each.sentence | before))
        return np.array(shares)

    def _share(self, question: frozenset[str], words: frozenset[str]) -> float:
        # Sorted, because the sum of floats depends on their order.
        whole = sum(self._idf[term] for term in sorted(question))
        return sum(self._idf[term] for term in sorted(question & words)) / whole if whole else 0.0


def _written(texts: Sequence[QuotedText], quote: Quote) -> str:
    return texts[quote.text].text[quote.start : quote.end]


def _standardized(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale values to mean 0 and standard deviation 1; equal values become 0."""
    spread = float(values.std())
    return (values - values.mean()) / spread if spread > 1e-9 else np.zeros(len(values))
