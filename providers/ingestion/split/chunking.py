"""Parsed documents to chunks that know their place: position, span, page, neighbors."""

from __future__ import annotations

import operator
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, pairwise
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from corral.api.chunks import (
    MAX_EMBEDDED_HEADINGS,
    MAX_GAP,
    MAX_HEADINGS,
    Chunk,
    ChunkMetadata,
    derive_chunk_id,
    embedded_text,
)
from corral.api.embedder import Embedder
from corral.api.errors import InvalidRequest
from corral.api.findings import first_finding
from corral.api.rag import URL, RAGDocument
from corral.api.vector_dbs import DEFAULT_CHUNK_SIZE, ChunkingConfig, VectorDB
from corral.api.wire import MAX_ID_LENGTH
from corral.providers.base.document_names import public_source
from corral.providers.ingestion.document_state import document_hash
from corral.providers.ingestion.read.parsing import ParsedDocument
from corral.providers.ingestion.split.budget import Window
from corral.providers.ingestion.split.headings import Heading
from corral.providers.ingestion.split.splitting import Piece, pieces_of
from corral.providers.text.tokens import DEFAULT_TOKENIZER, own_tokenizer, tokenizer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sizes:
    """What chunks of a vector DB may take; known before its model is loaded.

    Attributes:
        chunking: The sizes.
        chosen: Whether somebody has said a size: it is kept, even where the model reads less.
    """

    chunking: ChunkingConfig
    chosen: bool

    @classmethod
    def of(
        cls,
        vector_db: VectorDB,
        size: int | None = None,
        overlap: int | None = None,
        split_on: str | None = None,
    ) -> Self:
        """Return the sizes of a request, else those of the registration, overlap in scale.

        The size is set in `chunking` only if it is chosen: so a job's record tells it, too.

        Raises:
            InvalidRequest: A size is out of range.
        """
        registered = vector_db.chunking
        chosen = size is not None or registered.chunk_size_in_tokens != DEFAULT_CHUNK_SIZE
        size = registered.chunk_size_in_tokens if size is None else size
        if overlap is None:
            overlap = registered.overlap_in_tokens * size // registered.chunk_size_in_tokens
        given = {
            "overlap_in_tokens": overlap,
            "split_on": registered.split_on if split_on is None else split_on,
        }
        try:
            chunking = ChunkingConfig(**given, **({"chunk_size_in_tokens": size} if chosen else {}))
        except ValidationError as error:
            path, words = first_finding(error)
            raise InvalidRequest(
                f"Chunks of {size} tokens with an overlap of {overlap}: {words}.",
                hint="Use a size from 1 to 8192 and an overlap of at most half of it.",
                field=path or "chunk_size_in_tokens",
            ) from None
        return cls(chunking, chosen)

    def hash(self, document: RAGDocument) -> str | None:
        """Return a hash of all that decides on a document's chunks; see `document_hash`."""
        return document_hash(document, self.chunking, chosen=self.chosen)


def window_of(embedder: Embedder) -> Window | None:
    """Return what a model reads of a text; None where that is not known.

    A model whose tokenizer is not here is taken to count as cl100k does.
    """
    if embedder.window is None:
        return None
    own = embedder.tokenizer
    return Window(tokenizer() if own is None else own_tokenizer(own), embedder.window)


def unread(chunks: Sequence[Chunk], window: Window, model: str) -> list[str]:
    """Return a note where a model does not read all of some chunks, else nothing."""
    count = sum(not window.holds(embedded_text(chunk)) for chunk in chunks)
    if not count:
        return []
    return [
        f"{count} of {len(chunks)} chunks are longer than the {window.size} tokens that {model} "
        "reads: vector search does not know their ends. Leave chunk_size_in_tokens out, or "
        "use a smaller one."
    ]


def chunks_of(*arguments: Any) -> list[Chunk]:
    """Return the chunks of a document; see `each_chunk`."""
    return list(each_chunk(*arguments))


