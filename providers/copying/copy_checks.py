"""Compare two indexes: the counts and ids of their chunks, and the answers to sample queries."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.hits import QueryChunksResponse
from corral.providers.stack.copy_steps import difference, id_pages

SAMPLED = 20
"""Number of chunks to compare and search for. The total number of chunks seeds the sample."""
COMPARED_HITS = 10
"""Number of hits to compare per query."""
QUERY_WORDS = 5
"""Number of words from the text of a chunk in its query."""

SCORE_SLACK = 1e-5
"""Maximum difference of two scores that rounding in single precision explains.

Two engines may order such hits differently."""
LEAST_OVERLAP = 0.8
"""Minimum mean share of common hits of two approximate searches; each may miss one hit in ten."""

_WORD_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class CopyChecks:
    """The result of a comparison.

    Attributes:
        source_count, target_count: Number of chunks on each side.
        sampled: Number of chunks that were compared and searched for.
        exact: True if both sides search vectors exactly, so their answers must be equal.
        vector_overlap: Mean share of common hits of the vector queries, in [0, 1]; None if there
            were no such queries.
        keyword_overlap: Mean share of common hits of the keyword queries, in [0, 1]; None if there
            were no such queries.
        differences: One sentence per difference; empty if the sides agree.
    """

    source_count: int
    target_count: int
    sampled: int
    exact: bool
    vector_overlap: float | None
    keyword_overlap: float | None
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Agreement:
    """The comparison of both sides' answers to one query.

    Attributes:
        chunk_id: The chunk that the query was made from.
        overlap: Share of common hits, in [0, 1].
        same: True if the answers are equal.
    """

    chunk_id: str
    overlap: float
    same: bool


async def compare(
    source: EmbeddingIndex, target: EmbeddingIndex, *, modes: Collection[str], exact: bool
) -> CopyChecks:
    """Compare two indexes and return the differences.

    Args:
        source, target: Indexes with the same settings.
        modes: The search modes that both support.
        exact: True if both search vectors exactly.
    """
    counts = await source.count(), await target.count()
    ids, differences = await compare_ids(id_pages(source, target), counts[0])
    if counts[0] != counts[1]:
        differences.insert(0, f"The source has {counts[0]} chunks, the target {counts[1]}.")
    chunks = await source.get_chunks(ids, include_embeddings=True)
    there = {c.chunk_id: c for c in await target.get_chunks(ids, include_embeddings=True)}
    both = ((chunk, there[chunk.chunk_id]) for chunk in chunks if chunk.chunk_id in there)
    unlike = [(difference(one, other), one.chunk_id) for one, other in both]
    differences += [f"The {part} of {chunk_id!r} differs." for part, chunk_id in unlike if part][:1]
    overlaps: dict[str, float | None] = {}
    for mode, must_agree in (("vector", exact), ("keyword", True)):
        asked = chunks if mode in modes else []
        answers = [await _ask_both(source, target, chunk, mode) for chunk in asked]
        overlaps[mode] = sum(a.overlap for a in answers) / len(answers) if answers else None
        differences += _verdict(mode, answers, must_agree)
    return CopyChecks(
        *counts, len(chunks), exact, overlaps["vector"], overlaps["keyword"], tuple(differences)
    )


def agreement(chunk_id: str, one: QueryChunksResponse, other: QueryChunksResponse) -> Agreement:
    """Compare two answers to the query for a chunk.

    They are the same if they have the same ids in the same order. Hits with scores within
    `SCORE_SLACK` of each other may be in a different order; at the end of the answers, different
    hits may have such scores.
    """
    mine = {hit.chunk.chunk_id: hit.score for hit in one.hits}
    theirs = {hit.chunk.chunk_id: hit.score for hit in other.hits}
    common = mine.keys() & theirs.keys()
    overlap = len(common) / max(len(mine), len(theirs)) if mine or theirs else 1.0
    pairs = [*zip(one.scores, other.scores, strict=False), *((mine[i], theirs[i]) for i in common)]
    alone = [(mine | theirs)[i] for i in mine.keys() ^ theirs.keys()]
    last = min([*one.scores[-1:], *other.scores[-1:]], default=0.0)
    same = (
        len(mine) == len(theirs)
        and all(abs(a - b) <= SCORE_SLACK for a, b in pairs)
        and all(score - last <= SCORE_SLACK for score in alone)
    )
    return Agreement(chunk_id, overlap, same)


def _verdict(mode: str, answers: Sequence[Agreement], must_agree: bool) -> list[str]:
    others = [one.chunk_id for one in answers if not one.same]
    if must_agree and others:
        return [
            f"{len(others)} of {len(answers)} {mode} queries are answered differently, "
            f"the first by {others[0]!r}."
        ]
    overlap = sum(one.overlap for one in answers) / len(answers) if answers else 1.0
    if overlap < LEAST_OVERLAP:
        return [f"Only {overlap:.0%} of the hits of {mode} queries are common to both."]
    return []


async def _ask_both(
    source: EmbeddingIndex, target: EmbeddingIndex, chunk: Chunk, mode: str
) -> Agreement:
    """Search both sides for a chunk by its embedding or some of its words, and compare."""
    words = chunk.content.split()
    some = random.Random(chunk.chunk_id).sample(words, min(QUERY_WORDS, len(words)))  # noqa: S311 - a sample
    text = " ".join(word[:_WORD_CHARACTERS] for word in some)
    one, other = [
        await index.query(chunk.embedding, text, COMPARED_HITS, mode=mode)
        for index in (source, target)
    ]
    return agreement(chunk.chunk_id, one, other)


async def compare_ids(
    pages: AsyncIterator[tuple[list[str], list[str]]], count: int
) -> tuple[list[str], list[str]]:
    """Compare all ids of both sides.

    Args:
        pages: The ids of source and target, page by page, from `id_pages`.
        count: Number of chunks in the source.

    Returns:
        A sample of the source's ids, drawn with a fixed seed, and the differences as sentences.
    """
    places = frozenset(random.Random(count).sample(range(count), min(SAMPLED, count)))  # noqa: S311 - a sample
    sample: list[str] = []
    seen, alone, first = 0, [0, 0], ["", ""]
    async for mine, theirs in pages:
        sample += [chunk_id for place, chunk_id in enumerate(mine, seen) if place in places]
        seen += len(mine)
        for side, ids in enumerate((set(mine).difference(theirs), set(theirs).difference(mine))):
            alone[side] += len(ids)
            first[side] = first[side] or min(ids, default="")
    said = ("The target lacks {} chunks, the first {!r}.", "It has {} of its own, the first {!r}.")
    return sample, [said[n].format(alone[n], first[n]) for n in (0, 1) if alone[n]]
