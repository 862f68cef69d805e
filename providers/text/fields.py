"""The texts of a chunk that keyword search reads, and the weights of their terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from corral.api.chunks import Chunk
from corral.providers.text.analyzer import Analyzer

BESIDE_WEIGHT = 0.5
"""Weight of a term beside the words (`beside.py`), relative to a word: a chunk with the
word `user` ranks before one with `getUserById`."""


@dataclass(frozen=True, slots=True)
class ChunkTerms:
    """The input of BM25 from one chunk.

    Attributes:
        frequencies: By term, the sum over the fields of weight times count, above 0.
        length: Number of words over all fields, repeated ones included; not weighted. Terms beside
            the words count only if there is no word: a text of emoji is as long as it has emoji.
    """

    frequencies: Mapping[str, float]
    length: int


def field_texts(chunk: Chunk, fields: Iterable[str], *, with_context: bool = True) -> Iterator[str]:
    """Yield the text of each field: `content`, or the metadata under that key, "" for none.

    The elements of a list are joined by line breaks. Numbers count as text; booleans, null and
    objects do not. `title` also has the chunk's heading path, each heading once; `content` also
    has the sentence about the chunk, unless `with_context` is False.
    """
    for field in fields:
        value = chunk.content if field == "content" else chunk.metadata.get(field)
        values = value if isinstance(value, list) else [value]
        if field == "title" and chunk.chunk_metadata:
            path = chunk.chunk_metadata.heading_path or ()
            values = [*values, *(heading for heading in path if heading not in values)]
        if field == "content" and with_context and chunk.chunk_metadata:
            values = [chunk.chunk_metadata.context, *values]
        yield "\n".join(
            str(item)
            for item in values
            if isinstance(item, str | int | float) and not isinstance(item, bool)
        )


def chunk_terms(chunk: Chunk, weights: Mapping[str, float], analyzer: Analyzer) -> ChunkTerms:
    """Return the terms of a chunk's fields with their weighted frequencies.

    Args:
        chunk: Not mutated.
        weights: Weight by field, above 0: a registration's `field_weights`.
        analyzer: The analyzer of its language.
    """
    frequencies: dict[str, float] = {}
    length = beside = 0
    for text, weight in zip(field_texts(chunk, weights), weights.values(), strict=True):
        terms = analyzer.analyze(text)
        for term in terms.words:
            frequencies[term] = frequencies.get(term, 0.0) + weight
        for term in terms.beside:
            frequencies[term] = frequencies.get(term, 0.0) + weight * BESIDE_WEIGHT
        length += len(terms.words)
        beside += len(terms.beside)
    return ChunkTerms(frequencies, length or beside)
