"""Files in object storage, over HTTP: stored, read and ingested, or refused for a moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ...object_storage import SECRET, ObjectStorage
from ..harness import InProcess, message_of, run_config

DATA = b"Sheep graze on the hill. " * 100_000


@pytest.fixture(scope="module")
def storage() -> Iterator[ObjectStorage]:
    """Yield the object storage."""
    with ObjectStorage() as running:
        yield running


@pytest.fixture
def app(tmp_path: Path, storage: ObjectStorage) -> Iterator[InProcess]:
    """Yield a server whose files are in a bucket; it waits for seconds only."""
    config = run_config(files=storage.bucket("files", timeout_seconds=3))
    with InProcess(tmp_path, config) as running:
        yield running


def upload(app: InProcess, data: bytes = DATA) -> str:
    """Upload a text, and return its id."""
    sent = {"file": ("notes.txt", data)}
    answer = app.send("POST", "/v1/files", files=sent, data={"purpose": "assistants"})
    assert answer.status_code == 200, answer.text
    file_id: str = answer.json()["id"]
    return file_id


def test_a_file_is_stored_read_and_ingested(app: InProcess, tmp_path: Path) -> None:
    """Its bytes are in the bucket and not in the data folder, and a vector store reads them."""
    file_id = upload(app)
    assert not (tmp_path / "blobs").exists()
    answer = app.send("GET", f"/v1/files/{file_id}/content")
    assert answer.content == DATA
    assert answer.headers["content-length"] == str(len(DATA))
    small = upload(app, b"Sheep graze on the hill.")
    store = app.ok("POST", "/v1/vector_stores", {"name": "farm", "file_ids": [small]})
    path = f"/v1/vector_stores/{store['id']}/files/{small}"
    while app.ok("GET", path)["status"] == "in_progress":
        pass
    assert app.ok("GET", path)["status"] == "completed"
    [hit] = app.ok("POST", f"/v1/vector_stores/{store['id']}/search", {"query": "sheep"})["data"]
    assert hit["file_id"] == small


def test_an_outage_is_a_503_that_says_when_to_repeat(
    app: InProcess, storage: ObjectStorage
) -> None:
    """While the service does not answer, uploads and downloads get 503 and `Retry-After`.

    If this fails: clients give up on a request that would succeed seconds later.
    """
    file_id = upload(app)
    sent = {"files": {"file": ("a.txt", b"other")}, "data": {"purpose": "assistants"}}
    with storage.frozen():
        for answer in (
            app.send("POST", "/v1/files", **sent),
            app.send("GET", f"/v1/files/{file_id}/content"),
        ):
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            assert "object storage" in message_of(answer)
            assert SECRET not in answer.text
    assert app.send("GET", f"/v1/files/{file_id}/content").content == DATA
    assert len(app.ok("GET", "/v1/files")["data"]) == 1
    with storage.frozen():
        assert app.ok("DELETE", f"/v1/files/{file_id}")["deleted"]
        assert not app.ok("GET", "/v1/files")["data"]
    assert app.send("POST", "/v1/files", **sent).status_code == 200


def test_the_place_and_its_health_are_shown_without_secrets(
    app: InProcess, storage: ObjectStorage
) -> None:
    """`/v1/providers` names the kind of storage, its address and its health."""

    def files() -> dict[str, object]:
        answer = app.send("GET", "/v1/providers/files")
        assert SECRET not in answer.text
        shown: dict[str, object] = answer.json()
        return shown

    assert files()["provider_type"] == "remote::s3"
    assert files()["health"] == {"status": "OK", "message": "", "version": ""}
    with storage.frozen():
        health = files()["health"]
    assert isinstance(health, dict)
    assert health["status"] == "Error"
