"""Parts of containers, and places in them, are cited by names that a person knows."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import openpyxl
import pytest
from fpdf import FPDF

from .harness import InProcess, Json
from .test_citations import call, cite, upload

MAIL = b"""From: eva@farm.example\r\nTo: tom@farm.example\r\nSubject: Prices\r\nMIME-Version: 1.0\r
Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r
Prices are in the file.\r\n--b\r\nContent-Type: text/markdown; name=barley.md\r
Content-Disposition: attachment; filename=barley.md\r\n\r\n# Barley\r\n\r\nBarley costs nine.\r
--b--\r\n"""
TALK = "WEBVTT\n\n00:01:05.000 --> 00:01:09.000\nFoxes steal eggs.\n"


def pdf() -> bytes:
    """Return a PDF of two pages."""
    made = FPDF()
    for text in ("Snow falls in winter.", "Oats are sown in spring."):
        made.add_page()
        made.set_font("Helvetica", size=12)
        made.multi_cell(0, text=text)
    return bytes(made.output())


def workbook() -> bytes:
    """Return a workbook with one sheet."""
    book = openpyxl.Workbook()
    book.active.title = "Rates"
    for row in (["Grain", "Rate"], [], ["Millet", 7]):
        book.active.append(row)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def notebook() -> str:
    """Return a notebook of three cells."""
    texts = ("# Plan", "", "Rye is sown in autumn.")
    cells = [{"cell_type": "markdown", "source": each} for each in texts]
    return json.dumps({"nbformat": 4, "metadata": {}, "cells": cells})


def archive() -> bytes:
    """Return an archive with one file of each kind."""
    out = io.BytesIO()
    files: dict[str, bytes | str] = {
        "farm/order.eml": MAIL, "farm/talk.vtt": TALK, "farm/plan.pdf": pdf(),
        "farm/rates.xlsx": workbook(), "farm/rye.ipynb": notebook(),
    }  # fmt: skip
    with zipfile.ZipFile(out, "w") as made:
        for name, data in files.items():
            made.writestr(name, data)
    return out.getvalue()


@pytest.fixture
def filled(app: InProcess) -> InProcess:
    """The app with the archive, uploaded."""
    app.register("db")
    upload(app, "backup.zip", archive())
    return app


CASES = [
    ("barley costs", "backup.zip/farm/order.eml/barley.md", "Barley", {"line_start": 1}),
    ("foxes eggs", "backup.zip/farm/talk.vtt", "00:01:05", {"heading_path": ["00:01:05"]}),
    ("oats sown", "backup.zip/farm/plan.pdf", "pages 1-2", {"page": 1, "page_end": 2}),
    ("millet rate", "backup.zip/farm/rates.xlsx", "Rates, rows 1-3",
     {"heading_path": ["Rates"], "row_start": 1, "row_end": 3}),
    ("rye autumn", "backup.zip/farm/rye.ipynb", "cells 1-3", {"cell_start": 1, "cell_end": 3}),
]  # fmt: skip


def response(app: InProcess, question: str) -> tuple[Json, Json]:
    """Return the citation and the first hit of a response."""
    tool = {"type": "file_search", "vector_store_ids": ["db"], "max_num_results": 1}
    body: dict[str, Any] = {
        "model": "extractive", "input": question, "tools": [tool],
        "include": ["file_search_call.results"],
    }  # fmt: skip
    search, message = app.ok("POST", "/v1/responses", body)["output"]
    return message["content"][0]["annotations"][0], search["results"][0]


@pytest.mark.parametrize(("question", "file", "place", "fields"), CASES)
def test_every_door_names_file_and_place(
    filled: InProcess, question: str, file: str, place: str, fields: Json
) -> None:
    """Contexts, responses, chats, MCP and the search of a store: path in the archive, and place.

    If this fails: a reader looks for an attachment in the wrong file, or for a sentence in an hour
    of subtitles.
    """
    cited = cite(filled, question)
    assert file in cited["line"]
    assert place in cited["line"]
    citation, hit = response(filled, question)
    assert citation["filename"] == hit["filename"] == file
    assert fields.items() <= citation.items()
    assert fields.items() <= hit.items()
    chat = {"model": "corral/db", "messages": [{"role": "user", "content": question}]}
    text = filled.ok("POST", "/v1/chat/completions", chat)["choices"][0]["message"]["content"]
    assert f"{file}" in text
    assert place in text
    [first, *_] = call(filled, "rag_query", question=question)["citations"]
    assert file in first["title"]
    assert place in first["place"]
    [result, *_] = call(filled, "search", query=question)["results"]
    assert file in result["title"]
    found = filled.ok("POST", "/v1/vector_stores/db/search", {"query": question})["data"][0]
    assert found["filename"] == file
