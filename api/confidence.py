"""Confidence: the probability that the hits of a search contain an answer, in [0, 1].

A score orders the candidates of one query, and the best is near 1 even if nothing in the store
answers. Confidence can be compared between queries. It combines two numbers from the raw legs:

* the cosine of the best chunk, rescaled so that 0 is the model's cosine of unrelated texts,
* the best BM25 score as a share of the maximum that this query allows (`KeywordLeg.greatest`), in
  [0, 1].

Hybrid mode takes their geometric mean; the other modes take the number of the leg that ran. A
logistic function, fitted to judged sets, turns the result into a probability: at 0.5, a question
that the store answers is as likely as one that it does not, if both are equally frequent (RFC 0002
has the table).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

EVEN_ODDS = 0.5
"""The confidence at which an answer is as likely as no answer."""

_FITTED = {"both": (0.30, 17.0), "cosine": (0.46, 13.0), "share": (0.19, 16.0)}
"""By available evidence: the value at even odds, and the slope there."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The two numbers that confidence combines.

    Attributes:
        cosine: Cosine of the best chunk, in [-1, 1]; None if the vector leg did not run.
        keyword_share: The best keyword score as a share of the maximum that the query allows, in
            [0, 1]; None if the keyword leg did not run, or cannot tell.
        unrelated_cosine: Cosine of unrelated texts under the model, in [-0.99, 0.99].
    """

    cosine: float | None = None
    keyword_share: float | None = None
    unrelated_cosine: float = 0.0

    @property
    def confidence(self) -> float | None:
        """Probability that the hits contain an answer, in [0, 1]; None if no leg can tell."""
        if self.cosine is None:
            share = self.keyword_share
            return None if share is None else _probability("share", share)
        span = 1.0 - self.unrelated_cosine
        above = min(1.0, max(0.0, (self.cosine - self.unrelated_cosine) / span))
        if self.keyword_share is None:
            return _probability("cosine", above)
        return _probability("both", math.sqrt(above * self.keyword_share))


UNKNOWN = Evidence()
"""The evidence of a search in which no leg can tell."""


def _probability(legs: str, evidence: float) -> float:
    even, slope = _FITTED[legs]
    return 1.0 / (1.0 + math.exp(-slope * (evidence - even)))
