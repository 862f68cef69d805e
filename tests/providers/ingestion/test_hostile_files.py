"""Damaged and hostile files end as errors, within their bounds of time and memory."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import random
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from backports import zstd
from reportlab.pdfgen import canvas

from corral.api.errors import InvalidRequest
from corral.providers.base.config import RagSettings
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.ingestion.read.reading import Reader

from .hostile_pdfs import HARMLESS_PDFS, HOSTILE_PDFS
from .made_containers import msg, zipped
from .made_files import FORMATS, opendocument
from .test_parsing import docx, paragraph
from .test_reading import slow_pdf

SECONDS = 4
LIMITS = DocumentLimits(max_seconds=SECONDS, max_memory_mib=512, max_characters=1_000_000)


def good(form: str) -> bytes:
    """Return a whole file."""
    return FORMATS[form][1](random.Random(3)).data


def repacked(data: bytes, change: Callable[[str, bytes], bytes | None]) -> bytes:
    """Return an archive with its entries changed; None leaves one out."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as old,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            made = change(name, old.read(name))
            if made is not None:
                new.writestr(name, made)
    return out.getvalue()


def with_entity(data: bytes, part: str) -> bytes:
    """Return an archive in which a part of XML declares entities that grow by the power of ten."""
    grow = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    head = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e0 "{"sheep" * 10}">{grow}]>'
    return repacked(data, lambda name, old: f"{head}<x>&e9;</x>".encode() if name == part else old)


def stray_cell() -> bytes:
    """Return a workbook with a value in the last cell that Excel knows."""
    cell = b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'
    return repacked(
        good("xlsx"),
        lambda name, old: old.replace(b"</sheetData>", cell) if "sheet1" in name else old,
    )


def bomb(form: str, part: str) -> bytes:
    """Return an archive that says that a part of it unpacks to 300 MB."""
    out = io.BytesIO(good(form))
    with zipfile.ZipFile(out, "a") as archive:
        archive.getinfo(part).file_size = 300_000_000
        archive.writestr("more", b"")  # so that the directory is written again
    return out.getvalue()


def encrypted_pdf() -> bytes:
    """Return a PDF that asks for a password."""
    out = io.BytesIO()
    made = canvas.Canvas(out, encrypt="secret")
    made.drawString(72, 700, "hidden")
    made.save()
    return out.getvalue()


def scanned_pdf() -> bytes:
    """Return a PDF with a drawing and no text."""
    out = io.BytesIO()
    made = canvas.Canvas(out)
    made.rect(10, 10, 100, 100, fill=1)
    made.save()
    return out.getvalue()


def flagged(data: bytes) -> bytes:
    """Return an archive whose entries say that they are encrypted."""
    changed = bytearray(data)
    for mark, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = changed.find(mark)
        while at >= 0:
            changed[at + offset] |= 1
            at = changed.find(mark, at + 4)
    return bytes(changed)


def noise(count: int) -> bytes:
    """Return bytes of no format."""
    return b"\x01\x02\x00" + random.Random(1).randbytes(count)


def without(data: bytes, part: str) -> bytes:
    """Return an archive without the parts of a name."""
    return repacked(data, lambda n, d: None if part in n else d)


COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"

