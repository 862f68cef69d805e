"""The client: one code path to a server and to the app in process, and errors people can read."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result

from corral.server.cli import failures, progress
from corral.server.cli.client import Client
from corral.server.cli.failures import CommandError
from corral.server.cli.files import Report, collect
from corral.server.cli.ingesting import BATCH_BYTES, BATCH_DOCUMENTS, ingest_files

Corral = Callable[..., Result]

Answer = Callable[[httpx.Request], httpx.Response]


def call(answer: Answer) -> list[dict[str, Any]]:
    """List the vector DBs of a server that answers so."""

    async def calling() -> list[dict[str, Any]]:
        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            return await Client(http).vector_dbs()

    return asyncio.run(calling())


def refusal(status: int, body: object) -> CommandError:
    """Return the error that a server's reply becomes."""
    with pytest.raises(CommandError) as caught:
        call(lambda request: httpx.Response(status, json=body))
    return caught.value


def without_numbers_of_the_run(text: str) -> str:
    """Leave out what differs between two equal runs: times, progress, ids, bytes on disk."""
    text = re.sub(r"^Ingesting: .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\b[0-9a-f]{32}\b", "INSTALLATION", text)
    text = re.sub(r"^(disk_bytes\s+)\d+", r"\1BYTES", text, flags=re.MULTILINE)
    return re.sub(r"in \d+\.\d s|\d{4}-\d\d-\d\dT\S+", "TIME", text)


def test_a_server_and_the_app_in_process_print_the_same(
    invoke: Corral,
    corral: Corral,
    server_url: str,
    documents: Path,
) -> None:
    """Every command prints the same, with the same exit code, by URL and in process.

    If this fails: something above the transport knows which of the two it is talking to.
    """
    for words in (
        ["models"],
        ["query", "pasture", "gate"],
        ["dbs", "create", "pasture", "--language", "no", "--field-weight", "title=4"],
        ["dbs", "create", "pasture", "--mode", "vector"],
        ["dbs", "list"],
        ["dbs", "show", "pasture"],
        ["ingest", "pasture", documents],
        ["ingest", "nowhere", documents],
        ["query", "pasture", "the gate opens inward", "--max-tokens", "300", "--explain"],
        ["query", "pasture", "the gate opens inward", "--json", "--mode", "hybrid"],
        ["query", "pasture", "gate", "--k", "0"],
        ["ask", "pasture", "Which way does the gate open?"],
        ["ask", "pasture", "gate", "--model", "nope"],
        ["ask", "nowhere", "gate"],
        ["dbs", "delete", "pasture"],
        ["dbs", "delete", "pasture", "--yes"],
        ["dbs", "show", "pasture"],
    ):
        near, far = corral(*words), invoke("--url", server_url, *words)
        assert near.exit_code == far.exit_code, words
        for ours, theirs in ((near.stdout, far.stdout), (near.stderr, far.stderr)):
            assert without_numbers_of_the_run(ours) == without_numbers_of_the_run(theirs), words


def test_providers_are_asked_of_the_server(invoke: Corral, server_url: str) -> None:
    """`providers` by URL shows what the server has."""
    shown = invoke("--url", server_url, "providers")
    assert shown.exit_code == 0
    assert "inline::hashing" in shown.stdout


def test_a_server_that_is_not_there_is_named(invoke: Corral) -> None:
    """Exit code 1, the address, and how to start a server; no traceback."""
    failed = invoke("--url", "http://127.0.0.1:1", "dbs", "list")
    assert failed.exit_code == 1
    assert "http://127.0.0.1:1" in failed.stderr
    assert "corral serve" in failed.stderr
    assert "Traceback" not in failed.output


@pytest.mark.parametrize("url", ["localhost:8321", "ftp://x", "http://", "http://[::1", ""])
def test_a_malformed_address_is_bad_input(invoke: Corral, url: str) -> None:
    """What is no http address is refused before anything is sent."""
    refused = invoke("--url", url, "dbs", "list")
    assert refused.exit_code == 2
    assert "http://127.0.0.1:8321" in refused.stderr


