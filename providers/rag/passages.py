"""Join adjacent chunks of a document into one text, without repeating their overlap.

Chunks overlap by whole sentences or words. The character offsets in a chunk's record
(`ChunkMetadata`) give the length of the overlap. Before the overlap is dropped, the two texts are
compared; chunks with different texts there are not joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from corral.api.assembly import Order
from corral.api.chunks import MAX_GAP, Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.filters import Filter, matches
from corral.api.vector_dbs import Expand
from corral.providers.rag.selection import ContextHit, Key

MAX_SECTION_STEPS = 8
"""Maximum number of chunks that a section adds on each side of a hit."""

Neighbors = Mapping[str, Mapping[str, Chunk]]
"""The chunks adjacent to hits, by vector DB id and chunk id.

Only has vector DBs that expand their hits."""


@dataclass(frozen=True, slots=True)
class Span:
    """A chunk's place in its document.

    Attributes:
        position: Its number in the document, from 0.
        start, end: Offsets of its text in the document, in characters.
    """

    position: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Passage:
    """One item of a context: a hit, possibly joined with adjacent chunks and hits.

    Attributes:
        hits: Its hits, best first.
        chunks: All its chunks, in the order of their document.
        text: The joined text of the chunks.
    """

    hits: tuple[ContextHit, ...]
    chunks: tuple[Chunk, ...]
    text: str

    @property
    def best(self) -> ContextHit:
        """The best hit, which gives the passage its rank and metadata."""
        return self.hits[0]

    def split_up(self) -> list[Passage]:
        """Return each hit as its own passage, best first; [] if the passage is a single chunk."""
        return [bare(each) for each in self.hits] if len(self.chunks) > 1 else []


def bare(each: ContextHit) -> Passage:
    """Return a passage that consists of one hit."""
    return Passage((each,), (each.hit.chunk,), each.hit.chunk.content)


def span(chunk: Chunk) -> Span | None:
    """Return a chunk's place; None if it has no record, or the record does not fit its length."""
    record = chunk.chunk_metadata
    if record is None or record.position is None or record.char_start is None:
        return None
    if record.char_end != record.char_start + len(chunk.content) - repeated(chunk):
        return None
    return Span(record.position, record.char_start, record.char_end)


def repeated(chunk: Chunk) -> int:
    """Return the number of characters at the beginning of a chunk that repeat a table's header."""
    return (chunk.chunk_metadata.repeated_characters or 0) if chunk.chunk_metadata else 0


async def adjacent(
    index: EmbeddingIndex, chunks: Sequence[Chunk], expand: Expand, filters: Filter | None
) -> dict[str, Chunk]:
    """Return the chunks adjacent to the given ones in their documents, by id.

    The filters decide which chunks are visible, so adjacent chunks must pass them as well. A walk
    in one direction ends at a chunk that does not pass, was deleted, or is in another document.

    Args:
        index: Reads the chunks, in one call for each step.
        chunks: The hits; they are not in the result.
        expand: Number of chunks on each side, 1 to 5; "section" for all chunks with the same
            headings, at most `MAX_SECTION_STEPS` on each side.
        filters: The filters of the query.
    """
    given = {chunk.chunk_id: chunk for chunk in chunks if span(chunk)}
    chunks_by_id = dict(given)
    ends = [(chunk_id, ahead) for chunk_id in given for ahead in (False, True)]
    whole = expand == "section"
    for _ in range(MAX_SECTION_STEPS if expand == "section" else expand):
        links = list(_links(chunks_by_id, ends))
        missing = dict.fromkeys(target for _, target, _ in links if target not in chunks_by_id)
        fetched = await index.get_chunks(list(missing)) if missing else []
        arrived = {c.chunk_id: c for c in fetched if span(c) and matches(filters, c.metadata)}
        ends = []
        for origin, target, ahead in links:
            chunk = chunks_by_id.get(target) or arrived.get(target)
            if chunk and _belong_together(chunk, chunks_by_id[origin], in_section=whole):
                chunks_by_id[target] = chunk
                ends.append((target, ahead))
    return {chunk_id: chunk for chunk_id, chunk in chunks_by_id.items() if chunk_id not in given}


def _belong_together(one: Chunk, other: Chunk, *, in_section: bool) -> bool:
    """Return True if two chunks are in the same document and, if asked for, the same section."""
    return one.document_id == other.document_id and (
        not in_section or _headings(one) == _headings(other)
    )


def _headings(chunk: Chunk) -> list[str]:
    return list(chunk.chunk_metadata.heading_path or ()) if chunk.chunk_metadata else []


