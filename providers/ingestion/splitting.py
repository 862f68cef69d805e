"""Split a text into chunks of bounded cost, on the best boundaries there are.

`semantic-text-splitter` looks for the highest boundary that still fits (headings and blocks in
Markdown; paragraphs, lines, sentences, words, characters) and never exceeds the size. Its cost
grows with the square of a text that has no sentence in it, and it holds the interpreter lock while
it works. So it is given a window of the text at a time: the chunk that touches a window's end is
dropped, and the next window starts where that chunk did, overlap included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from semantic_text_splitter import MarkdownSplitter, TextSplitter

from corral.providers.rag.tokens import Tokenizer, tokenizer

WINDOW_CHARACTERS_PER_TOKEN = 16
"""Characters in a window for each token of the chunk size. English has 4 a token, so a window holds
4 chunks or more. 1 MB of prose takes 0.3 s, English or Chinese, and 3.5 s where Chinese characters
follow each other without any punctuation (measured on one core)."""

MIN_WINDOW_CHARACTERS = 1024

LEAST_BODY = 4
"""A heading that takes more than 1 / 4 of a chunk stays alone: little of the rest would fit."""

_HEAD = re.compile(r"\s*(?:#{1,6}(?:\s|$)|`{3,}[^`]*$|~{3,}|<!--.*-->\s*$)")
"""A line that says nothing by itself: a heading, the fence of a code block, a comment."""


@dataclass(frozen=True, slots=True)
class Window:
    """What an embedding model reads of a text: so many tokens by its own count.

    Attributes:
        counter: Counts as the model does.
        size: Tokens, >= 1.
    """

    counter: Tokenizer
    size: int

    def holds(self, text: str) -> bool:
        """Return True if the model reads all of a text."""
        return self.counter.count_within(text, self.size) is not None


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk of a text, never blank.

    Attributes:
        text: `document[start:end]`.
        start, end: Its span in the document, in characters.
        tokens: What it costs.
        first_token: What the document before `start` costs: with `tokens`, its span in tokens.
    """

    text: str
    start: int
    end: int
    tokens: int
    first_token: int


def split(
    text: str,
    *,
    chunk_size: int,
    overlap: int,
    markdown: bool = False,
    counter: Tokenizer | None = None,
    window: Window | None = None,
    most: int | None = None,
) -> list[Piece]:
    """Return the chunks of a text, in its order; none for a blank text.

    Everything but white space between chunks is in some chunk.

    Args:
        text: Any text.
        chunk_size: Most tokens of a chunk, >= 1. Only a single character that costs more exceeds
            it: splitting inside a character would destroy it.
        overlap: Most tokens that a chunk repeats of the one before it, at most half of chunk_size.
            Whole sentences or words are repeated, so it is often less.
        markdown: Whether headings, lists, code blocks and tables are boundaries. A heading, or the
            fence of a code block, is never a chunk alone where something follows it.
        counter: Counts the tokens; cl100k where absent.
        window: What a chunk has to fit into, too; None: nothing more.
        most: How many chunks are wanted: the work ends with the first one beyond, which is
            returned too. None: all.
    """
    counting = counter or tokenizer()
    kind = MarkdownSplitter if markdown else TextSplitter
    walk = _Walk(text, kind, _size(counting, chunk_size, window), chunk_size, overlap)
    pieces: list[Piece] = []
    reached = first_token = covered = 0
    for start, part in walk.spans():
        end = start + len(part)
        if not part.strip() or end <= covered:  # a window can begin within the overlap
            continue
        first_token += counting.count(text[reached:start])
        reached, covered = start, end
        # Not stripped: without its first space a text can cost one token more.
        pieces.append(Piece(part, start, end, counting.count(part), first_token))
        if most is not None and len(pieces) > most:
            break
    return pieces


def _size(counter: Tokenizer, chunk_size: int, window: Window | None) -> Callable[[str], int]:
    """Return what measures a text: at most `chunk_size` only where the window holds it, too."""
    if window is None:
        return counter.count
    own, most = window.counter, window.size

    def size(text: str) -> int:
        tokens = counter.count(text)
        # No tokenizer makes more tokens than there are bytes, but for a mark at the beginning.
        if tokens > chunk_size or len(text) * 4 < most:
            return tokens
        return max(tokens, -(-own.count(text) * chunk_size // most))

    return size


class _Walk:
    """A way through a text, a window of it at a time.

    Args:
        text: The text.
        kind: The splitter's class.
        size: Measures a text.
        chunk_size, overlap: As in `split`.
    """

    def __init__(
        self, text: str, kind: Any, size: Callable[[str], int], chunk_size: int, overlap: int
    ) -> None:
        self._text = text
        self._kind = kind
        self._size = size
        self._chunk_size = chunk_size
        self._overlap = overlap
        self._splitter = kind.from_callback(size, chunk_size, overlap)
        self._joins = kind is MarkdownSplitter

    def spans(self) -> Iterator[tuple[int, str]]:
        """Yield (start, chunk)."""
        text = self._text
        window = max(MIN_WINDOW_CHARACTERS, WINDOW_CHARACTERS_PER_TOKEN * self._chunk_size)
        start, length = 0, window
        while start < len(text):
            found = self._splitter.chunk_indices(text[start : start + length])
            is_last = start + length >= len(text)
            if len(found) < 2 and not is_last:  # one chunk fills it: it must see where that ends
                length *= 2
                continue
            ends = [(start + offset, start + offset + len(part)) for offset, part in found]
            reached = yield from self._joined(ends if is_last else ends[:-1], is_last=is_last)
            if is_last and reached is None:
                return
            begin = ends[-1][0] if reached is None else reached
            length = window if begin > start else length * 2
            start = begin

    def _joined(
        self, ends: Sequence[tuple[int, int]], *, is_last: bool
    ) -> Generator[tuple[int, str], None, int | None]:
        """Yield chunks, each heading with what follows it; return where to go on, if not behind.

        Args:
            ends: Begin and end of each chunk that the splitter made.
            is_last: Whether the text ends with them.
        """
        text, head = self._text, None
        for number, (begin, end) in enumerate(ends):
            if head is not None and self._size(text[head:end]) > self._chunk_size:
                cut = self._cut(head, begin, end)
                if cut is not None:
                    yield head, text[head : cut[0]]
                    return cut[1]
                yield head, text[head : ends[number - 1][1]]
                head = None
            first = begin if head is None else head
            more = number + 1 < len(ends) or not is_last
            head = first if more and self._is_head(text[first:end]) else None
            if head is None:
                yield first, text[first:end]
        return head

    def _is_head(self, part: str) -> bool:
        """Return True if a chunk says nothing by itself, and is small enough to lead another."""
        bare = self._joins and all(map(_HEAD.match, filter(str.strip, part.split("\n"))))
        return bare and self._size(part) * LEAST_BODY <= self._chunk_size

    def _cut(self, head: int, begin: int, end: int) -> tuple[int, int] | None:
        """Return where a chunk ends that begins at `head`, and where the next begins.

        The body is split once more, by what the heading leaves of the size.
        """
        body = self._text[begin:end]
        room = self._chunk_size - self._size(self._text[head:begin])
        while room * LEAST_BODY >= self._chunk_size:
            splitter = self._kind.from_callback(self._size, room, min(self._overlap, room // 2))
            parts = splitter.chunk_indices(body)
            stop = begin + parts[0][0] + len(parts[0][1])
            excess = self._size(self._text[head:stop]) - self._chunk_size
            if excess <= 0:
                return stop, begin + parts[1][0] if len(parts) > 1 else end
            room -= excess
        return None
