"""Which terms of a vocabulary a misspelled one may stand for, for fuzzy keyword search.

Every index that offers it uses these rules and ranks alike: the similar terms of a query term count
as one term, as common as the chunks that hold any of them, and in a chunk worth its best one's BM25
weight times similarity. A chunk that holds the term as it is spelled scores no less than by BM25.
(Lucene's `FuzzyQuery` is a relative: its terms blend their frequencies and are boosted by their
similarity.)

The constants were chosen on SciFact and held on two other sets; nDCG@10 of BM25, then of fuzzy:

    typos in       no word        a third of words   every word of the queries
    scifact        0.700  0.707   0.553  0.690       0.433  0.681
    hotpotqa-100   0.820  0.821   0.682  0.798       0.546  0.802
    xquad-de       0.943  0.959   0.795  0.938       0.644  0.937

Words that are spelled right look for similar ones too: a typo can make another word of them, and
similar words are often kin (`docs/keyword-search.md`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from rapidfuzz import process
from rapidfuzz.distance import OSA

from corral.providers.vector_io.text import UNSPACED

CUT = 0.65
"""Least similarity. It lets one edit pass in words of 4 and 5 letters, two from 6, three from 9."""

MIN_LENGTH = 4
"""Shortest term, in letters, that similar ones are looked for: below, half of the words are one
edit apart."""

MAX_SIMILAR = 5
"""Most terms that a query term stands for, itself included. With 3, 10 and 50 the table above is
worse by up to 0.01."""

MAX_TERMS = 32
"""Query terms for which similar ones are looked for; the rest of a longer query is found as it is
spelled. Each costs a pass over the vocabulary."""

_WORD = re.compile(f"[^\\d{UNSPACED}]{{{MIN_LENGTH - 1},}}")


def is_word(term: str) -> bool:
    """Say whether a term belongs into a vocabulary of words that others can be misspelled for.

    Numbers and codes are not: an edit makes another one of them. Nor are pairs of characters of
    scripts without spaces, where a typo is another character.
    """
    return _WORD.fullmatch(term) is not None


def similar_terms(
    terms: Sequence[str], vocabulary: Sequence[str]
) -> dict[str, list[tuple[str, float]]]:
    """Return for the first MAX_TERMS terms the words of a vocabulary that are similar to them.

    Similarity is 1 - d / max(length), d being the optimal string alignment distance: insertions,
    deletions, substitutions and swaps of neighbors that turn one word into the other (Damerau: "A
    technique for computer detection and correction of spelling errors", CACM 7(3), 1964).

    Args:
        terms: Analyzed terms. They need not be in the vocabulary.
        vocabulary: Analyzed terms for which `is_word` holds.

    Returns:
        For each term that can be misspelled (word, similarity in [CUT, 1)), the most similar first,
        ties by word; without the term itself. All of them: the caller takes the first that it has
        chunks for. Cost: O(terms x vocabulary).
    """
    asked = [term for term in terms if len(term) >= MIN_LENGTH and is_word(term)][:MAX_TERMS]
    if not asked or not vocabulary:
        return {}
    table = process.cdist(
        asked, vocabulary, scorer=OSA.normalized_similarity, score_cutoff=CUT, dtype=np.float32
    )
    return {
        term: _ordered(term, {vocabulary[place] for place in np.flatnonzero(row).tolist()})
        for term, row in zip(asked, table, strict=True)
    }


def _ordered(term: str, similar: set[str]) -> list[tuple[str, float]]:
    found = [(word, OSA.normalized_similarity(term, word)) for word in similar if word != term]
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))