def _links(
    chunks: Mapping[str, Chunk], ends: Sequence[tuple[str, bool]]
) -> Iterator[tuple[str, str, bool]]:
    """Yield (chunk id, adjacent chunk id, True for the next chunk or False for the previous)."""
    for chunk_id, ahead in ends:
        record = chunks[chunk_id].chunk_metadata
        if record is not None:
            target = record.next_chunk_id if ahead else record.previous_chunk_id
            if target is not None:
                yield chunk_id, target, ahead


def passages(hits: Sequence[ContextHit], neighbors: Neighbors) -> list[Passage]:
    """Return the items of a context, best first.

    Args:
        hits: Best first.
        neighbors: The chunks adjacent to the hits. In each vector DB that is a key, hits are joined
            if they or their neighbors are adjacent. Other hits are not joined.

    Returns:
        Passages that together contain each hit once. A passage has the rank of its best hit.
    """
    ranks = {each.key: rank for rank, each in enumerate(hits)}
    made = [
        passage
        for vector_db_id, joining in neighbors.items()
        for passage in _joined(vector_db_id, joining, hits)
    ]
    joined = {each.key for passage in made for each in passage.hits}
    made += [bare(each) for each in hits if each.key not in joined]
    return sorted(made, key=lambda passage: ranks[passage.best.key])


def document_text(chunks: Sequence[Chunk]) -> str:
    """Return the text of a document, joined from its chunks in order, without their overlaps."""
    loose = [chunk for chunk in chunks if not (chunk.document_id and span(chunk))]
    texts = [text for _, text in _runs(chunks)]
    return "\n\n".join([*texts, *(chunk.content for chunk in loose)])


def _joined(
    vector_db_id: str, joining: Mapping[str, Chunk], hits: Sequence[ContextHit]
) -> Iterator[Passage]:
    """Yield the passages of one vector DB. Hits without a place in a document are skipped."""
    own = {each.hit.chunk.chunk_id: each for each in hits if each.vector_db_id == vector_db_id}
    order = {chunk_id: rank for rank, chunk_id in enumerate(own)}
    chunks = {**joining, **{name: each.hit.chunk for name, each in own.items()}}
    for run, text in _runs(chunks.values()):
        inside = sorted((c.chunk_id for c in run if c.chunk_id in own), key=order.__getitem__)
        if inside:
            yield Passage(tuple(own[name] for name in inside), tuple(run), text)


def _runs(chunks: Iterable[Chunk]) -> Iterator[tuple[list[Chunk], str]]:
    """Yield the longest runs of adjacent chunks, each with its joined text."""
    placed = [(c.document_id, at, c) for c in chunks if (at := span(c)) and c.document_id]
    placed.sort(key=lambda each: (each[0], each[1].position, each[2].chunk_id))
    run: list[Chunk] = []
    text, last = "", Span(0, 0, 0)
    for name, at, chunk in placed:
        tail = None
        if run and run[-1].document_id == name and _next(run[-1]) == chunk.chunk_id:
            tail = _tail(text, last, chunk, at)
        if tail is None and run:
            yield run, text
        if tail is None:
            run, text, last, tail = [], "", at, chunk.content
        run.append(chunk)
        text += tail
        last = Span(at.position, at.start, max(at.end, last.end))
    if run:
        yield run, text


def _next(chunk: Chunk) -> str | None:
    return chunk.chunk_metadata.next_chunk_id if chunk.chunk_metadata else None


def _tail(text: str, last: Span, chunk: Chunk, at: Span) -> str | None:
    """Return the text that a chunk adds to a run; None if their overlap has different texts."""
    content, gap = chunk.content[repeated(chunk) :], at.start - last.end
    if gap > 0:
        white = chunk.chunk_metadata.gap_before if chunk.chunk_metadata else None
        if white is None and gap > MAX_GAP:
            return "\n" + content
        is_recorded = white is not None and len(white) == gap and white.isspace()
        return f"{white}{content}" if is_recorded else None
    shared, rest = content[:-gap], content[-gap:]
    if gap == 0:
        return content
    return rest if at.start >= last.start and text.endswith(shared) else None


def arranged(chosen: Sequence[Passage], order: Order) -> list[Passage]:
    """Arrange passages, which come best first, in the order of the context."""
    if order == "edges":
        return [*chosen[0::2], *reversed(chosen[1::2])]
    if order == "score":
        return list(chosen)
    documents: dict[Key, int] = {}
    keys = []
    for rank, passage in enumerate(chosen):
        # A chunk without a document counts as its own document.
        document = (passage.best.vector_db_id, passage.best.hit.chunk.document_id or f"\0{rank}")
        keys.append((documents.setdefault(document, rank), *_position(passage), rank))
    return [chosen[key[-1]] for key in sorted(keys)]


def _position(passage: Passage) -> tuple[bool, int]:
    """Return the sort key of a passage in its document; those without a position come last."""
    record = passage.chunks[0].chunk_metadata
    has_position = record is not None and record.position is not None
    return not has_position, record.position or 0 if record else 0
