"""Documents are read in processes that end in time; nothing else waits for them."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from corral.api.chunks import Chunk
from corral.api.errors import InvalidRequest, MissingDependency
from corral.api.rag import URL, RAGDocument
from corral.providers.base.config import Limits, RagSettings
from corral.providers.ingestion.read import reading
from corral.providers.ingestion.read.detecting import DOCX, HTML, PDF
from corral.providers.ingestion.read.parsing import parse
from corral.providers.ingestion.read.reading import Reader
from corral.providers.ingestion.split.chunking import each_chunk

from ..rag.fake_library import FakeLibrary
from ..rag.inserting import ingester
from .test_parsing import PAGE, docx, paragraph, pdf

T = TypeVar("T")


def reader(**limits: float) -> Reader:
    """Return a reader within these limits, of one document at a time."""
    settings = {"document_limits": limits, "max_concurrent_readings": 1}
    return Reader(RagSettings.model_validate(settings))


def slow_pdf(width: int = 30, depth: int = 8) -> bytes:
    """Return a PDF of one page of nested forms, 2 KB, which no machine draws to the end."""

    def stream(number: int, head: str, body: str) -> str:
        return f"{number} 0 obj<<{head}/Length {len(body)}>>stream\n{body}\nendstream endobj"

    form = "/Type/XObject/Subtype/Form/BBox[0 0 600 200]/Resources<</XObject<</X {} 0 R>>>>"
    objects = [
        "1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj",
        "2 0 obj<</Type/Pages/Kids[4 0 R]/Count 1>>endobj",
        "4 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 200]/Contents 5 0 R"
        "/Resources<</XObject<</X 10 0 R>>>>>>endobj",
        stream(5, "", "/X Do " * width),
        *(stream(10 + n, form.format(11 + n), "/X Do " * width) for n in range(depth)),
        stream(10 + depth, form.format(99), "0 0 m 9 9 l S"),
    ]
    return "\n".join(["%PDF-1.4", *objects, "trailer<</Root 1 0 R>>", "%%EOF"]).encode()


@pytest.mark.parametrize(
    ("content", "mime_type"),
    [
        (PAGE, HTML),
        (pdf("Cattle graze.", "Hay is dry."), PDF),
        (docx(paragraph("Hay")), DOCX),
        ("grass " * reading.SHORT_TEXT, "text/plain"),
        ("gräs", None),
        ("gräs".encode("latin-1"), "text/plain; charset=latin-1"),
    ],
)
async def test_a_document_reads_alike_in_a_process(content: str | bytes, mime_type: str) -> None:
    """What comes back is what `parse` returns."""
    assert await reader().read(content, mime_type) == parse(content, mime_type)


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a"])
async def test_a_web_page_is_read_as_one_whatever_its_name(name: str, tmp_path: Path) -> None:
    """Its tags are not in the text; a string that is said to be plain text stays as it is.

    If this fails: a page that was saved as .txt is found by its scripts.
    """
    page = "<!DOCTYPE html>\n<html><body><h1>Hay</h1><p>It is dry.</p></body></html>"
    (tmp_path / "blob").write_text(page)
    read = await reader().read_file(tmp_path / "blob", name)
    assert read.text == "# Hay\nIt is dry."
    assert (await reader().read(page, "text/plain")).text == page


@pytest.mark.parametrize(("content", "mime_type"), [(b"x", PDF), (b"x", "image/png"), (b" ", None)])
async def test_a_refusal_reads_alike_in_a_process(content: bytes, mime_type: str | None) -> None:
    """Message, hint and field of an error cross the border between processes."""
    with pytest.raises(InvalidRequest) as here:
        parse(content, mime_type)
    with pytest.raises(InvalidRequest) as there:
        await reader().read(content, mime_type)
    assert vars(there.value) == vars(here.value)


def test_a_missing_package_is_named_from_the_process() -> None:
    """Also an error whose class is made from something else than its message arrives as it is."""
    given = MissingDependency("Reading", "hay", "mow")
    found = reading._error(type(given).__name__, json.loads(json.dumps(vars(given))))
    assert type(found) is MissingDependency
    assert vars(found) == vars(given)
    assert str(found) == str(given)


async def test_a_page_that_takes_forever_is_given_up() -> None:
    """The time for a document is over, and the next document is read.

    If this fails: one PDF of 2 KB holds the reader for hours.
    """
    one = reader(max_seconds=2, max_memory_mib=8192)  # which a fast machine fills later
    bomb = slow_pdf()
    assert len(bomb) < 4000
    with pytest.raises(InvalidRequest, match="2 seconds") as caught:
        await one.read(bomb, PDF)
    assert "rag.document_limits.max_seconds" in caught.value.hint
    assert (await one.read(pdf("Hay is dry."), PDF)).text == "Hay is dry."


async def test_a_page_listed_many_times_is_bounded() -> None:
    """A PDF may name one page as often as it likes: pages are counted before one is read."""
    many = pdf("Hay").replace(
        b"/Kids[10 0 R]/Count 1", b"/Kids[" + b"10 0 R " * 300 + b"]/Count 300"
    )
    with pytest.raises(InvalidRequest, match="200 pages") as caught:
        await reader(max_pages=200).read(many, PDF)
    assert "rag.document_limits.max_pages" in caught.value.hint


async def test_too_long_a_text_is_refused() -> None:
    """Whatever it is: the error names the bound."""
    for content, kind in ((PAGE, HTML), ("hay " * 50, None), (pdf("hay " * 50), PDF)):
        with pytest.raises(InvalidRequest, match="100 characters") as caught:
            await reader(max_characters=100).read(content, kind)
        assert "rag.document_limits.max_characters" in caught.value.hint


async def test_a_process_that_died_is_replaced() -> None:
    """Killed while it had nothing to do, as a system short of memory does."""
    one = reader()
    await one.read(PAGE, HTML)
    child = one._idle[0]
    child._process.kill()
    child._process.wait()
    assert "Grazing" in (await one.read(PAGE, HTML)).text
    assert one._idle[0] is not child


async def test_processes_end_with_their_reader() -> None:
    """Nothing of it is left behind."""
    one = reader()
    await one.read(PAGE, HTML)
    process = one._idle[0]._process
    del one
    gc.collect()
    process.wait(60)


async def longest_pause(work: Awaitable[T]) -> tuple[float, T]:
    """Return the longest stop of the event loop as a share of all the time that something ran, and
    what that returned.
    """
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - before)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.02)
    longest, began = 0.0, time.perf_counter()
    try:
        answer = await work
        seconds = time.perf_counter() - began
        await asyncio.sleep(0.02)  # the watch looks once more
        return longest / seconds, answer
    finally:
        watching.cancel()


async def test_a_data_uri_does_not_stop_the_loop() -> None:
    """Decoding one is work like reading a document, and done where that is.

    If this fails: 8 MiB of percent signs stop every other request for seconds. (A share of the
    time is the same on a busy machine; a quiet one shows a hundredth.)
    """
    uri = "data:text/plain," + "%41%20" * (8 * 1024 * 1024 // 6)
    bounded = ingester(Limits(max_chunks_per_insert=1))
    given = RAGDocument(document_id="d", content=URL(uri=uri))

    async def watched() -> float:
        async def refused() -> None:
            with pytest.raises(InvalidRequest, match="more than 1 chunks"):
                await bounded.insert(FakeLibrary(), [given], "db")

        return (await longest_pause(refused()))[0]

    assert min([await watched() for _ in range(3)]) < 1 / 4


async def test_a_large_document_does_not_stop_the_loop() -> None:
    """Nor does base64, a charset, or cleaning a text of some size."""
    text = base64.b64encode(("Gräs och hö. " * 500_000).encode("latin-1")).decode()
    uri = f"data:text/plain;charset=latin-1;base64,{text}"
    pauses = []
    for _ in range(3):  # a machine may stop for a moment; a loop that is stopped is so each time
        pause, parsed = await longest_pause(reader().read_data_uri(uri, None))
        assert parsed.text.startswith("Gräs")
        pauses.append(pause)
    assert min(pauses) < 1 / 4


async def test_few_chunks_are_made_before_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Splitting ends with the first chunk beyond the limit.

    If this fails: chunk_size_in_tokens 1 makes 262,144 chunks of 1 MB before it is refused.
    """
    counted: list[str] = []

    def counting(*arguments: Any) -> Iterator[Chunk]:
        for chunk in each_chunk(*arguments):
            counted.append(chunk.chunk_id)
            yield chunk

    monkeypatch.setattr("corral.providers.ingestion.ingest.each_chunk", counting)
    bounded = ingester(Limits(max_chunks_per_insert=100))
    given = [RAGDocument(document_id=name, content="grass " * 30) for name in "abcdef"]
    given[4] = RAGDocument(document_id="e", content="grass " * 50_000)
    with pytest.raises(InvalidRequest, match="more than 100 chunks") as caught:
        await bounded.insert(FakeLibrary(), given, "db", 1, 0)
    assert "server.limits.max_chunks_per_insert" in caught.value.hint
    assert len(counted) == 101


