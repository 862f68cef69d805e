"""The library: what a person gets in ten lines, with and without an event loop."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, main_thread
from typing import Any

import pytest

import corral.providers.library as corral
from corral.api.errors import InvalidRequest, NotFound
from corral.api.rag import RAGDocument
from corral.providers.base.config import ProviderEntry, Providers, RunConfig
from corral.providers.library.loop_thread import LoopThread

HASHING = RunConfig(
    providers=Providers(
        embedding=[
            ProviderEntry(
                provider_id="hashing",
                provider_type="inline::hashing",
                config={"dimension": 64},
            )
        ]
    ),
    default_embedding_model="hashing",
)
TEXTS = {"fence.md": "A fence keeps the sheep in.", "barn.md": "The barn is red."}


def test_the_whole_way_without_an_event_loop(tmp_path: Path) -> None:
    """Register, insert, query, ask, delete; the next session finds what this one stored.

    If this fails: compare with `Corral`, of which `SyncCorral` is the twin.
    """
    with corral.open_sync(tmp_path, HASHING) as herd:
        registered = herd.register("notes", search_mode="keyword")
        assert registered.embedding_model == "hashing"
        assert herd.insert("notes", TEXTS).chunks == {"fence.md": 1, "barn.md": 1}
    with corral.open_sync(tmp_path, HASHING) as herd:
        assert [each.identifier for each in herd.vector_dbs()] == ["notes"]
        hits = herd.query("which fence", "notes", k=1).hits
        assert [hit.chunk.document_id for hit in hits] == ["fence.md"]
        assert "A fence keeps the sheep in." in herd.ask("which fence", "notes").text
        assert herd.ask("xyzzy", "notes").text == ""
        answer = herd.answer("what does a fence keep in", "notes")
        assert answer.text == "A fence keeps the sheep in."
        assert answer.numbered.endswith("Sources:\n\n- [1] fence.md, line 1")
        assert herd.answer("xyzzy", "notes").citations == []
        herd.unregister("notes")
        with pytest.raises(NotFound, match="notes"):
            herd.query("which fence", "notes")


async def test_the_whole_way_with_one(tmp_path: Path) -> None:
    """The same, awaited; options of a registration and of a request reach the search."""

    async with corral.open(tmp_path, HASHING) as herd:
        await herd.register("notes", search_mode="vector")
        await herd.insert("notes", TEXTS)
        found = await herd.query("red barn", "notes", k=2, mode="keyword", explain=True)
        assert [hit.chunk.document_id for hit in found.hits] == ["barn.md"]
        answer = await herd.ask("red barn", "notes", max_tokens=200, max_chunks=1)
        assert answer.metadata["max_tokens"] == 200
        assert len(answer.metadata["chunk_ids"]) == 1


async def test_filters_choose_without_a_question(tmp_path: Path) -> None:
    """An empty question with filters gives the chunks that pass, and a context of them, in order.

    If this fails: the library cannot retrieve by filters alone.
    """
    async with corral.open(tmp_path, HASHING) as herd:
        await herd.register("notes")
        days = [
            RAGDocument(document_id=f"d{n}", content=f"note {n}", metadata={"day": n})
            for n in range(4)
        ]
        await herd.insert("notes", days)
        late = {"type": "gte", "key": "day", "value": 1}
        newest = {"key": "day", "direction": "desc"}
        found = await herd.query("", "notes", k=2, filters=late, order_by=newest)
        assert [hit.chunk.document_id for hit in found.hits] == ["d3", "d2"]
        assert (found.scores, found.confidence) == ([1.0, 1.0], None)
        answer = await herd.ask("", "notes", filters=late, order_by=newest, max_tokens=200)
        assert answer.metadata["document_ids"] == ["d3", "d2", "d1"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"search_mode": "psychic"}, "search_mode"), ({"colour": "red"}, "colour")],
)
def test_a_bad_setting_is_named(tmp_path: Path, settings: dict[str, str], said: str) -> None:
    """A refusal names the setting, and registers nothing."""
    with corral.open_sync(tmp_path, HASHING) as herd:
        with pytest.raises(InvalidRequest, match=said):
            herd.register("notes", **settings)
        assert herd.vector_dbs() == []


def test_a_script_that_fails_ends(tmp_path: Path) -> None:
    """An exception outside a `with` ends the interpreter, and what was stored is there.

    If this fails: a thread that nobody stops keeps the process, and a notebook's kernel, alive.
    """
    script = (
        "import sys; from pathlib import Path\n"
        "import corral.providers.library as corral\n"
        "from corral.providers.base.config import RunConfig\n"
        "config = RunConfig.model_validate_json(sys.argv[2])\n"
        "herd = corral.open_sync(Path(sys.argv[1]), config)\n"
        "herd.register('farm'); herd.insert('farm', {'a': 'the owl sleeps'})\n"
        "raise LookupError('of the user')\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path), HASHING.model_dump_json()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert "of the user" in ended.stderr
    with corral.open_sync(tmp_path, HASHING) as herd:
        assert len(herd.query("owl", "farm").hits) == 1
    herd.close()  # again, which does nothing


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ("a text", "documents must be .* \\(got str\\)"),
        (None, "documents must be .* \\(got NoneType\\)"),
        (RAGDocument(document_id="a", content="one"), "documents must be .*got RAGDocument"),
        ([{"document_id": "a", "content": "one"}], r"documents\[0\] must be .* \(got dict\)"),
        ({"fence.md": TEXTS["fence.md"], "gate.md": " "}, "Document 'gate.md': content is empty"),
        ({"gate.md": 5}, r"Document 'gate.md': content must be a string \(got 5\)"),
    ],
)
def test_what_holds_no_documents_is_refused(tmp_path: Path, documents: Any, said: str) -> None:
    """A refused insert names the argument or the document, and stores nothing.

    If this fails with a path that holds brackets and names of functions: `sent_location` leaves out
    what pydantic puts into a location that nobody sent.
    """
    with corral.open_sync(tmp_path, HASHING) as herd:
        herd.register("notes")
        with pytest.raises(InvalidRequest, match=said):
            herd.insert("notes", documents)
        assert herd.query("fence", "notes").hits == []


def test_an_id_that_is_no_string_is_refused(tmp_path: Path) -> None:
    """A list of vector DBs is the likely mistake: the refusal says how to name several."""
    names: Any = ["notes"]
    with corral.open_sync(tmp_path, HASHING) as herd:
        herd.register("notes")
        with pytest.raises(InvalidRequest, match="one after the other"):
            herd.ask("which fence", names)
        for call in (herd.unregister, lambda name: herd.query("fence", name)):
            with pytest.raises(InvalidRequest, match=r"must be a string \(got list\)"):
                call(names)


@pytest.mark.parametrize(
    "question", [5, None, b"fence", [], ["fence"], {"type": "text", "text": "fence"}]
)
def test_a_question_that_is_no_string_is_refused(tmp_path: Path, question: Any) -> None:
    """`ask` and `query` take one string, and refuse anything else in the same words."""
    with corral.open_sync(tmp_path, HASHING) as herd:
        herd.register("notes")
        for call in (herd.ask, herd.query):
            with pytest.raises(
                InvalidRequest, match=r"^question must be a string \(got "
            ) as refused:
                call(question, "notes")
            assert refused.value.field == "question"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_tokens": 0}, r"^max_tokens must be >= 1 \(got 0\)\.$"),
        ({"max_tokens": 2.5}, r"^max_tokens must be an integer \(got 2\.5\)\.$"),
        ({"max_tokens_in_context": 0}, r"^max_tokens_in_context must be >= 1 \(got 0\)\.$"),
        ({"max_chunks": 0}, r"^max_chunks must be >= 1 \(got 0\)\.$"),
        ({"max_chunk": 3}, r"^max_chunk is not a known key\. Did you mean max_chunks\?"),
        ({"mode": "psychic"}, r"^mode must be .* \(got 'psychic'\)\.$"),
    ],
)
def test_a_refused_option_reads_as_over_http(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    """A refusal says which option as the caller wrote it, what holds, and what was found.

    If this fails with a message that lacks what was found: `checked` and the server's validation
    no longer share `sentence`.
    """
    with corral.open_sync(tmp_path, HASHING) as herd:
        herd.register("notes")
        with pytest.raises(InvalidRequest, match=said):
            herd.ask("which fence", "notes", **options)


@pytest.mark.parametrize("k", [0, 1001, "5", True, None])
def test_a_k_out_of_range_is_refused(tmp_path: Path, k: Any) -> None:
    """The refusal says the range and what was found."""
    with corral.open_sync(tmp_path, HASHING) as herd:
        herd.register("notes")
        with pytest.raises(InvalidRequest, match=r"^k must be an integer from 1 to 1000 \(got "):
            herd.query("which fence", "notes", k=k)


async def test_a_closed_library_says_so(tmp_path: Path) -> None:
    """Every call after `close` is refused in words, with and without an event loop.

    If this fails with ProviderError: the caller is told that the registry cannot be read.
    """
    herd, twin = corral.open(tmp_path, HASHING), corral.open_sync(tmp_path, HASHING)
    await herd.register("notes")
    await herd.close()
    twin.close()
    for late in (herd.vector_dbs(), herd.insert("notes", TEXTS), herd.__aenter__(), herd.ask("a")):
        with pytest.raises(InvalidRequest, match=r"is closed\. Open its folder again"):
            await late
    for call in (twin.vector_dbs, twin.__enter__, lambda: twin.query("a", "notes")):
        with pytest.raises(InvalidRequest, match=r"is closed\. Open its folder again"):
            call()
    await herd.close()  # again, which does nothing


def test_closing_ends_the_calls_of_other_threads() -> None:
    """Who waits for a call when the loop is closed gets an error, and the call is cancelled.

    If this fails by its timeout: that thread waits for a loop that no longer runs.
    """
    loop, at_work, ended = LoopThread(), Event(), Event()

    async def forever() -> None:
        at_work.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(loop.run, forever())
        assert at_work.wait(60)
        loop.close()
        with pytest.raises(InvalidRequest, match="is closed"):
            waiting.result(60)
    assert ended.is_set()


def test_who_stops_waiting_cancels_the_call() -> None:
    """An interrupted call ends in the loop's thread, too: nothing goes on behind a notebook.

    If this fails by its timeout: the interrupt ended the waiting alone.
    """
    loop, ended = LoopThread(), Event()

    async def forever() -> None:
        await asyncio.sleep(0.2)  # by now the main thread waits
        signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        loop.run(forever())
    assert ended.wait(60)
    loop.close()
