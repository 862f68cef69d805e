"""The audit log: a line for each decision, without any text, in files of bounded size."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from corral.api.principal import Principal, Role
from corral.providers.base.server_config import AuditSettings
from corral.server.access.audit import MAX_IDS, AuditLog, Entry

from .harness import DIMENSION, InProcess, Json, run_config
from .secured import holder, keys_of, nobody

SECRET = "the merger with globex"


def lines(folder: Path) -> list[Json]:
    """Return the lines of all files of an audit log, in their order."""
    files = sorted(folder.glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text("ascii").splitlines()]


def test_a_line_says_who_did_what(app: InProcess, tmp_path: Path) -> None:
    """Principal, route, vector DB, a hash of the question, ids returned, status; never a text.

    If this fails: nobody can say later who has seen a document, or the log leaks what was asked.
    """
    ann = holder(app, "ann", Role.WRITER, tenant="acme")
    ann.register("notes")
    ann.insert(SECRET, "sheep and fences", db="notes")
    found = ann.ok("POST", "/v1/vector-io/query", {"vector_db_id": "notes", "query": SECRET})
    again = {"content": SECRET, "vector_db_ids": ["notes"]}
    told = ann.ok("POST", "/v1/tool-runtime/rag-tool/query", again)
    written = lines(tmp_path / "audit")
    actions = ["vector-dbs", "vector-io/insert", "vector-io/query", "tool-runtime/rag-tool/query"]
    assert [line["action"] for line in written] == [f"POST /v1/{action}" for action in actions]
    for line in written:
        who = {name: line[name] for name in ("tenant", "user", "key_id", "role")}
        assert who == {"tenant": "acme", "user": "ann", "key_id": ann.key_id, "role": "writer"}
        assert (line["status"], line["refused"]) == (200, False)
        assert datetime.fromisoformat(line["time"]).tzinfo is not None
        assert line["request_id"]
    assert [line["vector_dbs"] for line in written[1:]] == [["notes"]] * 3
    search, rag = written[2:]
    assert search["returned"] == {"notes": [chunk["chunk_id"] for chunk in found["chunks"]]}
    assert sorted(rag["returned"]["notes"]) == sorted(told["metadata"]["chunk_ids"])
    assert search["queries"] == rag["queries"]
    kept = "".join(path.read_text("ascii") for path in (tmp_path / "audit").glob("*.jsonl"))
    assert "merger" not in kept
    assert "sheep" not in kept


def test_every_door_is_written_down(app: InProcess, tmp_path: Path) -> None:
    """OpenAI's search, tools of MCP, a document and its page: each with the ids that it returned.

    If this fails: a door that came later leaves no trace.
    """
    ann = holder(app, "ann", Role.WRITER, tenant="acme")
    ann.register("notes")
    documents = [{"document_id": "plan", "content": SECRET}]
    ann.ok(
        "POST",
        "/v1/tool-runtime/rag-tool/insert",
        {"vector_db_id": "notes", "documents": documents},
    )
    document = ann.ok("GET", "/v1/vector-dbs/notes/documents/plan")
    ids = [chunk["chunk_id"] for chunk in document["chunks"]]
    assert SECRET in ann.send("GET", "/document?vector_db_id=notes&document_id=plan").text
    ann.ok("POST", "/v1/vector_stores/notes/search", {"query": SECRET})
    accept = {"accept": "application/json, text/event-stream"}
    for name, arguments in (
        ("search", {"query": SECRET, "vector_db_ids": ["notes"]}),
        ("rag_query", {"question": SECRET, "vector_db_ids": ["notes"]}),
    ):
        params = {"name": name, "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        assert SECRET in ann.send("POST", "/mcp", body, accept).text
    written = lines(tmp_path / "audit")[2:]
    assert len(written) == 5
    assert [line["returned"] for line in written] == [{"notes": ids}] * 5
    assert [line["vector_dbs"] for line in written] == [["notes"]] * 5
    assert len({tuple(line["queries"]) for line in written[2:]}) == 1


def test_what_applications_and_tools_do_is_written_down(tmp_path: Path) -> None:
    """Applications' routes have their ids, tools their names, and a refused tool is told.

    If this fails: who reads by those doors leaves no trace.
    """
    with InProcess(tmp_path, run_config(server={"tools": {"writes": True}})) as app:
        ann, bob = holder(app, "ann", Role.WRITER), holder(app, "bob")
        ann.register("librechat")
        document = {"document_id": "plan", "content": "fences", "metadata": {"file_id": "plan"}}
        body = {"vector_db_id": "librechat", "documents": [document]}
        ann.ok("POST", "/v1/tool-runtime/rag-tool/insert", body)
        ask = {"query": [1.0] * DIMENSION, "limit": 1}
        asked = ann.ok("POST", "/qdrant/collections/librechat/points/query", ask)
        ann.ok("GET", "/librechat/documents?ids=plan")
        arguments = {"vector_db_id": "librechat", "document_id": "none"}
        params = {"name": "delete", "arguments": arguments}
        called = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        for who in (ann, bob):
            who.send("POST", "/mcp", called, {"accept": "application/json, text/event-stream"})
        function = {"name": "get_vector_db", "arguments": '{"vector_db_id": "librechat"}'}
        bob.ok(
            "POST", "/v1/tools/openai/call", {"id": "1", "type": "function", "function": function}
        )
    *read, deleted, refused, shown = lines(tmp_path / "audit")[2:]
    [point] = asked["result"]["points"]
    assert [line["vector_dbs"] for line in read] == [["librechat"]] * 2
    assert [line["returned"] for line in read] == [{"librechat": [point["id"]]}] * 2
    assert (deleted["action"], deleted["refused"]) == ("POST /mcp delete", True)
    assert (refused["action"], refused["refused"]) == ("POST /mcp delete", True)
    assert (shown["action"], shown["refused"]) == (
        "POST /v1/tools/openai/call get_vector_db",
        False,
    )
    assert deleted["vector_dbs"] == shown["vector_dbs"] == ["librechat"]


def test_librechats_files_are_written_down(app: InProcess, tmp_path: Path) -> None:
    """Sending, listing, asking for and deleting a file names their vector DB; only answers return.

    If this fails: nobody can tell where a file went, or a deletion looks as if it had been read.
    """
    ann = holder(app, "ann", Role.WRITER)
    form = {"data": {"file_id": "plan"}, "files": {"file": ("plan.md", b"fences", "text/markdown")}}
    bearer = {"authorization": f"Bearer {ann.secret}"}
    sent = app.send("POST", "/librechat/embed", headers=bearer, **form)
    assert sent.status_code == 200
    assert ann.ok("GET", "/librechat/ids") == ["plan"]
    ann.ok("POST", "/librechat/query", {"query": "fences", "file_id": "plan"})
    ann.ok("DELETE", "/librechat/documents", ["plan"])
    written = lines(tmp_path / "audit")
    assert [line["vector_dbs"] for line in written] == [["librechat"]] * 4
    assert [bool(line["returned"]) for line in written] == [False, False, True, False]


def test_refusals_are_written_too(app: InProcess, tmp_path: Path) -> None:
    """No key, a revoked one, too small a role, a foreign vector DB, a path that is none."""
    ann, gone = holder(app, "ann", tenant="acme"), holder(app, "gone")
    app.run(lambda: keys_of(app).revoke(gone.key_id))
    holder(app, "bob", Role.WRITER).register("theirs")
    nobody(app).send("GET", "/v1/vector-dbs/secret-name")
    gone.send("GET", "/v1/vector-dbs")
    ann.send("GET", "/v1/orphans")
    ann.send("GET", "/v1/vector-dbs/theirs")
    ann.send("GET", "/v1/nowhere/secret-name")
    written = [line for line in lines(tmp_path / "audit") if line["refused"]]
    assert [(line["user"], line["action"], line["status"]) for line in written] == [
        (None, "GET /v1/vector-dbs/{vector_db_id}", 401),
        (None, "GET /v1/vector-dbs", 401),
        ("ann", "GET /v1/orphans", 403),
        ("ann", "GET /v1/vector-dbs/{vector_db_id}", 400),
        ("ann", "GET /v1/*", 404),
    ]
    assert "secret-name" not in json.dumps(written)


def test_an_open_server_writes_none(app: InProcess, tmp_path: Path) -> None:
    """Nobody in particular asks there; public pages are in no log either."""
    nobody(app).send("GET", "/v1/vector-dbs")
    assert not (tmp_path / "audit").exists()
    holder(app, "ann")
    nobody(app).send("GET", "/v1/health")
    assert not (tmp_path / "audit").exists()


def entry() -> Entry:
    """Return an entry with a question and more ids than a line holds."""
    made = Entry("GET /x", "id", Principal("acme", "ann"))
    made.asks("a question")
    made.returns("db", [str(number) for number in range(MAX_IDS + 5)])
    return made


def opened(folder: Path, **settings: Any) -> AuditLog:
    """Return an audit log in a folder, with a clock that moves."""
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def clock() -> datetime:
        nonlocal now
        now += timedelta(milliseconds=1)
        return now

    return AuditLog(AuditSettings(folder=str(folder), **settings), folder, clock)


def test_files_are_bounded(tmp_path: Path) -> None:
    """A full file is followed by a new one, and the oldest go; no line is cut.

    If this fails: the log fills the disk.
    """
    log = opened(tmp_path, max_mib=0.02, max_files=3)
    for _ in range(40):
        log.write(entry(), 200)
    log.close()
    files = sorted(tmp_path.glob("*.jsonl"))
    assert len(files) == 3
    assert all(file.stat().st_size <= 0.02 * 1024 * 1024 for file in files)
    assert all(line["returned"]["db"][-1] == "... and 5 more" for line in lines(tmp_path))
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


def test_processes_share_a_folder(tmp_path: Path) -> None:
    """Each has files of its own and the same key; a file that another has deleted is replaced.

    If this fails: lines are lost when two servers rotate, or equal questions look different.
    """
    one, two = opened(tmp_path), opened(tmp_path)
    one.write(entry(), 200)
    two._clock = lambda: datetime(2027, 1, 1, tzinfo=UTC)
    two.write(entry(), 200)
    assert len({line["queries"][0] for line in lines(tmp_path)}) == 1
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    min(tmp_path.glob("*.jsonl")).unlink()
    one.write(entry(), 200)
    assert len(lines(tmp_path)) == 2
    one.close()
    two.close()


def test_a_full_disk_stops_no_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that cannot be written is an error in the server's log."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    log = opened(tmp_path)
    monkeypatch.setattr("os.write", full)
    log.write(entry(), 200)
    log.close()
    assert "audit log cannot be written" in caplog.text
