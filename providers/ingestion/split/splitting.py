"""Split a text into chunks of bounded cost, on the best boundaries there are.

`semantic-text-splitter` looks for the highest boundary that still fits (headings and blocks in
Markdown; paragraphs, lines, sentences, words, characters). Its cost grows with the square of a text
that has no sentence in it, and it holds the interpreter lock while it works. So it is given a
window of the text at a time: the chunk that touches a window's end is dropped, and the next window
starts where that chunk did, overlap included.

It asks for the sizes of some forty texts for each chunk, and the tokenizer of an embedding model is
slow. So it works with sizes that are nearly right, from one reading of the text. Each chunk is then
measured for itself, and one that is too large is cut again; that happens with exact sizes as well.
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
"""Characters in a window for each token of the chunk size. English has 4 a token, so a window holds
4 chunks or more. 1 MB of prose takes 0.3 s, English or Chinese, and 3.5 s where Chinese characters
follow each other without any punctuation (measured on one core)."""

MIN_WINDOW_CHARACTERS = 1024

READ_AHEAD = 3
"""Windows behind one whose tokens are counted with it, since windows overlap."""

LEAST_BODY = 4
"""A heading that takes more than 1 / 4 of a chunk stays alone: little of the rest would fit."""

_HEAD = re.compile(r"\s*(?:#{1,6}(?:\s|$)|`{3,}[^`]*$|~{3,}|<!--.*-->\s*$)")
"""A line that says nothing by itself: a heading, the fence of a code block, a comment."""

_BLOCK = re.compile(
    r"""
    \ {0,3}(`{3,}+|~{3,}+).*?\n\ {0,3}\1[`~]*[ \t]*(?=\n|\Z)  # code between its fences
    | [^\n|]*\|[^\n]*+\n\ {0,3}[|:-][|:\- \t]*+(?:\n[^\n|]*\|[^\n]*)+  # a table with its header
    | \ {0,3}(?:[-*+]|\d{1,9}[.)])[ \t][^\n]*  # a list: its first line, then items and indented
      (?:\n(?:\n*(?:[ \t]|(?:[-*+]|\d{1,9}[.)])[ \t])|(?![\#`~>|<]))[^\n]+)*  # or lazy lines
    """,
    re.VERBOSE | re.DOTALL,
)
"""A block that stays whole where it fits."""

_INK = re.compile(r"\S")
_BLANK = re.compile(rf"(?<!\s)\s{{{MIN_WINDOW_CHARACTERS},}}\n")


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk of a text, never blank.

    Attributes:
        text: `document[start:end]`, below the header of the table that it continues.
        start, end: Its span in the document, in characters.
        tokens: What `text` costs.
        first_token, end_token: Its span in the document, in tokens.
        repeated: Characters at the beginning of `text` that repeat the header of a table.
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
    split_on: str | None = None,
) -> Iterator[Piece]:
    """Yield the chunks of a text, in its order; none for a blank text.

    Everything but `split_on` and white space between chunks is in some chunk. A Markdown table that
    does not fit into one is cut between rows, and each further chunk repeats its header; a row that
    does not fit is cut between cells, and only a cell that does not fit between words.

    Args:
        text: Any text.
        chunk_size: Most tokens of a chunk, >= 1. Only a single character that costs more exceeds
            it: splitting inside a character would destroy it.
        overlap: Most tokens that a chunk repeats of the one before it, at most half of chunk_size.
            Whole sentences or words are repeated, so it is often less.
        markdown: Whether headings, lists, code blocks and tables are boundaries. A heading, or the
            fence of a code block, leads what follows it. Before a block that fits only without
            it, a heading ends the chunk before; it is a chunk alone where that has no room.
        counter: Counts the tokens; cl100k where absent.
        window: What a chunk has to fit into, too; None: nothing more.
        most: How many chunks are wanted: the work ends with the first one beyond, which is
            yielded too. None: all.
        sections: Of source code, where its classes and functions begin. A chunk is cut between
            them, without overlap; the lines of one are chunks of text where it does not fit.
        split_on: A text that no chunk crosses, overlaps included. A part between two of them that
            fits is one chunk. None or "": no such text.
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
"""Begin and end of a chunk in its text, and the header of a table that is repeated before it."""


def _pieces(text: str, spans: Iterator[Cut], count: Measure) -> Iterator[Piece]:
    """Yield the chunks at these spans, with their tokens; none that is blank or there already."""
    reached = first_token = covered = 0
    for start, end, header in spans:
        part = text[start:end]
        if not part.strip() or end <= covered:  # a window can begin within the overlap
            continue
        first_token += count(text[reached:start])
        reached, covered = start, end
        # Not stripped: without its first space a text can cost one token more.
        tokens, end_token = count(header + part), first_token + count(part)
        yield Piece(header + part, start, end, tokens, first_token, end_token, len(header))


def _parts(
    text: str, split_on: str, size: Size, cuts: Callable[[int, int], Iterator[Cut]]
) -> Iterator[Cut]:
    """Yield the chunks of each part between two `split_on`: one if it fits, else its cuts."""
    measure, begin = size.exact(), 0
    while begin <= len(text):
        position = text.find(split_on, begin)
        end = len(text) if position < 0 else position
        part = text[begin:end].strip()
        start = begin + text[begin:end].find(part)
        if measure(part) <= size.room:
            yield start, start + len(part), ""
        else:
            yield from cuts(start, start + len(part))
        begin = end + len(split_on)


def _stretches(
    text: str, begin: int, end: int, kind: Any, size: Size, overlap: int
) -> Iterator[Cut]:
    """Yield the chunks of what lies between long runs of blank lines.

    No chunk reaches over one: the splitter's time grows with its square.
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
    """A way through a text, a window of it at a time."""

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
        """Yield the chunks; a heading that leads nothing ends the chunk before if it fits there."""
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
        """Yield the chunks of one window after the other."""
        text = self._text
        start, length = 0, self._window
        while start < len(text):
            found = list(self._found(start, start + length))
            is_last = start + length >= len(text)
            if len(found) < 2 and not is_last:  # one chunk fills it: it must see where that ends
                length *= 2
                continue
            reached = yield from self._joined(found if is_last else found[:-1], is_last=is_last)
            if is_last and reached is None:
                return
            begin = found[-1][0] if reached is None else reached
            length = self._window if begin > start else length * 2
            start = begin

    def _found(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield begin and end of each chunk of a window as the splitter makes it.

        A window that begins in a block of code is read below the fence that opens the block: its
        end would be taken for the beginning of one.
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
        """Return a part of the text for the splitter: what begins within a line is no heading.

        It would be one for each number sign in the line, and a chunk each.
        """
        part = self._text[start:stop]
        before = self._text[max(0, start - 4) : start].rstrip(" ")
        is_inside = self._joins and part.startswith("#") and before and before[-1] != "\n"
        return f"x{part[1:]}" if is_inside else part

    def _nearly(self, start: int, stop: int) -> Measure:
        """Return what measures the parts of a window, nearly right."""
        stop = min(stop, len(self._text))
        known, nearly = self._near
        if start not in known or stop > known.stop:
            known = range(start, stop + READ_AHEAD * (stop - start))
            nearly = self._sizes.nearly(self._text[start : known.stop])
            self._near = known, nearly
        return nearly

    def _parts(self, text: str, size: Measure, room: int, overlap: int) -> list[tuple[int, str]]:
        """Return begin and text of each chunk of a text as the splitter makes it.

        It panics, which is no `Exception`, where an overlap begins before the chunk that it is of
        (0.33). The text is cut without overlaps then.
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
        """Yield chunks, each heading with what follows it; return where to go on, if not behind.

        Args:
            ends: Begin and end of each chunk that the splitter made.
            is_last: Whether the text ends with them.
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
        """Return True if a part fits: measured exactly where it is nearly too large."""
        return self._near[1](part) <= self._sizes.surely or self._size(part) <= self._room

    def _tears(self, begin: int, stop: int, end: int) -> bool:
        """Return True if a part fits that begins with a whole block, and `stop` is within that."""
        block = _BLOCK.match(self._text, begin, end + MIN_WINDOW_CHARACTERS)
        if block is None or block.end() <= stop or self._text[end : block.end()].strip():
            return False
        return self._holds(self._text[begin:end])

    def _is_head(self, part: str) -> bool:
        """Return True if a chunk says nothing by itself, and is small enough to lead another."""
        bare = self._joins and all(map(_HEAD.match, filter(str.strip, part.split("\n"))))
        return bare and self._size(part) * LEAST_BODY <= self._room

    def _cut(self, head: str, begin: int, end: int) -> tuple[int, int] | None:
        """Return where a chunk ends that has `head` before `begin`, and where the next begins.

        The body is split once more, by what the head leaves of the size.
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
        """Return where a chunk ends that cuts no row, where the next begins, and its header.

        Args:
            first, end: The chunk as the splitter made it.
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
            if row - first > self._window:  # the chunk ends in the header
                return end, end, ""
        return self._part_of_row(header, first, max(row, first), row_end) or (end, end, "")

    def _part_of_row(
        self, header: str, first: int, begin: int, row_end: int
    ) -> tuple[int, int, str] | None:
        """Return the same of a chunk that ends in the row at `begin`: behind a cell, or in one."""
        text = self._text
        stop = self._last_fitting(header, first, cell_ends(text, begin, row_end))
        if stop is not None:
            return first + len(text[first:stop].rstrip()), stop, header
        cell_end = next(cell_ends(text, begin, row_end), row_end)
        cut = self._cut(header + text[first:begin], begin, cell_end)
        return (*cut, header) if cut else None

    def _last_fitting(self, header: str, first: int, places: Iterable[int]) -> int | None:
        """Return the last of some places where a chunk that begins at `first` may end.

        Of many places it reads up to twice as many as fit.
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
        """Return the header of the columns at and behind a position; "" where it is too long."""
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
        """Return the table that a position is in, its end included."""
        number = bisect_left(self._table_ends, position)
        found = self._tables[number] if number < len(self._tables) else None
        return found if found and found.start <= position else None
