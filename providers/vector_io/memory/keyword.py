"""Keyword search over dictionaries: BM25 by its definition, of the words or of similar words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.providers.vector_io.bm25 import idf, term_weight
from corral.providers.vector_io.fields import ChunkTerms, chunk_terms
from corral.providers.vector_io.memory import fuzzy as design
from corral.providers.vector_io.similar import MAX_SIMILAR, Vocabulary
from corral.providers.vector_io.text import analyzer

MAX_FUZZY_TERMS = 64
"""Query terms for which similar words are looked for; the rest of a longer query is found as it is
spelled. Each costs a pass over the vocabulary."""


@dataclass(slots=True)
class WordHit:
    """A chunk's BM25, above 0, and the query's terms that it holds (or similar ones)."""

    score: float = 0.0
    terms: list[str] = field(default_factory=list)


class KeywordIndex:
    """The terms of all chunks. Not safe to use from several threads at once.

    A query can ask for similar terms too, as on other providers (`vector_io/similar.py`). With
    `fuzzy` every query finds those of `fuzzy.py`, which are more: of short words and codes too.

    Either way they count as one term: as common as the chunks that hold any of them, and in a chunk
    worth its best one's weight times similarity, in (0, 1]. A chunk that holds the term as it is
    spelled scores no less than by BM25. So raw scores, and the scores in [0, 1] made of them, are
    on BM25's scale. (Lucene's `FuzzyQuery` scores alike: its terms blend their frequencies and are
    boosted by similarity.) With `fuzzy`, nDCG@10 on SciFact is 0.699 (BM25: 0.698), and with one
    typo in every word of the query 0.674 (BM25: 0.431).

    Args:
        field_weights: Weight by field.
        language: Name of the language for stemming and stop words.
        fuzzy: Whether all queries find similar terms.
    """

    def __init__(self, field_weights: Mapping[str, float], language: str, *, fuzzy: bool) -> None:
        self._field_weights = field_weights
        self._analyzer = analyzer(language)
        self._fuzzy = fuzzy
        self._chunks: dict[str, ChunkTerms] = {}
        self._postings: dict[str, dict[str, float]] = {}  # term -> chunk id -> frequency
        self._total_length = 0
        self._vocabulary = Vocabulary()

    def analyze(self, chunk: Chunk) -> ChunkTerms:
        """Return what `add` takes; safe to call at any time."""
        return chunk_terms(chunk, self._field_weights, self._analyzer)

    def add(self, chunk_id: str, terms: ChunkTerms) -> None:
        """Index a new chunk."""
        self._chunks[chunk_id] = terms
        self._total_length += terms.length
        for term, frequency in terms.frequencies.items():
            self._postings.setdefault(term, {})[chunk_id] = frequency

    def remove(self, chunk_id: str) -> None:
        """Forget a chunk."""
        terms = self._chunks.pop(chunk_id)
        self._total_length -= terms.length
        for term in terms.frequencies:
            del self._postings[term][chunk_id]
            if not self._postings[term]:
                del self._postings[term]

    def search(self, query: str, *, fuzzy: bool = False) -> dict[str, WordHit]:
        """Return every chunk that holds a term of the query, by id, in no order.

        A term that the query repeats counts as often. Terms are added up in alphabetical order, so
        that chunks of equal texts have equal scores to the last bit.

        Args:
            query: Any text.
            fuzzy: Whether chunks with similar terms are found too; a hit's terms are then those
                that the chunk holds.
        """
        wanted = Counter(self._analyzer.terms(query))
        variants = self._similar(wanted) if fuzzy else self._by_design(wanted)
        hits: dict[str, WordHit] = {}
        for term in sorted(wanted):
            for chunk_id, score in self._term_scores(term, variants.get(term)).items():
                hit = hits.setdefault(chunk_id, WordHit())
                hit.score += wanted[term] * score
                hit.terms.append(term)
        if fuzzy:
            looked_for = sorted({*wanted, *(v for each in variants.values() for v in each)})
            for chunk_id, hit in hits.items():
                held = self._chunks[chunk_id].frequencies
                hit.terms = [term for term in looked_for if term in held]
        return hits

    def _similar(self, wanted: Iterable[str]) -> dict[str, dict[str, float]]:
        self._vocabulary.add(self._postings)
        found = self._vocabulary.similar(wanted)
        return {term: dict(self._held([(term, 1.0), *near])) for term, near in found.items()}

    def _held(self, similar: Iterable[tuple[str, float]]) -> Iterable[tuple[str, float]]:
        return islice((pair for pair in similar if pair[0] in self._postings), MAX_SIMILAR)

    def _by_design(self, wanted: Iterable[str]) -> dict[str, dict[str, float]]:
        if not self._fuzzy:
            return {}
        terms = list(wanted)[:MAX_FUZZY_TERMS]
        return dict(zip(terms, design.similar_terms(terms, list(self._postings)), strict=True))

    def _term_scores(self, term: str, variants: Mapping[str, float] | None) -> dict[str, float]:
        exact = self._scores({term: 1.0})
        if not variants:
            return exact
        fuzzy = self._scores(variants)
        return {i: max(fuzzy.get(i, 0.0), exact.get(i, 0.0)) for i in {**fuzzy, **exact}}

    def _scores(self, variants: Mapping[str, float]) -> dict[str, float]:
        """Return by chunk the BM25 of some terms that count as one.

        idf is that of all chunks that hold one of them; the weight in a chunk is the largest of
        saturated weight times similarity.
        """
        best: dict[str, float] = {}
        for variant, similarity in variants.items():
            posting = self._postings.get(variant, {})
            if posting:
                weights = similarity * self._weights(posting)
                for chunk_id, weight in zip(posting, weights.tolist(), strict=True):
                    best[chunk_id] = max(weight, best.get(chunk_id, 0.0))
        worth = idf(len(best), len(self._chunks))
        return {chunk_id: worth * weight for chunk_id, weight in best.items()}

    def _weights(self, posting: Mapping[str, float]) -> NDArray[np.float64]:
        lengths = [self._chunks[chunk_id].length for chunk_id in posting]
        average = self._total_length / len(self._chunks)
        return term_weight(np.array(list(posting.values())), np.array(lengths), average)