def each_chunk(
    document: RAGDocument,
    parsed: ParsedDocument,
    chunking: ChunkingConfig,
    vector_db: VectorDB,
    metadata_cost: Callable[[Mapping[str, Any]], int],
    window: Window | None = None,
    most: int | None = None,
    hashed: str | None = None,
) -> Iterator[Chunk]:
    """Split a document and yield its chunks in order, as they are made; equal input, equal ids.

    The metadata of each is the document's, else its front matter's, with `document_id`,
    `token_count` and `metadata_token_count`, and the document's title where it has one. Its record
    (`chunk_metadata`) says where it is from and what its place in the document is. A chunk fits
    into the `window` with its headings, if one is given. If there are more than `most`, splitting
    ends there and one more is yielded. `metadata_cost` returns the tokens of metadata as a context
    prints it. `hashed` is kept with each chunk; see `document_hash`.
    """
    if chunking.split_on:
        parsed = _without_marks(parsed, chunking.split_on)
    pieces = pieces_of(
        parsed.text,
        chunk_size=chunking.chunk_size_in_tokens,
        overlap=chunking.overlap_in_tokens,
        markdown=parsed.markdown,
        window=_beside_headings(window, parsed.headings),
        most=most,
        sections=() if parsed.markdown else parsed.headings,
        split_on=chunking.split_on,
    )
    metadata: dict[str, Any] = {**parsed.metadata, **document.metadata}
    if parsed.title and "title" not in metadata:
        metadata["title"] = parsed.title
    metadata["document_id"] = document.document_id
    cost = metadata_cost(metadata)
    origin = _origin(document, vector_db, cost).model_copy(update={"document_hash": hashed})
    said = set(origin.model_fields_set)  # one for all: pydantic's own takes 2 KB of each record
    for piece, place in _places(document.document_id, parsed, pieces):
        said |= place.keys()
        yield Chunk(
            chunk_id=place["chunk_id"],
            content=piece.text,
            metadata={**metadata, "token_count": piece.tokens, "metadata_token_count": cost},
            chunk_metadata=ChunkMetadata.model_construct(said, **{**dict(origin), **place}),
            acl=document.acl,
        )


def _without_marks(parsed: ParsedDocument, split_on: str) -> ParsedDocument:
    """Return a document without the headings that are some only because `split_on` follows.

    A line of `======` makes a heading of the line above it in Markdown.
    """
    headings, text = parsed.headings, parsed.text
    left = [each for each in headings if text.find(split_on, each.start + 1, each.end) < 0]
    title = parsed.title
    if title in {each.text for each in headings if each not in left}:
        title = next((each.text for each in left if each.level == 1), None)
    return replace(parsed, headings=tuple(left), title=title)


