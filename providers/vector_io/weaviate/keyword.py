"""BM25 by Corral's definition for what Weaviate's own BM25 proposes.

Weaviate ranks by the same words with the same k1, b and idf, but keeps its own average length and
knows no field weights. So its scores only propose: each proposal is scored anew from the exact
frequencies stored in it, and with the statistics of the moment, which Weaviate counts. The ratio of
the two scores, as seen so far, tells how good a chunk can be that was not proposed yet.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from corral.providers.ranking.bm25 import idf, term_weight
from corral.providers.ranking.text import Analyzer
from corral.providers.vector_io.weaviate.objects import Row

_SLACK = 1.05  # between the largest ratio seen and the largest there is


@dataclass(frozen=True, slots=True)
class Statistics:
    """The number of chunks of a vector DB, and that of all their terms."""

    count: int
    total_length: int

    @property
    def average(self) -> float:
        """The mean length of a chunk; 0 where no chunk has a term."""
        return self.total_length / self.count if self.count else 0.0


class Query:
    """The terms of a query; empty for a text without a word.

    Args:
        text: Any text. Its terms are joined by OR, and a repeated one counts as often.
        analyzer: The analyzer of the vector DB's language.
    """

    def __init__(self, text: str, analyzer: Analyzer) -> None:
        self.wanted = dict(sorted(Counter(analyzer.terms(text)).items()))

    @property
    def text(self) -> str:
        """The terms joined by spaces, repeated as often as they were asked for."""
        return " ".join(term for term, times in self.wanted.items() for _ in range(times))

    def weights(self, frequencies: Mapping[str, int], count: int) -> dict[str, float]:
        """Return by term its weight, idf times repetitions.

        Args:
            frequencies: By term, the number of chunks that hold it. One above `count`, which a
                write between two counts can leave, counts as this.
            count: The number of chunks.
        """
        return {
            term: idf(min(frequencies[term], count), count) * times
            for term, times in self.wanted.items()
            if frequencies.get(term, 0) > 0 and count > 0
        }


@dataclass(frozen=True, slots=True)
class Proposal:
    """A chunk that Weaviate proposes.

    Attributes:
        chunk_id: The chunk.
        native: Weaviate's score.
        frequencies: Of the query's terms in it, by term in ascending order.
        length: Number of its terms.
    """

    chunk_id: str
    native: float
    frequencies: dict[str, float]
    length: int


def proposal(row: Row, query: Query) -> Proposal:
    """Read a proposal from an object with chunk_id, frequencies and length."""
    stored: dict[str, float] = json.loads(row.properties["frequencies"])
    held = {term: stored[term] for term in sorted(query.wanted.keys() & stored.keys())}
    return Proposal(
        row.properties["chunk_id"], row.score, held, int(row.properties.get("length") or 0)
    )


def held_terms(proposals: Iterable[Proposal]) -> set[str]:
    """Return the query's terms that some proposal holds: no other has a part in a score."""
    return {term for one in proposals for term in one.frequencies}


def scores(
    proposals: Sequence[Proposal], weights: Mapping[str, float], average: float
) -> list[float]:
    """Return the BM25 of each proposal, 0 for one without a term; equal for equal terms.

    Args:
        proposals: The chunks.
        weights: Of `Query.weights`.
        average: Mean length of a chunk, above 0.
    """
    parts = [
        (row, weights[term], frequency, one.length)
        for row, one in enumerate(proposals)
        for term, frequency in one.frequencies.items()
        if term in weights
    ]
    if not parts:
        return [0.0] * len(proposals)
    rows, factors, frequencies, lengths = (np.array(column) for column in zip(*parts, strict=True))
    products = term_weight(frequencies.astype(np.float64), lengths, average) * factors
    totals: list[float] = np.bincount(rows, products, minlength=len(proposals)).tolist()
    return totals


def most_unseen(proposals: Sequence[Proposal], exact: Sequence[float]) -> float:
    """Return what a chunk behind the last proposal scores at most, going by the proposals."""
    ratios = [score / one.native for one, score in zip(proposals, exact, strict=True) if one.native]
    return proposals[-1].native * max(ratios, default=0.0) * _SLACK