@pytest.fixture
def web_page() -> Iterator[str]:
    """The address of something that answers, but is no Corral."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>It works!</html>")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_another_program_on_the_port_is_recognized(invoke: Corral, web_page: str) -> None:
    """An answer that is not JSON: the address and the question whether it is Corral."""
    failed = invoke("--url", web_page, "dbs", "list")
    assert failed.exit_code == 1
    assert web_page in failed.stderr
    assert "Corral" in failed.stderr


@pytest.mark.parametrize("body", [[], {"data": 5}, {"data": [5]}, {}, "text"])
def test_an_answer_of_the_wrong_shape_is_a_failure(body: object) -> None:
    """JSON that is not the wire's does not become a traceback."""
    assert refusal(200, body).exit_code == 1


@pytest.mark.parametrize(
    ("status", "exit_code"),
    [(400, 2), (404, 2), (409, 2), (413, 2), (422, 2), (424, 1), (500, 1), (502, 1), (503, 1)],
)
def test_exit_codes_say_whose_fault_it_is(status: int, exit_code: int) -> None:
    """2 where the input is to blame, 1 for every other failure."""
    error = refusal(status, {"error": {"message": "No.", "param": None}})
    assert (error.message, error.exit_code, error.status) == ("No.", exit_code, status)


def test_a_refused_key_says_how_to_give_one() -> None:
    """A server that wants a key: the command line names its own option, not a header."""
    error = failures.refusal(httpx.Response(401, json={"error": {"message": "No key."}}))
    assert error.hint == "Pass a key with --key or in CORRAL_API_KEY."
    assert failures.refusal(httpx.Response(403, json={"error": {"message": "No."}})).hint == ""


def test_errors_of_like_servers_are_read_too() -> None:
    """Llama Stack's two shapes of an error, and none at all."""
    findings = {"errors": [{"loc": ["k"], "msg": "too small", "type": "value_error"}]}
    assert refusal(400, {"detail": "Invalid value: no"}).message == "Invalid value: no"
    assert "too small" in refusal(400, {"error": {"detail": findings}}).message
    assert "502 Bad Gateway" in refusal(502, "<html>").message