HOSTILE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "truncated PDF": ("a.pdf", lambda: good("pdf")[:800]),
    "PDF of noise": ("a.pdf", lambda: b"%PDF-1.7\n" + noise(50_000)),
    "encrypted PDF": ("a.pdf", encrypted_pdf),
    "scanned PDF": ("a.pdf", scanned_pdf),
    "PDF that takes forever": ("a.pdf", slow_pdf),
    "PDF by name only": ("a.pdf", lambda: b"plain words"),
    "truncated Word file": ("a.docx", lambda: good("docx")[:-3000]),
    "Word file without its text": ("a.docx", lambda: without(good("docx"), "document.xml")),
    "Word file of broken XML": (
        "a.docx", lambda: repacked(good("docx"), lambda n, d: d[:-9] if "document" in n else d)
    ),
    "Word file of empty paragraphs": ("a.docx", lambda: docx("<w:p/>" * 5_000_000)),
    "Word file of deep elements": ("a.docx", lambda: docx("<w:tbl>" * 500_000)),
    "Word file of entities": ("a.docx", lambda: with_entity(good("docx"), "word/document.xml")),
    "Word file that is a bomb": (
        "a.docx",
        lambda: repacked(good("docx"), lambda n, d: bytes(280_000_000) if "ument.xml" in n else d),
    ),
    "old or encrypted Word file": ("a.docx", lambda: COMPOUND + noise(9000)),
    "Word file with a password": ("a.docx", lambda: flagged(docx(paragraph("hay")))),
    "truncated presentation": ("a.pptx", lambda: good("pptx")[:5000]),
    "presentation without slides": ("a.pptx", lambda: without(good("pptx"), "slides/slide")),
    "presentation that is a bomb": ("a.pptx", lambda: bomb("pptx", "ppt/slides/slide1.xml")),
    "truncated workbook": ("a.xlsx", lambda: good("xlsx")[:2000]),
    "workbook with a stray cell": ("a.xlsx", stray_cell),
    "workbook that is a bomb": ("a.xlsx", lambda: bomb("xlsx", "xl/worksheets/sheet1.xml")),
    "old workbook of noise": ("a.xls", lambda: COMPOUND + noise(9000)),
    "truncated text of LibreOffice": ("a.odt", lambda: good("odt")[:-900]),
    "text of LibreOffice without its text": ("a.odt", lambda: without(good("odt"), "content")),
    "text of LibreOffice of entities": ("a.odt", lambda: with_entity(good("odt"), "content.xml")),
    "text of LibreOffice with a password": ("a.odt", lambda: flagged(good("odt"))),
    "text of LibreOffice of empty paragraphs": (
        "a.odt", lambda: opendocument("text", "<text:p/>" * 5_000_000)
    ),
    "text of LibreOffice of deep tables": (
        "a.odt", lambda: opendocument("text", "<table:table>" * 500_000)
    ),
    "text of LibreOffice that is a bomb": ("a.odt", lambda: bomb("odt", "content.xml")),
    "slides of LibreOffice without end": (
        "a.odp", lambda: opendocument("presentation", "<draw:page/>" * 100_000)
    ),
    "RTF without a word": ("a.rtf", lambda: b"{\\rtf1" + b"{" * 1_000_000),
    "RTF by name only": ("a.rtf", lambda: b"plain words"),
    "RTF of links that take forever": (
        "a.rtf", lambda: b"{\\rtf1 " + b"{\\field{\\*\\fldinst{HYPERLINK " * 100_000
    ),
    "subtitles without a word": ("a.srt", lambda: b"1\n00:00:01,000 --> 00:00:02,000\n\n" * 9000),
    "subtitles of one line": ("a.vtt", lambda: b"WEBVTT\n\n00:01.000 --> " + b"<v " * 300_000),
    "headings without end": ("a.rst", lambda: b"=" * 999_000),
    "LaTeX of open braces": ("a.tex", lambda: b"\\section{" * 100_000),
    "front matter of aliases": (
        "a.md", lambda: b"---\na: &a [x]\n" + b"b: &b [*a, *a]\n" * 900 + b"---\nhay"
    ),
    "front matter of brackets": ("a.md", lambda: b"---\na: " + b"[" * 9000 + b"\n---\nhay"),
    "truncated book": ("a.epub", lambda: good("epub")[:900]),
    "book without its list": ("a.epub", lambda: without(good("epub"), ".opf")),
    "book of entities": ("a.epub", lambda: with_entity(good("epub"), "EPUB/content.opf")),
    "archive in disguise": ("a.docx", lambda: without(good("epub"), "mimetype")),
    "text compressed twice": ("a.txt", lambda: gzip.compress(gzip.compress(b"hay " * 1000))),
    "truncated compressed text": ("a.txt.xz", lambda: lzma.compress(noise(9000))[:4000]),
    "gzip bomb": ("a.txt.gz", lambda: gzip.compress(bytes(300_000_000), 1)),
    "bzip2 bomb": ("a.txt.bz2", lambda: bz2.compress(b" " * 300_000_000)),
    "xz bomb": ("a.pdf.xz", lambda: lzma.compress(bytes(300_000_000), preset=0)),
    "compressed archive": ("a.tar.gz", lambda: gzip.compress(noise(9000))),
    "program named as text": ("a.md", lambda: b"\x7fELF" + noise(5000)),
    "noise named as text": ("a.txt", lambda: noise(5000)),
    "picture named as a page": ("a.html", lambda: b"\x89PNG\r\n\x1a\n" + noise(5000)),
    "text in another charset": ("a.txt", lambda: "Größe der Schäferhündin".encode("latin-1")),
    "half of a UTF-16 text": ("a.txt", lambda: "sheep".encode("utf-16")[:-1]),
    "text of too many characters": ("a.txt", lambda: b"hay " * 300_000),
    "page of nothing": ("a.html", lambda: b"<html><body><nav>menu</nav></body></html>"),
    "page of deep elements": ("a.html", lambda: b"<html>" + b"<div>" * 1_000_000),
    "rows without an end of quotes": ("a.csv", lambda: b'a,b\n"c,d\n' + b"e,f\n" * 100),
    "mail without headers": ("a.eml", lambda: b"\n\nhello"),
    "mail of nested parts": (
        "a.eml",
        lambda: b"".join(
            b'From: a\nContent-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (n, n)
            for n in range(5000)
        ),
    ),
    "code of deep brackets": ("a.js", lambda: b"x = " + b"[" * 900_000),
    "zstd bomb": ("a.txt.zst", lambda: zstd.compress(bytes(300_000_000))),
    "truncated zstd": ("a.txt.zst", lambda: zstd.compress(noise(9000))[:4000]),
    "truncated archive": ("a.zip", lambda: zipped({"a.txt": noise(9000)})[:5000]),
    "archive by name only": ("a.zip", lambda: b"plain words"),
    "empty archive": ("a.zip", lambda: zipped({})),
    "archive of folders": ("a.zip", lambda: zipped({"a/": b"", "b/c/": b""})),
    "archive of too many files": ("a.zip", lambda: zipped({f"{n}": b"x" for n in range(1001)})),
    "Outlook mail of noise": ("a.msg", lambda: COMPOUND + noise(9000)),
    "Outlook mail without its words": ("a.msg", lambda: msg({})),
    "truncated Outlook mail": ("a.msg", lambda: msg({"0037": "Hay"})[:1600]),
    "nothing": ("a.txt", lambda: b" \n\t\n"),
    **HOSTILE_PDFS,
}  # fmt: skip
"""By what it is: the name of a file and what makes it."""

