"""Split a text into chunks of limited size, at the best boundaries.

`semantic-text-splitter` looks for the highest boundary that still fits (headings and blocks in
Markdown; paragraphs, lines, sentences, words, characters). Its time is quadratic in the length of a
text without sentences, and it holds the global interpreter lock. So it gets one window of the text
at a time: the chunk that touches the end of a window is dropped, and the next window starts where
that chunk started, including its overlap.

It measures about forty texts per chunk, and the tokenizers of embedding models are slow. So it uses
nearly exact sizes, computed from one tokenization of the text. Then each chunk is measured exactly,
and a chunk that is too large is cut again. (The splitter returns such chunks with exact sizes too.)
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from semantic_text_splitter import MarkdownSplitter, TextSplitter

from corral.providers.ingestion.split.budget import Measure, Size, Window
from corral.providers.ingestion.split.headings import Heading
from corral.providers.ingestion.split.sections import Sections
from corral.providers.ingestion.split.tables import FENCE, Table, bars, cell_ends, find_tables
from corral.providers.text.tokens import Tokenizer, tokenizer

WINDOW_CHARACTERS_PER_TOKEN = 16
"""Number of characters in a window for each token of the chunk size.

English has 4 characters per token, so a window has 4 chunks or more. 1 MB of prose takes 0.3 s,
English or Chinese, and Chinese without punctuation takes 3.5 s (measured on one core)."""

MIN_WINDOW_CHARACTERS = 1024

READ_AHEAD = 3
"""Number of further windows that are tokenized together with a window, since windows overlap."""

LEAST_BODY = 4
"""A heading that takes more than 1 / 4 of a chunk stays alone, since little else would fit."""

_HEAD = re.compile(r"\s*(?:#{1,6}(?:\s|$)|`{3,}[^`]*$|~{3,}|<!--.*-->\s*$)")
"""Matches a line without content of its own: a heading, the fence of a code block, a comment."""

_BLOCK = re.compile(
    r"""
    \ {0,3}(`{3,}+|~{3,}+).*?\n\ {0,3}\1[`~]*[ \t]*(?=\n|\Z)  # code between its fences
    | [^\n|]*\|[^\n]*+\n\ {0,3}[|:-][|:\- \t]*+(?:\n[^\n|]*\|[^\n]*)+  # a table with its header
    | \ {0,3}(?:[-*+]|\d{1,9}[.)])[ \t][^\n]*  # a list: its first line, then items and indented
      (?:\n(?:\n*(?:[ \t]|(?:[-*+]|\d{1,9}[.)])[ \t])|(?![\#`~>|<]))[^\n]+)*  # or lazy lines
    """,
    re.VERBOSE | re.DOTALL,
)
"""Matches a block that stays whole if it fits."""

_INK = re.compile(r"\S")
_BLANK = re.compile(rf"(?<!\s)\s{{{MIN_WINDOW_CHARACTERS},}}\n")


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk of a text, never blank.

    Attributes:
        text: `document[start:end]`, preceded by the table header if it continues a table.
        start, end: Its span in the document, in characters.
        tokens: Number of tokens of `text`.
        first_token, end_token: Its span in the document, in tokens.
        repeated: Number of characters at the beginning of `text` that repeat a table header.
    """

    text: str
    start: int
    end: int
    tokens: int
    first_token: int
    end_token: int
    repeated: int = 0


def split(text: str, **how: Any) -> list[Piece]:
    """Return the chunks of a text; see `pieces_of`."""
    return list(pieces_of(text, **how))


def pieces_of(
    text: str,
    *,
    chunk_size: int,
    overlap: int,
    markdown: bool = False,
    counter: Tokenizer | None = None,
    window: Window | None = None,
    most: int | None = None,
    sections: Sequence[Heading] = (),
    split_on: str | Sequence[int] | None = None,
) -> Iterator[Piece]:
    """Yield the chunks of a text in order; none for a blank text.

    Chunks cover the whole text except `split_on` and white space between chunks. A Markdown table
    that does not fit into a chunk is cut between rows, and each further chunk repeats its header. A
    row that does not fit is cut between cells, and a cell that does not fit is cut between words.

    Args:
        text: Any text.
        chunk_size: Maximum number of tokens per chunk, >= 1. A single character with more tokens
            exceeds it, because splitting a character would destroy it.
        overlap: Maximum number of tokens that a chunk repeats from the previous one, at most half
            of `chunk_size`. Only whole sentences or words are repeated, so it is often less.
        markdown: True to split at headings, lists, code blocks and tables. A heading, or the fence
            of a code block, stays with the text after it. If a block fits only without its heading,
            the heading ends the previous chunk, or is a chunk by itself if that has no room.
        counter: Counts the tokens; None for cl100k.
        window: A window that each chunk must fit as well; None for no such limit.
        most: Number of chunks wanted; splitting ends after one more is yielded. None for all.
        sections: Headings for the classes and functions of source code. Chunks are cut between
            them, without overlap; a section that does not fit is split like text.
        split_on: A text that no chunk crosses, not even by its overlap, or the positions at which
            chunks end. A part between two of them is one chunk if it fits. None or "" for none.
    """
    size = Size(counter or tokenizer(), chunk_size, window)
    kind = MarkdownSplitter if markdown else TextSplitter

    def cuts(begin: int, end: int) -> Iterator[Cut]:
        if sections:
            return _sections(text, begin, end, sections, size, overlap)
        return _stretches(text, begin, end, kind, size, overlap)

    spans = _parts(text, split_on, size, cuts) if split_on else cuts(0, len(text))
    yield from islice(_pieces(text, spans, size.count), None if most is None else most + 1)


Cut: TypeAlias = tuple[int, int, str]
"""Start and end of a chunk in its text, and the table header to repeat before it."""


def _pieces(text: str, spans: Iterator[Cut], count: Measure) -> Iterator[Piece]:
    """Yield the chunks at the spans with their token counts; skip blank and repeated ones."""
    reached = first_token = covered = 0
    for start, end, header in spans:
        part = text[start:end]
        if not part.strip() or end <= covered:  # A window can begin within the overlap.
            continue
        first_token += count(text[reached:start])
        reached, covered = start, end
        # Do not strip: without its first space, a text can have one token more.
        tokens, end_token = count(header + part), first_token + count(part)
        yield Piece(header + part, start, end, tokens, first_token, end_token, len(header))


def _parts(
    text: str,
    split_on: str | Sequence[int],
    size: Size,
    cuts: Callable[[int, int], Iterator[Cut]],
) -> Iterator[Cut]:
    """Yield the chunks of each part between two `split_on`: a single one if the part fits."""
    if isinstance(split_on, str):
        marks = [match.span() for match in re.finditer(re.escape(split_on), text)]
    else:
        marks = [(place, place) for place in split_on]
    measure, begin = size.exact(), 0
    for end, following in [*marks, (len(text), len(text))]:
        part = text[begin:end].strip()
        start = begin + text[begin:end].find(part)
        if measure(part) <= size.room:
            yield start, start + len(part), ""
        else:
            yield from cuts(start, start + len(part))
        begin = following


def _stretches(
    text: str, begin: int, end: int, kind: Any, size: Size, overlap: int
) -> Iterator[Cut]:
    """Yield the chunks of the text between long runs of blank lines.

    No chunk crosses such a run, since the splitter's time is quadratic in its length.
    """
    start = begin
    for stop, following in [*(run.span() for run in _BLANK.finditer(text, begin, end)), (end, end)]:
        for first, last, header in _Walk(text[start:stop], kind, size, overlap).spans():
            yield start + first, start + last, header
        start = following


def _sections(
    text: str, begin: int, end: int, sections: Sequence[Heading], size: Size, overlap: int
) -> Iterator[Cut]:
    measure = size.exact()

    def plain(begin: int, end: int) -> Iterator[tuple[int, int]]:
        walk = _Walk(text[begin:end], TextSplitter, size, overlap)
        return ((begin + start, begin + stop) for start, stop, _ in walk.spans())

    def fits(part: str) -> bool:
        return measure(part) <= size.room

    for start, stop in Sections(text, sections, fits, plain).spans(begin, end):
        part = text[start:stop]
        blank = len(part) - len(part.lstrip("\n"))
        yield start + blank, start + len(part.rstrip()), ""


class _Walk:
    """Splits a text, one window at a time."""

    def __init__(self, text: str, kind: Any, size: Size, overlap: int) -> None:
        self._text = text
        self._kind = kind
        self._sizes = size
        self._size = size.exact()
        self._room = size.room
        self._overlap = size.share(overlap)
        self._near = range(0), self._size
        self._joins = kind is MarkdownSplitter
        self._tables = find_tables(text) if self._joins else []
        self._fences = list(FENCE.finditer(text)) if self._joins else []
        self._table_ends = [table.end for table in self._tables]
        self._window = max(MIN_WINDOW_CHARACTERS, WINDOW_CHARACTERS_PER_TOKEN * self._room)
        self._row: tuple[int, list[int]] = -1, []

    def spans(self) -> Iterator[Cut]:
        """Yield the chunks; a heading with no text after it ends the previous chunk if it fits."""
        held: Cut | None = None
        for start, end, header in self._cuts():
            if held and self._is_head(self._text[start:end]) and self._fits(held[2], held[0], end):
                held = held[0], end, held[2]
                continue
            if held:
                yield held
            held = start, end, header
        if held:
            yield held

    def _cuts(self) -> Iterator[Cut]:
        """Yield the chunks, window by window."""
        text = self._text
        start, length = 0, self._window
        while start < len(text):
            found = list(self._found(start, start + length))
            is_last = start + length >= len(text)
            if len(found) < 2 and not is_last:  # The window must be larger than one chunk.
                length *= 2
                continue
            reached = yield from self._joined(found if is_last else found[:-1], is_last=is_last)
            if is_last and reached is None:
                return
            begin = found[-1][0] if reached is None else reached
            length = self._window if begin > start else length * 2
            start = begin

    def _found(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each chunk of a window, as the splitter returns them.

        If a window begins in a code block, the opening fence is put before it. Otherwise the
        splitter would take the closing fence for the beginning of a code block.
        """
        number = bisect_left(self._fences, start, key=lambda fence: fence.start())
        fence = self._fences[number - 1] if number % 2 else None
        lead = f"{fence[0].strip()}\n" if fence and fence.end() <= start else ""
        text, measure = lead + self._window_of(start, stop), self._nearly(start, stop)
        for offset, part in self._parts(text, measure, self._room, self._overlap):
            begin, end = (start + place - len(lead) for place in (offset, offset + len(part)))
            if end > start:
                yield max(begin, start), end

    def _window_of(self, start: int, stop: int) -> str:
        """Return a window of the text, changed if it begins with `#` in the middle of a line.

        The splitter would take each number sign in that line for a heading, and make it a chunk.
        """
        part = self._text[start:stop]
        before = self._text[max(0, start - 4) : start].rstrip(" ")
        is_inside = self._joins and part.startswith("#") and before and before[-1] != "\n"
        return f"x{part[1:]}" if is_inside else part

    def _nearly(self, start: int, stop: int) -> Measure:
        """Return the nearly exact measure for the parts of a window."""
        stop = min(stop, len(self._text))
        known, nearly = self._near
        if start not in known or stop > known.stop:
            known = range(start, stop + READ_AHEAD * (stop - start))
            nearly = self._sizes.nearly(self._text[start : known.stop])
            self._near = known, nearly
        return nearly

    def _parts(self, text: str, size: Measure, room: int, overlap: int) -> list[tuple[int, str]]:
        """Return the start and text of each chunk, as the splitter returns them.

        Version 0.33 of the splitter panics if an overlap would begin before its chunk; the panic is
        not an `Exception`. The text is then split without overlaps.
        """
        for most in (overlap, 0):
            try:
                parts: list[tuple[int, str]] = self._kind.from_callback(
                    size, room, most
                ).chunk_indices(text)
            except BaseException as error:
                if type(error).__name__ != "PanicException":
                    raise
            else:
                return parts
        raise RuntimeError("The splitter panicked.")

    def _joined(
        self, ends: Sequence[tuple[int, int]], *, is_last: bool
    ) -> Generator[Cut, None, int | None]:
        """Yield chunks, joining each heading with the text after it.

        Return the position to continue from, or None to continue after the last chunk.

        Args:
            ends: Start and end of each chunk from the splitter.
            is_last: True if the text ends with these chunks.
        """
        text = self._text
        head: int | None = None
        for number, (begin, found) in enumerate(ends):
            end, reached = found, None
            first = begin if head is None else head
            if not self._holds(text[first:found]):
                cut = self._cut(text[first:begin], begin, found)
                if head is not None and (cut is None or self._tears(begin, cut[0], found)):
                    yield head, ends[number - 1][1], ""
                    first = begin
                elif cut is not None:
                    end, reached = cut
            more = number + 1 < len(ends) or not is_last
            head = first if reached is None and more and self._is_head(text[first:end]) else None
            if head is not None:
                continue
            stop, following, header = self._whole_rows(first, end)
            yield first, stop, header
            if reached is not None or stop != end:
                return reached if stop == end else following
        return head

    def _holds(self, part: str) -> bool:
        """Return True if a part fits; it is measured exactly only if it is nearly too large."""
        return self._near[1](part) <= self._sizes.surely or self._size(part) <= self._room

    def _tears(self, begin: int, stop: int, end: int) -> bool:
        """Return True if `stop` tears a block at the beginning of a part that fits as a whole."""
        block = _BLOCK.match(self._text, begin, end + MIN_WINDOW_CHARACTERS)
        if block is None or block.end() <= stop or self._text[end : block.end()].strip():
            return False
        return self._holds(self._text[begin:end])

    def _is_head(self, part: str) -> bool:
        """Return True if a chunk has no content but headings, and is small enough to be joined."""
        bare = self._joins and all(map(_HEAD.match, filter(str.strip, part.split("\n"))))
        return bare and self._size(part) * LEAST_BODY <= self._room

    def _cut(self, head: str, begin: int, end: int) -> tuple[int, int] | None:
        """Return the end of a chunk that puts `head` before `begin`, and the start of the next.

        The body is split again, into the room that the head leaves.
        """
        length = self._window
        room = self._room - self._size(head)
        while room * LEAST_BODY >= self._room:
            overlap = min(self._overlap, room // 2)
            window = self._window_of(begin, min(begin + length, end))
            parts = self._parts(window, self._near[1], room, overlap)
            if len(parts) < 2 and begin + length < end:
                length *= 2
                continue
            stop = begin + parts[0][0] + len(parts[0][1])
            excess = self._size(head + self._text[begin:stop]) - self._room
            if excess <= 0:
                return stop, begin + parts[1][0] if len(parts) > 1 else end
            room -= excess
        return None

    # --- tables ------------------------------------------------------------------------------

    def _whole_rows(self, first: int, end: int) -> tuple[int, int, str]:
        """Return the end of a chunk that cuts no row, the start of the next, and its header.

        Args:
            first, end: The chunk as the splitter returned it.
        """
        begun, cut = self._table_at(first), self._table_at(end)
        begun = begun if begun and begun.body <= first else None
        cut = cut if cut and cut.start < end and not cut.rows_in(end - 1, end) else None
        row, row_end = begun.row(first) if begun else (first, end)
        is_rest = _INK.search(self._text, row, first) is not None
        header = self._header(begun, first) if begun else ""
        if not cut and not is_rest and (not header or self._fits(header, first, end)):
            return end, end, header
        tables = [table for table in (begun, cut) if table]
        rows = [stop for table in tables for stop in table.rows_in(first, end)]
        if is_rest:
            rows = [row_end] if row_end <= max(end, first + self._window) else []
        stop = self._last_fitting(header, first, rows)
        if (
            stop is None
            and cut
            and first < cut.start
            and not self._is_head(self._text[first : cut.start])
        ):
            stop = cut.start
        if stop is not None:
            return first + len(self._text[first:stop].rstrip()), stop, header
        if not begun and cut:
            row, row_end = cut.row(max(cut.body, first))
            if row - first > self._window:  # The chunk ends in the header.
                return end, end, ""
        return self._part_of_row(header, first, max(row, first), row_end) or (end, end, "")

    def _part_of_row(
        self, header: str, first: int, begin: int, row_end: int
    ) -> tuple[int, int, str] | None:
        """Return the same for a chunk that ends within the row at `begin`: after or in a cell."""
        text = self._text
        reach = min(row_end, begin + self._window)  # A row may be as long as the document.
        stop = self._last_fitting(header, first, cell_ends(text, begin, reach))
        if stop is not None:
            return first + len(text[first:stop].rstrip()), stop, header
        cell_end = next(cell_ends(text, begin, reach), row_end)
        cut = self._cut(header + text[first:begin], begin, cell_end)
        return (*cut, header) if cut else None

    def _last_fitting(self, header: str, first: int, places: Iterable[int]) -> int | None:
        """Return the last of the places where a chunk that begins at `first` still fits.

        At most twice as many places are read as fit.
        """
        stops: list[int] = []
        for stop in places:
            stops.append(stop)
            if len(stops).bit_count() == 1 and not self._fits(header, first, stop):
                break
        number = bisect_right(stops, 0, key=lambda stop: 1 - self._fits(header, first, stop))
        return stops[number - 1] if number else None

    def _fits(self, header: str, first: int, end: int) -> bool:
        return self._size(header + self._text[first:end]) <= self._room

    def _header(self, table: Table, position: int) -> str:
        """Return the header of the columns from a position on; "" if it is too long."""
        row, row_end = table.row(position)
        if self._row[0] != row:
            self._row = row, bars(self._text, row, row_end)
        ink = _INK.search(self._text, row, row_end)
        column = 0
        if ink and ink.start() < position:
            column = bisect_right(self._row[1], position) - (ink[0] == "|")
        header = table.header_from(column, self._window)
        return header if self._size(header) * 2 <= self._room else ""

    def _table_at(self, position: int) -> Table | None:
        """Return the table that contains a position, including its end; None if there is none."""
        number = bisect_left(self._table_ends, position)
        found = self._tables[number] if number < len(self._tables) else None
        return found if found and found.start <= position else None
