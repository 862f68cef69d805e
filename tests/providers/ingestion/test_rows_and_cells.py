"""A chunk of a sheet records its rows, and a chunk of a notebook its cells."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

import openpyxl
import pytest

from corral.api.chunks import ChunkMetadata
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig, VectorDB
from corral.providers.base.config import RagSettings
from corral.providers.ingestion.read.detecting import CSV, NOTEBOOK, XLSX
from corral.providers.ingestion.read.parsing import ParsedDocument, parse
from corral.providers.ingestion.read.reading import Reader
from corral.providers.ingestion.split.chunking import chunks_of


def chunks(parsed: ParsedDocument, size: int) -> list[tuple[str, ChunkMetadata]]:
    """Return the text of each chunk with its record."""
    names = dict.fromkeys(("identifier", "provider_id", "provider_resource_id"), "db")
    vector_db = VectorDB(**names, embedding_model="m", embedding_dimension=3)
    config = ChunkingConfig(chunk_size_in_tokens=size, overlap_in_tokens=0)
    document = RAGDocument(document_id="d", content="x")
    made = chunks_of(document, parsed, config, vector_db, lambda _: 0)
    return [(str(each.content), each.chunk_metadata or ChunkMetadata()) for each in made]


def workbook(**sheets: Sequence[Sequence[object]]) -> bytes:
    """Return a workbook with these rows in its sheets."""
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for number, row in enumerate(rows, 1):
            for column, value in enumerate(row, 1):
                sheet.cell(number, column, value)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def crops(first: int, count: int) -> list[list[object]]:
    """Return rows of a table, each with a word of its own."""
    return [[f"crop{number}", number] for number in range(first, first + count)]


def right_rows(made: list[tuple[str, ChunkMetadata]], lines: dict[int, str]) -> None:
    """Check that each chunk has the first and the last of its rows; a header repeats."""
    for text, record in made:
        own = text[record.repeated_characters or 0 :]
        rows = [number for number, line in lines.items() if f"| {line} |" in own]
        assert (record.row_start, record.row_end) == (rows[0], rows[-1]), text


def test_rows_count_as_a_spreadsheet_program_counts_them() -> None:
    """Blank rows count; a header that is repeated does not.

    If this fails: a person looks for a value in another row.
    """
    rows: list[list[object]] = [[], ["Crop", "Tons"], [], [" "], *crops(5, 40)]
    lines = {2: "Crop | Tons"} | {number: f"crop{number} | {number}" for number in range(5, 45)}
    right_rows(chunks(parse(workbook(Rates=rows), XLSX), 40), lines)


def test_the_rows_of_a_chunk_are_of_one_sheet() -> None:
    """A chunk that reaches into another sheet has the rows of the sheet in which it begins."""
    data = workbook(North=[["Crop", "Tons"], *crops(2, 2)], South=[["Crop", "Tons"], *crops(50, 9)])
    [(text, record)] = chunks(parse(data, XLSX), 500)
    assert "crop58" in text
    assert (record.row_start, record.row_end) == (1, 3)


@pytest.mark.parametrize("wide", [True, False])
def test_rows_of_csv(wide: bool) -> None:
    """Also of one column, which is text; a blank line counts."""
    rows = [f"crop{number},{number}" if wide else f"crop{number}" for number in range(30)]
    data = "\n".join(["Crop,Tons" if wide else "Crop", "", *rows]).encode()
    made = chunks(parse(data, CSV), 40)
    assert len(made) > 2
    for text, record in made:
        first, last = record.row_start or 0, record.row_end or 0
        numbers = [number for number in range(30) if f"crop{number}" in text.split()]
        assert numbers[-1] + 3 == last
        assert first == 1 or numbers[0] + 3 == first


def test_cells_of_a_notebook() -> None:
    """Code, its output and blank lines in it belong to their cell; an empty cell counts."""
    sources = ["# Plan", "a = 1\n\n\nb = 2", "", "The end."]
    cells = [
        {"cell_type": kind, "source": source, "outputs": [{"output_type": "stream", "text": "ok"}]}
        for kind, source in zip(("markdown", "code", "code", "markdown"), sources, strict=True)
    ]
    cells[2]["outputs"] = []
    data = json.dumps({"nbformat": 4, "metadata": {}, "cells": cells}).encode()
    parsed = parse(data, NOTEBOOK)
    lines = zip(parsed.text.split("\n"), parsed.numbers, strict=True)
    assert [(line, number) for line, number in lines if line not in {"", "```"}] == [
        ("# Plan", 1), ("a = 1", 2), ("b = 2", 2), ("ok", 2), ("The end.", 4)
    ]  # fmt: skip
    places = [(record.cell_start, record.cell_end) for _, record in chunks(parsed, 8)]
    assert places[0][0] == 1
    assert places[-1] == (4, 4)


async def test_numbers_come_through_the_reading_process() -> None:
    """A document that another process reads has the same rows."""
    data = workbook(Rates=[["Crop", "Tons"], *crops(2, 3)])
    reader = Reader(RagSettings())
    parsed = await reader.read(data, XLSX)
    assert list(parsed.numbers) == list(parse(data, XLSX).numbers) == [0, 0, 1, 0, 2, 3, 4]
    assert parsed.numbered == "row"


def test_lines_that_are_left_out_leave_no_wrong_row() -> None:
    """Cells of invisible characters alone are no lines of the text: then no row is named."""
    data = workbook(Crops=[["Crop"], ["rye"], *[["\u200b"]] * 4, ["oats"]])
    [(text, record)] = chunks(parse(data, XLSX), 500)
    assert "oats" in text
    assert record.row_start is None