async def test_documents_do_not_take_the_threads_of_others() -> None:
    """Reading has threads of its own: the default ones, which the engines use, stay free.

    If this fails: eight slow PDFs make every query wait for them.
    """

    async def query_meanwhile() -> bool:
        one = reader(max_seconds=3)
        slow = [asyncio.ensure_future(one.read(slow_pdf(), PDF)) for _ in range(2)]
        slow += [asyncio.ensure_future(one.read(PAGE, HTML)) for _ in range(40)]
        await asyncio.sleep(0.5)
        await asyncio.wait_for(asyncio.to_thread(int), 60)
        first = not any(each.done() for each in slow)
        await asyncio.gather(*slow, return_exceptions=True)
        return first

    assert await query_meanwhile()


async def test_a_short_plain_file_needs_no_process(tmp_path: Path) -> None:
    """A small file of plain text is read here and alike; a large or other one in a process.

    If this fails: `corral ingest` of one note waits for a process to start, or a document that
    could hang a reader is read where it stops the server.
    """
    files = reader()
    (tmp_path / "a.md").write_text("# A\n\nfence", encoding="utf-8")
    (tmp_path / "a.html").write_text("<h1>A</h1><p>fence", encoding="utf-8")
    (tmp_path / "large.txt").write_text("fence " * reading.SHORT_TEXT, encoding="utf-8")
    short = await files.read_file(tmp_path / "a.md", "a.md")
    assert short == parse(b"# A\n\nfence", "text/markdown")
    assert not files._idle
    for name in ("a.html", "large.txt"):
        await files.read_file(tmp_path / name, name)
        assert files._idle.pop().lives()


def test_the_process_imports_what_reads_and_no_more() -> None:
    """If this fails: each first document waits for imports, 0.1 s for pydantic alone."""
    heavy = {"pydantic", "numpy", "lxml", "trafilatura", "pypdfium2"}
    code = f"import sys, {reading._PROCESS}; print(*sys.modules)"
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not heavy & set(done.stdout.split())