HARMLESS = {
    "subtitles without a word",
    "subtitles of one line",
    "headings without end",
    "LaTeX of open braces",
    "front matter of aliases",
    "front matter of brackets",
    "code of deep brackets",
    "page of deep elements",
    "mail of nested parts",
    *HARMLESS_PDFS,
}
"""Those that a reader may also get a text of, as long as it ends within the bounds."""


@pytest.fixture(scope="module")
def reader() -> Reader:
    """Return a reader with one process for all files."""
    return Reader(RagSettings(document_limits=LIMITS, max_concurrent_readings=1))


@pytest.fixture(scope="module")
def patient() -> Reader:
    """Return a reader that no busy machine keeps from saying what is wrong with a file."""
    limits = replace(LIMITS, max_seconds=120)
    return Reader(RagSettings(document_limits=limits, max_concurrent_readings=1))


async def refusal(reader: Reader, what: str, path: Path) -> InvalidRequest | None:
    """Return the error of a file; None where a text came of it."""
    name, make = HOSTILE[what]
    path.write_bytes(make())
    try:
        parsed = await reader.read_file(path, name)
    except InvalidRequest as error:
        return error
    assert len(parsed.text) <= LIMITS.max_characters
    return None


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_hostile_file_is_an_error_within_bounds(
    what: str, reader: Reader, tmp_path: Path
) -> None:
    """It is refused in words, in time, and a good file is read after it.

    If this fails: one upload stops the ingestion of everybody, or takes the server with it.
    """
    started = time.monotonic()
    error = await refusal(reader, what, tmp_path / "blob")
    # Making it, a process, and the engine that recognizes scans, on a busy machine.
    assert time.monotonic() - started < SECONDS + 90
    assert error or what in HARMLESS
    if error:
        assert error.message.endswith(".")
        assert error.field in {"content", "mime_type"}
    (tmp_path / "good").write_bytes(b"Hay is dry.")
    assert (await reader.read_file(tmp_path / "good", "a.txt")).text == "Hay is dry."


@pytest.mark.parametrize(
    ("what", "field"),
    [("text compressed twice", "mime_type"), ("program named as text", "mime_type"),
     ("noise named as text", "mime_type"), ("archive in disguise", "mime_type"),
     ("truncated PDF", "content"), ("text in another charset", "content")],
)  # fmt: skip
async def test_the_wrong_kind_is_told_from_the_broken(
    what: str, field: str, patient: Reader, tmp_path: Path
) -> None:
    """The field of the error says whether the kind is unsupported or the file is invalid.

    If this fails: a job's error code, which is made of it, sends its reader the wrong way.
    """
    error = await refusal(patient, what, tmp_path / "blob")
    assert error
    assert error.field == field


MUTATIONS = int(os.environ.get("CORRAL_TEST_MUTATIONS", "3"))
"""Damaged copies of a file of each format."""


@pytest.mark.parametrize("form", FORMATS)
async def test_wrong_bytes_are_refused_or_read(form: str, reader: Reader, tmp_path: Path) -> None:
    """A file with some bytes changed, or cut off, is an InvalidRequest or a text, nothing else.

    If this fails: an error of a package gets out as a defect of the server. More of them:
    CORRAL_TEST_MUTATIONS=100.
    """
    name, make = FORMATS[form]
    whole = make(random.Random(5)).data
    for seed in range(MUTATIONS):
        rng = random.Random(seed)
        data = bytearray(whole)
        for _ in range(rng.choice([1, 5, 50])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path = tmp_path / "blob"
        path.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.3 else data)
        with contextlib.suppress(InvalidRequest):
            assert (await reader.read_file(path, name)).text.strip()
