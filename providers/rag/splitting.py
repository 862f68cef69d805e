"""Split a text into chunks of bounded cost, on the best boundaries there are.

`semantic-text-splitter` looks for the highest boundary that still fits (headings and blocks in
Markdown; paragraphs, lines, sentences, words, characters) and never exceeds the size. Its cost
grows with the square of a text that has no sentence in it, and it holds the interpreter lock while
it works. So it is given a window of the text at a time: the chunk that touches a window's end is
dropped, and the next window starts where that chunk did, overlap included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from semantic_text_splitter import MarkdownSplitter, TextSplitter

from corral.providers.rag.tokens import Tokenizer, tokenizer

WINDOW_CHARACTERS_PER_TOKEN = 16
"""Characters in a window for each token of the chunk size. English has 4 a token, so a window holds
4 chunks or more. 1 MB of prose takes 0.3 s, English or Chinese, and 3.5 s where Chinese characters
follow each other without any punctuation (measured on one core)."""

MIN_WINDOW_CHARACTERS = 1024


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
        markdown: Whether headings, lists, code blocks and tables are boundaries.
        counter: Counts the tokens; cl100k where absent.
        window: What a chunk has to fit into, too; None: nothing more.
        most: How many chunks are wanted: the work ends with the first one beyond, which is
            returned too. None: all.
    """
    counting = counter or tokenizer()
    kind = MarkdownSplitter if markdown else TextSplitter
    splitter = kind.from_callback(_size(counting, chunk_size, window), chunk_size, overlap)
    span = max(MIN_WINDOW_CHARACTERS, WINDOW_CHARACTERS_PER_TOKEN * chunk_size)
    pieces: list[Piece] = []
    reached = first_token = covered = 0
    for start, part in _spans(text, splitter, span):
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


def _spans(text: str, splitter: Any, window: int) -> Iterator[tuple[int, str]]:
    """Yield (start, chunk), splitting a window of the text at a time."""
    start, size = 0, window
    while start < len(text):
        found = splitter.chunk_indices(text[start : start + size])
        if start + size >= len(text):
            yield from ((start + offset, part) for offset, part in found)
            return
        if len(found) < 2:  # one chunk fills the window: it must see where that one ends
            size *= 2
            continue
        yield from ((start + offset, part) for offset, part in found[:-1])
        start, size = start + found[-1][0], window