def test_batches_are_bounded(tmp_path: Path) -> None:
    """No insert holds more documents or bytes than a batch may, and each document is in one."""
    for number in range(BATCH_DOCUMENTS + 3):
        (tmp_path / f"small{number:03}.txt").write_text("x")
    for number in range(3):
        (tmp_path / f"large{number}.txt").write_text("y" * (BATCH_BYTES // 2))
    sent: list[list[str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        assert "chunk_size_in_tokens" not in body, "the registration says how to split"
        assert sum(len(d["content"]["text"]) for d in body["documents"]) <= BATCH_BYTES
        sent.append([document["document_id"] for document in body["documents"]])
        return unchanged(request)

    report = insert_all(tmp_path, answer)
    assert max(map(len, sent)) <= BATCH_DOCUMENTS
    ids = [document for batch in sent for document in batch]
    assert len(ids) == len(set(ids)) == report.unchanged == BATCH_DOCUMENTS + 6


def unchanged(request: httpx.Request) -> httpx.Response:
    """Answer that all documents are stored already."""
    ids = [document["document_id"] for document in json.loads(request.content)["documents"]]
    return httpx.Response(200, json={"batch_id": None, "jobs": [], "unchanged": ids})


class Jobs:
    """A server whose jobs end at once, failed where `fails` says why."""

    def __init__(self, fails: Callable[[str], str | None]) -> None:
        self._fails = fails
        self._jobs: list[dict[str, Any]] = []
        self.cancelled = False

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        if request.url.path == "/v1/jobs/cancel":
            self.cancelled = True
            return httpx.Response(200, json={"count": 0})
        if request.method == "GET":
            after = int(request.url.params["changed_after"])
            data = [job for job in self._jobs if job["version"] > after]
            return httpx.Response(200, json={"data": data, "has_more": False})
        new = [self._job(d["document_id"]) for d in json.loads(request.content)["documents"]]
        self._jobs += new
        return httpx.Response(200, json={"batch_id": "b", "jobs": new, "unchanged": []})

    def _job(self, document_id: str) -> dict[str, Any]:
        message = self._fails(document_id)
        return {
            "job_id": f"job_{document_id}",
            "document_id": document_id,
            "version": len(self._jobs) + 1 + sum(map(ord, document_id)),
            "status": "failed" if message else "completed",
            "error_code": "server_error" if message else None,
            "error_message": message,
            "notes": [],
            "progress": {"embedded": 1},
        }


def insert_all(folder: Path, answer: Answer) -> Report:
    """Ingest a folder into a server that answers so; the vector DB splits at 99 tokens."""

    async def inserting() -> Report:
        report = Report()
        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            vector_db = {"identifier": "x", "chunking": {"chunk_size_in_tokens": 99}}
            with progress.ingest_bars(0, 0) as bars:
                found = collect([folder], report)
                return await ingest_files(Client(http), vector_db, found, report, bars)

    return asyncio.run(inserting())


@pytest.mark.parametrize("status", [413, 500])
def test_a_refused_batch_is_sent_again_one_by_one(tmp_path: Path, status: int) -> None:
    """One document that the server cannot take does not keep the others out."""
    for name in ("a", "bad", "c"):
        (tmp_path / f"{name}.txt").write_text(name)

    def answer(request: httpx.Request) -> httpx.Response:
        if b"bad.txt" in request.content:
            return httpx.Response(status, json={"detail": "No."})
        return unchanged(request)

    report = insert_all(tmp_path, answer)
    assert report.unchanged == 2
    assert report.failed == [((tmp_path / "bad.txt").as_posix(), "No.")]


def test_a_missing_reader_stops_only_its_files(tmp_path: Path) -> None:
    """Where the server cannot read PDF files, the text files go in; a missing model stops all.

    If this fails: 5,000 files fail one after the other for one package that is not installed.
    """
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.pdf").write_text("b")
    missing = "Run: pip install it"
    report = insert_all(tmp_path, Jobs(lambda name: missing if name == "b.pdf" else None))
    assert report.documents == 1
    assert report.failed == [((tmp_path / "b.pdf").as_posix(), missing)]
    for name in "cde":
        (tmp_path / f"{name}.txt").write_text(name)
    server = Jobs(lambda name: missing)
    with pytest.raises(CommandError, match="pip install"):
        insert_all(tmp_path, server)
    assert server.cancelled


def test_a_server_that_goes_away_stops_the_ingest(tmp_path: Path) -> None:
    """A failure that is no document's fault ends the run, and says what is stored by then."""
    for number in range(BATCH_DOCUMENTS + 1):
        (tmp_path / f"{number:03}.txt").write_text("x")
    calls = 0

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal calls
        calls += 1
        return unchanged(request) if calls == 1 else httpx.Response(503, json={"detail": "Gone."})

    with pytest.raises(CommandError, match="Gone") as caught:
        insert_all(tmp_path, answer)
    assert "Stored before that: 0 documents" in caught.value.hint
    assert calls == 2


def test_ctrl_c_is_clean(deaf_server: tuple[str, threading.Event]) -> None:
    """An interrupted command says so in a word, without a traceback."""
    url, asked = deaf_server
    command = [sys.executable, "-m", "corral.server.cli.cli", "--url", url, "dbs", "list"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8")
    assert asked.wait(60)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert said.strip() == "Aborted!"
    assert process.returncode == 1


@pytest.fixture
def deaf_server() -> Iterator[tuple[str, threading.Event]]:
    """The address of a server that never answers, and an event that says it was asked."""
    asked, done = threading.Event(), threading.Event()

    class Deaf(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.set()
            done.wait(60)

    server = HTTPServer(("127.0.0.1", 0), Deaf)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    done.set()
    server.shutdown()
    thread.join()
    server.server_close()
