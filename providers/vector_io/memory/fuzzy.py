"""Terms of a vocabulary that a misspelled term may mean, short ones and codes among them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corral.providers.text.similar import similarities

MAX_SIMILAR = 50
"""Most similar terms of one term, the most similar ones; a bound for vocabularies of codes such as
`x1000`, `x1001`, where every word is similar to every other."""


def similar_terms(terms: Sequence[str], vocabulary: Sequence[str]) -> list[dict[str, float]]:
    """Return for each of some terms the terms of a vocabulary that are similar to it.

    One edit passes in words of 3 to 5 characters, two from 6, three from 9, and none in shorter
    ones.

    Args:
        terms: Analyzed terms. They need not be in the vocabulary.
        vocabulary: Analyzed terms, distinct.

    Returns:
        For each term `similarities`, 1 for the term itself; the most similar first, ties by term;
        at most MAX_SIMILAR.
    """
    return [_best(row, vocabulary) for row in similarities(terms, vocabulary)]


def _best(similarities: NDArray[np.float64], vocabulary: Sequence[str]) -> dict[str, float]:
    places = np.flatnonzero(similarities)  # 0 is below the cut
    found = sorted((-float(similarities[place]), vocabulary[place]) for place in places.tolist())
    return {term: -negative for negative, term in found[:MAX_SIMILAR]}