def _beside_headings(window: Window | None, headings: Sequence[Heading]) -> Window | None:
    """Return what a model reads of a chunk beside its headings; at least half of the window."""
    if window is None or not headings:
        return window
    lines = {" > ".join(path)[-MAX_EMBEDDED_HEADINGS:] for path in Outline(headings).paths}
    most = max(window.counter.count(line) for line in lines)
    return Window(window.counter, window.size - min(most + 1, window.size // 2))


def _origin(document: RAGDocument, vector_db: VectorDB, metadata_cost: int) -> ChunkMetadata:
    now = int(time.time())
    filename = document.metadata.get("filename")
    return ChunkMetadata(
        document_id=document.document_id,
        source=_source(document),
        created_timestamp=now,
        updated_timestamp=now,
        chunk_tokenizer=DEFAULT_TOKENIZER,
        chunk_embedding_model=vector_db.embedding_model,
        chunk_embedding_dimension=vector_db.embedding_dimension,
        metadata_token_count=metadata_cost,
        filename=filename if isinstance(filename, str) and len(filename) <= MAX_ID_LENGTH else None,
        document_origin=document.origin,
    )


def _places(
    document_id: str, parsed: ParsedDocument, pieces: Iterable[Piece]
) -> Iterator[tuple[Piece, dict[str, Any]]]:
    """Yield each piece, and what its record says of its place in the document."""
    outline, lines = Outline(parsed.headings), _Lines(parsed.text)
    numbered = enumerate(pieces)
    named = ((n, each, derive_chunk_id(document_id, each.text, n)) for n, each in numbered)
    before, end = None, 0
    for (n, piece, chunk_id), following in _with_following(named):
        yield (
            piece,
            {
                "chunk_id": chunk_id,
                "chunk_window": f"{piece.first_token}-{piece.end_token}",
                "content_token_count": piece.tokens,
                "position": n,
                "char_start": piece.start,
                "char_end": piece.end,
                "repeated_characters": piece.repeated or None,
                **_pages(parsed, piece),
                **(lines.span(piece) if parsed.has_lines else {}),
                **(lines.numbers(piece, parsed) if parsed.numbered else {}),
                # What it repeats of the chunk before is under that one's headings.
                "heading_path": outline.path(max(piece.start, end), piece.end, parsed.text) or None,
                "previous_chunk_id": before,
                "next_chunk_id": following and following[2],
                "gap_before": _gap(parsed.text[end : piece.start]) if n else None,
            },
        )
        before, end = chunk_id, piece.end


def _with_following(items: Iterable[T]) -> Iterator[tuple[T, T | None]]:
    """Yield each item with the one that follows it, None with the last."""
    held: list[T] = []
    for item in items:
        if held:
            yield held.pop(), item
        held.append(item)
    if held:
        yield held[0], None


class Outline:
    """The headings of a document, ready to be asked."""

    def __init__(self, headings: Sequence[Heading]) -> None:
        self._headings = headings
        self._starts = [heading.start for heading in headings]
        self.paths = list(_paths(headings))
        """Of each heading, those that it is under and itself."""

    def path(self, start: int, end: int, text: str) -> list[str]:
        """Return the headings that a part of a text is under, the outermost first.

        Of headings that the part begins with, they are those above its first other line.
        """
        number = bisect_right(self._starts, start) - 1
        position = start
        while number + 1 < len(self._starts):
            following = self._headings[number + 1]
            if following.start >= end or text[position : following.start].strip():
                break
            number, position = number + 1, following.end
        return list(self.paths[number]) if number >= 0 else []


class _Lines:
    """Counts the lines of a text on the way through it."""

    def __init__(self, text: str) -> None:
        self._breaks = [match.start() for match in re.finditer("\n", text)]

    def span(self, piece: Piece) -> dict[str, int]:
        """Return the lines of a piece, from 1."""
        first, last = self._span(piece)
        return {"line_start": first, "line_end": last}

    def numbers(self, piece: Piece, parsed: ParsedDocument) -> dict[str, int]:
        """Return the rows of the sheet in which a piece begins, or the cells of a notebook."""
        first, last = self._span(piece)
        numbers = [*dropwhile(operator.not_, parsed.numbers[first - 1 : last])]
        for place, pair in enumerate(pairwise(numbers)):
            if pair == (0, 0):  # another sheet follows
                numbers = numbers[:place]
                break
        own = [number for number in numbers if number]
        unit = parsed.numbered
        return {f"{unit}_start": own[0], f"{unit}_end": own[-1]} if own else {}

    def _span(self, piece: Piece) -> tuple[int, int]:
        first, last = (bisect_left(self._breaks, at) + 1 for at in (piece.start, piece.end - 1))
        return first, last


def _pages(parsed: ParsedDocument, piece: Piece) -> dict[str, int | None]:
    """Return the page on which a piece begins, and the one on which it ends if that is another."""
    first, last = parsed.page(piece.start), parsed.page(piece.end - 1)
    return {"page": first, "page_end": None if last == first else last}


def _gap(text: str) -> str | None:
    """Return the text between two chunks for the record; None where there is none."""
    return text if 0 < len(text) <= MAX_GAP else None


def _source(document: RAGDocument) -> str | None:
    """Return the source of a document, without folders of the sender's machine.

    A `data:` URI is content, not a source.
    """
    if isinstance(document.content, URL) and document.content.uri[:5].lower() != "data:":
        return document.content.uri
    source = document.metadata.get("source")
    return public_source(source) if isinstance(source, str) else None


def _paths(headings: Sequence[Heading]) -> Iterator[tuple[str, ...]]:
    open_: list[Heading] = []
    for heading in headings:
        while open_ and open_[-1].level >= heading.level:
            open_.pop()
        open_.append(heading)
        yield tuple(each.text for each in open_[-MAX_HEADINGS:])
