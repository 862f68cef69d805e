"""Confidence: how likely an answer is among what a search found, in [0, 1].

A score orders the candidates of one query, and the best of them is near 1 even where nothing in the
store answers. Confidence compares between queries. It is made of two numbers of the raw legs:

* the cosine of the best chunk, from 0 for what unrelated texts have under the model to 1,
* its counterpart of the keyword leg: the best BM25 as a share of the greatest that this query could
  have (`KeywordLeg.greatest`), in [0, 1].

In hybrid mode both count, by their geometric mean, elsewhere the one whose leg ran. A logistic
function, fitted to judged sets, makes a probability of it: at .5 a question that the store answers
is as likely as one that it does not, where there are as many of both (RFC 0002 has the table).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

EVEN_ODDS = 0.5
"""The confidence at which an answer is as likely as none."""

_FITTED = {"both": (0.30, 17.0), "cosine": (0.46, 13.0), "share": (0.19, 16.0)}
"""By what is known: the evidence of even odds, and the slope there."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The two numbers that confidence combines.

    Attributes:
        cosine: Cosine of the best chunk, in [-1, 1]; None if the vector leg did not run.
        keyword_share: The best keyword score as a share of the greatest that the query allows, in
            [0, 1]; None where the keyword leg did not run, or cannot tell.
        unrelated_cosine: What texts that have nothing to do with each other have under the model.
    """

    cosine: float | None = None
    keyword_share: float | None = None
    unrelated_cosine: float = 0.0

    @property
    def confidence(self) -> float | None:
        """How likely an answer was found, in [0, 1]; None where no leg can tell."""
        if self.cosine is None:
            share = self.keyword_share
            return None if share is None else _probability("share", share)
        span = 1.0 - self.unrelated_cosine
        above = min(1.0, max(0.0, (self.cosine - self.unrelated_cosine) / span))
        if self.keyword_share is None:
            return _probability("cosine", above)
        return _probability("both", math.sqrt(above * self.keyword_share))


UNKNOWN = Evidence()
"""That of a search in which no leg can tell."""


def _probability(known: str, evidence: float) -> float:
    even, slope = _FITTED[known]
    return 1.0 / (1.0 + math.exp(-slope * (evidence - even)))
