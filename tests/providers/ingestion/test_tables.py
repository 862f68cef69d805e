"""A table that continues over several chunks can be read in each of them."""

from __future__ import annotations

import re
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.providers.ingestion.split.splitting import Piece, split
from corral.providers.ingestion.split.tables import find_tables
from corral.providers.text.tokens import tokenizer

from ...growth import growth

HEADER = "| name | field | head |\n|---|:---|---:|\n"
ROWS = [f"| herd {n} | field {n * 7} | {n} |" for n in range(60)]
LONG = "grass grows by the fence " * 30


def pieces_of(text: str, size: int = 64, overlap: int = 0) -> list[Piece]:
    """Split Markdown, and assert what holds for every split of it."""
    pieces = split(text, chunk_size=size, overlap=overlap, markdown=True)
    for piece in pieces:
        assert piece.tokens == tokenizer().count(piece.text) <= size
        assert piece.text[piece.repeated :] == text[piece.start : piece.end]
    for before, after in pairwise(pieces):
        assert not text[before.end : after.start].strip(), "something is in no chunk"
    return pieces


@pytest.mark.parametrize("overlap", [0, 24])
def test_each_part_of_a_table_begins_with_its_header(overlap: int) -> None:
    """Every chunk with rows has the header row and the separator; every row is whole.

    If this fails: a chunk says "| herd 7 | field 49 | 7 |", and nobody knows what 7 is.
    """
    text = "# Herds\n\nWho grazes where.\n\n" + HEADER + "\n".join(ROWS) + "\n\nThe end."
    pieces = pieces_of(text, overlap=overlap)
    parts = [piece for piece in pieces if "| herd" in piece.text]
    assert len(parts) > 5
    assert all(HEADER in piece.text for piece in parts)
    assert [bool(piece.repeated) for piece in parts] == [False] + [True] * (len(parts) - 1)
    shown = [line for piece in parts for line in piece.text.split("\n") if "| herd" in line]
    assert set(shown) == set(ROWS)


def test_a_row_longer_than_a_chunk_is_cut_between_cells() -> None:
    """Each part has whole cells, under the header of those cells."""
    row = "| " + " | ".join(f"cell {n} " + "hay " * 12 for n in range(8)) + " |"
    head = "| " + " | ".join(f"h{n}" for n in range(8)) + " |\n" + "|---" * 8 + "|\n"
    pieces = pieces_of(f"{head}{row}\n| a | b | c | d | e | f | g | h |", 120)
    for piece in pieces[:-1]:
        line = piece.text.split("\n")[-1]
        assert all(len(cell.split()) == 14 for cell in line.strip("| ").split("|"))
        cells = [int(n) for n in re.findall(r"cell (\d)", line)]
        heads = [int(n) for n in re.findall(r"h(\d)", piece.text.split("\n")[0])]
        assert heads[: len(cells)] == cells
    assert pieces[-1].text == f"{head}| a | b | c | d | e | f | g | h |"


def test_a_cell_longer_than_a_chunk_is_cut_between_words() -> None:
    """All that is left is a cut in the cell, and its parts keep the header of their column."""
    text = f"{HEADER}| a | {LONG}| 7 |\n| b | c | d |"
    pieces = pieces_of(text)
    assert len(pieces) > 3
    assert all("field" in piece.text.split("\n")[0] for piece in pieces[:-1])
    assert pieces[-1].text == f"{HEADER}| b | c | d |"
    words = re.findall("[a-z]+", " ".join(piece.text[piece.repeated :] for piece in pieces))
    assert words == re.findall("[a-z]+", text)


def test_a_heading_stays_with_the_table_below_it() -> None:
    """A heading before a long table leads its first rows."""
    pieces = pieces_of("## Herds\n\n" + HEADER + "\n".join(ROWS))
    assert pieces[0].text.startswith("## Herds\n\n" + HEADER + ROWS[0])


def test_the_work_for_a_wide_row_grows_with_its_length() -> None:
    """Four times the columns take about four times the reading: nothing is read for each chunk.

    If this fails: a spreadsheet of 86 KB keeps a worker busy for minutes, and 3 MB for hours.
    """
    count = tokenizer().count
    read: list[int] = []

    def counted(text: str) -> int:
        read.append(len(text))
        return count(text)

    def characters(columns: int) -> int:
        read.clear()
        text = f"{'| name ' * columns}|\n{'|---' * columns}|\n{'| cell ' * columns}|"
        counter: Any = SimpleNamespace(count=counted)
        split(text, chunk_size=64, overlap=0, markdown=True, counter=counter)
        return sum(read)

    assert characters(2000) < 6 * characters(500)


def test_the_work_for_a_long_cell_grows_with_its_length() -> None:
    """A cell that fills many chunks is not read to its end for each of them.

    If this fails: look at how far `_part_of_row` looks for the end of a cell.
    """

    def parts(words: int) -> int:
        text = f"| a | b |\n|---|---|\n| {'x ' * words} | y |"
        return len(split(text, chunk_size=256, overlap=0, markdown=True))

    assert growth(parts, 12_000, 96_000) < 12


def test_a_header_too_long_to_repeat_is_not() -> None:
    """Where it would take more than half of each chunk, chunks hold rows instead."""
    head = "| " + LONG[:200] + " | b |\n|---|---|\n"
    pieces = pieces_of(head + "\n".join(f"| {n} | hay |" for n in range(40)))
    assert not any(piece.repeated for piece in pieces)


def test_what_only_looks_like_a_table_is_left_as_it_is() -> None:
    """Tables in code, separators without a header of as many cells, and plain text."""
    rows = "\n".join(ROWS)
    for text in (f"```\n{HEADER}{rows}\n```", f"| a |\n|---|---|\n{rows}", f"a\n\n|---|\n{rows}"):
        assert not any(piece.repeated for piece in pieces_of(text))
        assert find_tables(text) == []
    plain = split(HEADER + rows, chunk_size=64, overlap=0)
    assert not any(piece.repeated for piece in plain)


CELLS = st.lists(st.sampled_from(["a", "hay", "", "grass " * 20, "\\|", "中文", "`x`"]), max_size=5)


@settings(max_examples=100)
@given(st.lists(CELLS, max_size=12), st.integers(1, 40), st.data())
def test_any_table_is_split_within_bounds(
    rows: list[list[str]], size: int, data: st.DataObject
) -> None:
    """Sizes hold, every character is in a chunk, and splitting ends, whatever the cells."""
    text = "x\n\n| h | i |\n| --- | --- |\n" + "\n".join("|".join(["", *row, ""]) for row in rows)
    overlap = data.draw(st.integers(0, size // 2))
    pieces = split(text, chunk_size=size, overlap=overlap, markdown=True)
    reached = 0
    for piece in pieces:
        assert piece.text[piece.repeated :] == text[piece.start : piece.end]
        assert not text[reached : piece.start].strip()
        assert piece.tokens <= max(size, tokenizer().count(text[piece.start : piece.start + 1]))
        reached = piece.end
    assert not text[reached:].strip()
