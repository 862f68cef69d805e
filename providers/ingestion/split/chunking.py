"""Split parsed documents into chunks that record their place: position, span, page, neighbors."""

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
from corral.api.document_names import public_source
from corral.api.embedder import Embedder
from corral.api.errors import InvalidRequest
from corral.api.findings import first_finding
from corral.api.rag import URL, RAGDocument
from corral.api.vector_dbs import DEFAULT_CHUNK_SIZE, ChunkingConfig, SplitOn, VectorDB
from corral.api.wire import MAX_ID_LENGTH
from corral.providers.ingestion.document_state import document_hash
from corral.providers.ingestion.read.parsing import ParsedDocument
from corral.providers.ingestion.split.budget import Window
from corral.providers.ingestion.split.headings import Heading
from corral.providers.ingestion.split.splitting import Piece, pieces_of
from corral.providers.text.tokens import DEFAULT_TOKENIZER, own_tokenizer, tokenizer

T = TypeVar("T")

MAX_CONTEXT_TOKENS = 80
"""Tokens that chunks leave of a model's window for the sentence about them."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The chunk sizes for a vector DB; they are known before its model is loaded.

    Attributes:
        chunking: The sizes.
        chosen: True if the request or the registration sets a size. It then applies even if the
            model's window is smaller.
    """

    chunking: ChunkingConfig
    chosen: bool

    @classmethod
    def of(
        cls,
        vector_db: VectorDB,
        size: int | None = None,
        overlap: int | None = None,
        split_on: SplitOn | None = None,
    ) -> Self:
        """Return the sizes of a request, or else of the registration, with a proportional overlap.

        The size is set in `chunking` only if it was chosen, so the record of a job shows that too.

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
            "context_model": registered.context_model,
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
        """Return a hash of all inputs that affect a document's chunks; see `document_hash`."""
        return document_hash(document, self.chunking, chosen=self.chosen)


def window_of(embedder: Embedder) -> Window | None:
    """Return the window of a model; None if it is unknown.

    If the model's tokenizer is not available, tokens are counted as cl100k does.
    """
    if embedder.window is None:
        return None
    own = embedder.tokenizer
    return Window(tokenizer() if own is None else own_tokenizer(own), embedder.window)


def unread(chunks: Sequence[Chunk], window: Window, model: str) -> list[str]:
    """Return a note if some chunks are longer than a model's window, else an empty list."""
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
    """Split a document and yield its chunks lazily, in order. Equal input gives equal ids.

    A chunk has the metadata of the document and of its front matter (the document wins), plus
    `document_id`, `token_count`, `metadata_token_count`, and the title if there is one. Its record
    (`chunk_metadata`) has its origin and its place in the document.

    Args:
        document: The document, for its id and metadata.
        parsed: The text of the document.
        chunking: The sizes.
        vector_db: The target, for its model.
        metadata_cost: Returns the number of tokens of metadata as a context prints it.
        window: If given, each chunk fits into it together with its headings.
        most: If there are more chunks, splitting ends after one more; None for all chunks.
        hashed: The hash to store with each chunk; see `document_hash`.
    """
    ends: str | list[int] | None
    if isinstance(chunking.split_on, int):
        level = chunking.split_on
        ends = [each.start for each in parsed.headings if each.level <= level]
    else:
        ends = chunking.split_on
        parsed = _without_marks(parsed, ends) if ends else parsed
    pieces = pieces_of(
        parsed.text,
        chunk_size=chunking.chunk_size_in_tokens,
        overlap=chunking.overlap_in_tokens,
        markdown=parsed.markdown,
        window=_beside_headings(_beside_context(window, chunking), parsed.headings),
        most=most,
        sections=() if parsed.markdown else parsed.headings,
        split_on=ends,
    )
    metadata: dict[str, Any] = {**parsed.metadata, **document.metadata}
    if parsed.title and "title" not in metadata:
        metadata["title"] = parsed.title
    metadata["document_id"] = document.document_id
    cost = metadata_cost(metadata)
    origin = _origin(document, vector_db, cost).model_copy(update={"document_hash": hashed})
    said = set(origin.model_fields_set)  # Shared by all: one set per record would take 2 KB each.
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
    """Return a document without headings that only exist because `split_on` underlines them.

    In Markdown, a line of `======` makes the line above it a heading.
    """
    headings, text = parsed.headings, parsed.text
    left = [each for each in headings if text.find(split_on, each.start + 1, each.end) < 0]
    title = parsed.title
    if title in {each.text for each in headings if each not in left}:
        title = next((each.text for each in left if each.level == 1), None)
    return replace(parsed, headings=tuple(left), title=title)


def _beside_context(window: Window | None, chunking: ChunkingConfig) -> Window | None:
    """Return the window that the sentence about a chunk leaves."""
    if window is None or chunking.context_model is None:
        return window
    return Window(window.counter, window.size - min(MAX_CONTEXT_TOKENS, window.size // 2))


def _beside_headings(window: Window | None, headings: Sequence[Heading]) -> Window | None:
    """Return the window that the longest headings leave for text; at least half of it."""
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
    """Yield each piece with the fields of its record that describe its place."""
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
    """Yield each item with the next one; None after the last."""
    held: list[T] = []
    for item in items:
        if held:
            yield held.pop(), item
        held.append(item)
    if held:
        yield held[0], None


class Outline:
    """Looks up the headings above a part of a document."""

    def __init__(self, headings: Sequence[Heading]) -> None:
        self._headings = headings
        self._starts = [heading.start for heading in headings]
        self.paths = list(_paths(headings))
        """For each heading, the headings above it and itself, outermost first."""

    def path(self, start: int, end: int, text: str) -> list[str]:
        """Return the headings above a part of a text, outermost first.

        If the part begins with headings, they count down to its first line of other text.
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
    """Converts characters of a text to line numbers."""

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
    """Return the first page of a piece, and the last page if it differs."""
    first, last = parsed.page(piece.start), parsed.page(piece.end - 1)
    return {"page": first, "page_end": None if last == first else last}


def _gap(text: str) -> str | None:
    """Return the text between two chunks for the record; None if it is empty or too long."""
    return text if 0 < len(text) <= MAX_GAP else None


def _source(document: RAGDocument) -> str | None:
    """Return the source of a document, without folders of the sender's machine.

    A `data:` URI is content and not a source.
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
