"""Snapshots over HTTP: streamed out, streamed in, checked, and refused."""

from __future__ import annotations

import io
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.providers.copying.snapshot_file import Snapshot

from .harness import InProcess, id_path, message_of, run_config

ZIP = {"content-type": "application/zip"}
SNAPSHOTS = "/v1/snapshots"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[InProcess]:
    """Yield the app with a vector DB `db` of seven chunks."""
    config = run_config(limits={"max_body_mib": 0.01, "max_snapshot_mib": 0.5})
    with InProcess(tmp_path, config) as started:
        started.register(search_mode="keyword", language="nb")
        started.insert(*[{"content": f"hundene number{n}", "chunk_id": f"c{n}"} for n in range(7)])
        yield started


def exported(app: InProcess, db: str = "db") -> bytes:
    """Return a snapshot."""
    response = app.send("GET", id_path(db).replace("/v1/vector-dbs", SNAPSHOTS))
    assert (response.status_code, response.headers["content-type"]) == (200, "application/zip")
    return response.content


def send(app: InProcess, content: bytes, **asked: str) -> Any:
    """Import a snapshot and return the response."""
    return app.send("POST", SNAPSHOTS, content=content, headers=ZIP, params=asked)


@pytest.mark.parametrize("db", ["db", "a/b", "../x", "🙂 %2F"])
def test_a_vector_db_goes_out_and_comes_in(app: InProcess, db: str) -> None:
    """What comes in answers as what went out, whatever its id; the file is larger than a body.

    If this fails: the route reads the file as a body, or its path cannot name every id.
    """
    if db != "db":
        app.register(db)
        app.insert("hundene og kattene", db=db)
    content = exported(app, db)
    reply = send(app, content, vector_db_id=f"{db}/copy").json()
    assert reply["vector_db"]["identifier"] == f"{db}/copy"
    assert reply["notes"] == []
    found = [app.query("hund", db=name, mode="keyword") for name in (db, f"{db}/copy")]
    assert found[0] == found[1]
    assert len(exported(app)) > 0.01 * 1024 * 1024 / 2


def test_refusals(app: InProcess, tmp_path: Path) -> None:
    """A taken id, no snapshot, an unknown provider, an unknown vector DB, a file beyond the limit.

    Nothing is registered, and no file is left in the data folder.
    """
    content = exported(app)
    before = sorted(path.name for path in tmp_path.iterdir())
    for response, status, said in (
        (send(app, content), 409, "exists"),
        (send(app, b"hello", vector_db_id="x"), 400, "not a snapshot"),
        (send(app, b"", vector_db_id="x"), 400, "not a snapshot"),
        (send(app, content[:-50], vector_db_id="x"), 400, "truncated"),
        (send(app, content, vector_db_id="x", provider_id="sqlit"), 400, "Did you mean 'sqlite'"),
        (send(app, content, vector_db_id=""), 400, "vector_db_id"),
        (send(app, b"x" * 600_000, vector_db_id="x"), 413, "max_snapshot_mib"),
        (app.send("GET", f"{SNAPSHOTS}/nobody"), 400, "There is no vector DB 'nobody'"),
    ):
        assert response.status_code == status, response.text
        assert said in message_of(response)
    assert [each["identifier"] for each in app.ok("GET", "/v1/vector-dbs")["data"]] == ["db"]
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_what_is_streamed_is_whole(app: InProcess, tmp_path: Path) -> None:
    """The streamed file passes every check."""
    file = tmp_path / "db.corral"
    file.write_bytes(exported(app))
    with file.open("rb") as content:
        snapshot = Snapshot(content)
        assert sum(len(chunks) for chunks, _ in snapshot.batches()) == 7
        assert snapshot.manifest.settings["language"] == "norwegian"


def test_a_body_is_written_off_the_event_loop(
    app: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No piece of a snapshot is written, and no file closed, where requests are answered.

    If this fails: a slow disk holds up every other request while a snapshot comes in.
    """
    content, at = exported(app), list[tuple[str, str]]()

    class Watched(io.BytesIO):
        def write(self, data: Any) -> int:
            at.append(("write", threading.current_thread().name))
            return super().write(data)

        def close(self) -> None:
            at.append(("close", threading.current_thread().name))
            super().close()

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: Watched())
    assert send(app, content, vector_db_id="copy").status_code == 200
    assert {action for action, _ in at} == {"write", "close"}
    assert all(name.startswith("asyncio_") for _, name in at), at
