"""Find the terms of a vocabulary that a misspelled term may mean, for fuzzy keyword search.

Every index with fuzzy search ranks by these rules. The similar terms of a query term count as one
term. Its document frequency is the number of chunks that contain any of them. Its weight in a chunk
is the highest product of BM25 weight and similarity among them. A chunk that contains the term as
spelled scores at least its BM25 score. (Lucene's `FuzzyQuery` is similar: it blends the frequencies
of the terms and boosts them by their similarity.)

The constants were chosen on SciFact and confirmed on two other sets. nDCG@10 of BM25 and of fuzzy:

    typos in       no word        a third of words   every word of the queries
    scifact        0.700  0.707   0.553  0.690       0.433  0.681
    hotpotqa-100   0.820  0.821   0.682  0.798       0.546  0.802
    xquad-de       0.939  0.949   0.784  0.934       0.640  0.929

Correctly spelled words match similar words too: a typo can turn one word into another, and similar
words are often related (`docs/keyword-search.md`).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import process
from rapidfuzz.distance import OSA

from corral.api.invisible import EMOJI
from corral.providers.text.analyzer import MAX_TERM_LENGTH
from corral.providers.text.words import UNSPACED

CUT = 0.65
"""Minimum similarity: one edit in words of 4 and 5 letters, two from 6 letters, three from 9."""

MIN_LENGTH = 4
"""Minimum length, in letters, of a term with similar terms. Half of the shorter words are only one
edit apart."""

MAX_SIMILAR = 5
"""Maximum terms that count as one query term, including itself. With 3, 10 or 50 the results above
are worse by up to 0.01."""

MAX_TERMS = 32
"""Maximum query terms with a search for similar terms; further terms are searched as spelled. Each
costs a pass over the vocabulary."""

_BATCH = 8192
_LENGTHS = np.arange(MAX_TERM_LENGTH + 1)
_SYMBOLS = f"{EMOJI}\uff01-\uff20\uff3b-\uff40\uff5b-\uff5e"  # Symbols in terms beside the words.
_WORD = re.compile(f"[^\\d{_SYMBOLS}{UNSPACED}]{{{MIN_LENGTH - 1},}}")


def is_word(term: str) -> bool:
    """Return True for a term that can be misspelled, and so belongs in the vocabulary.

    Numbers and codes cannot, because an edit gives another number. Neither can pairs of characters
    in scripts without spaces, where a typo is another character.
    """
    return _WORD.fullmatch(term) is not None


def similarities(terms: Sequence[str], words: Sequence[str]) -> NDArray[np.float64]:
    """Return the similarities of terms to words, shape (terms, words): in [CUT, 1], or 0 if less.

    Similarity is 1 - d / max(length). Here d is the optimal string alignment distance: the number
    of insertions, deletions, substitutions and swaps of neighbors between the two words (Damerau:
    "A technique for computer detection and correction of spelling errors", CACM 7(3), 1964). Cost:
    O(terms x words), 10 x 40,000 in 5 ms.
    """
    return process.cdist(
        terms, words, scorer=OSA.normalized_similarity, score_cutoff=CUT, dtype=np.float64
    )


class Vocabulary:
    """Words of an index, for a search of similar words. Safe to use from many threads.

    It only grows: the caller skips words that the index no longer has.

    For each word there is a signature, the set of its letters as bits (the code point modulo 64).
    An insertion or deletion changes at most one bit, a substitution two, a swap none; so most
    words are ruled out without comparing them (Boytsov: "Indexing methods
    for approximate dictionary searching", ACM JEA 16, 2011, on signature hashing).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: set[str] = set()
        self._words: list[str] = []
        self._table = _signatures([])

    def add(self, terms: Iterable[str]) -> None:
        """Add terms; ignore terms that are there already or are not words."""
        with self._lock:
            unseen = [term for term in dict.fromkeys(terms) if term not in self._seen]
            words = [term for term in unseen if is_word(term)]
            self._seen.update(unseen)
            self._words += words
            parts = [_signatures(words[n : n + _BATCH]) for n in range(0, len(words), _BATCH)]
            if parts:
                self._table = np.concatenate([self._table, *parts])

    def similar(self, terms: Iterable[str]) -> dict[str, list[tuple[str, float]]]:
        """Return the similar words of the first MAX_TERMS terms.

        Args:
            terms: Analyzed terms. They need not be in the vocabulary.

        Returns:
            For each term that can be misspelled (word, `similarities`, below 1), the most similar
            first, ties by word; without the term itself. The caller takes the first ones that have
            chunks. Cost: O(terms x words), 1 ms a term with 200,000 words.
        """
        candidates = [term for term in terms if len(term) >= MIN_LENGTH and is_word(term)]
        return {term: self._similar(term, self._table) for term in candidates[:MAX_TERMS]}

    def _similar(self, term: str, table: NDArray[np.void]) -> list[tuple[str, float]]:
        own = _signatures([term])[0]
        edits = np.floor((1 - CUT) * np.maximum(_LENGTHS, own["length"]) + 1e-9)
        limits = (2 * edits - np.abs(_LENGTHS - own["length"])).astype(np.int16)
        differing = np.bitwise_count(table["letters"] ^ own["letters"])
        near = np.flatnonzero(differing <= limits[table["length"]])
        words = [self._words[place] for place in near.tolist()]
        scores = similarities([term], words)[0]
        pairs = [(words[place], float(scores[place])) for place in np.flatnonzero(scores).tolist()]
        return sorted((p for p in pairs if p[0] != term), key=lambda pair: (-pair[1], pair[0]))


def _signatures(words: Sequence[str]) -> NDArray[np.void]:
    """Return the set of letters, as bits, and the length of each word."""
    table = np.zeros(len(words), dtype=[("letters", np.uint64), ("length", np.int16)])
    if words:
        codes = np.array(words).view(np.uint32).reshape(len(words), -1)  # Rows are padded with 0.
        bits = np.where(codes, np.uint64(1) << (codes & 63).astype(np.uint64), np.uint64(0))
        table["letters"] = np.bitwise_or.reduce(bits, axis=1)
        table["length"] = np.count_nonzero(codes, axis=1)
    return table
