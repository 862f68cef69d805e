"""Acls over HTTP: set with a document or a chunk, changed by a route, applied to whoever asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corral.api.principal import ACL_KEY, Principal, Role
from corral.providers.stack.stack import Stack

from .harness import InProcess, message_of, run_config, wait_until
from .secured import Holder, holder
from .test_documents import document_path

ANN = Principal(user="ann", role=Role.WRITER)
BOB = Principal(user="bob", groups=frozenset({"sales"}), role=Role.READER)


def seen(app: InProcess, who: Principal) -> list[str]:
    """Return the documents that a principal sees."""
    stack: Stack = app.app.state.stack.for_principal(who)

    async def read() -> list[str]:
        found = await (await stack.index("db")).documents()
        return [one.document_id for one in found]

    documents: list[str] = app.run(read)
    return documents


def test_a_document_is_inserted_with_an_acl_and_given_another(app: InProcess) -> None:
    """The acl of the document is that of its chunks, and comes back with them; so does the next.

    If this fails: who may read a document is lost on the way to the index.
    """
    app.register(default_acl=["user:ann"])
    app.rag_insert(
        {"document_id": "plan", "content": "sell the hill", "acl": ["group:sales", "user:ann"]},
        {"document_id": "diary", "content": "walked up the hill"},
    )
    assert (seen(app, ANN), seen(app, BOB)) == (["diary", "plan"], ["plan"])
    [chunk] = app.ok("GET", document_path("plan"))["chunks"]
    assert chunk["acl"] == ["group:sales", "user:ann"]
    assert ACL_KEY not in str(chunk)
    changed = app.ok("PATCH", document_path("plan"), {"acl": ["user:cem"]})
    assert changed == {"document_id": "plan", "chunk_count": 1, "acl": ["user:cem"]}
    assert (seen(app, ANN), seen(app, BOB)) == (["diary"], [])
    assert app.ok("PATCH", document_path("plan"), {"acl": None})["acl"] is None
    assert "acl" not in app.ok("GET", document_path("plan"))["chunks"][0]
    assert (seen(app, ANN), seen(app, BOB)) == (["diary", "plan"], [])


FILES = "/v1/vector_stores/db/files"


def upload(app: InProcess, text: str, who: Holder | None = None) -> str:
    """Upload a file and return its id."""
    form: dict[str, Any] = {"files": {"file": ("plan.txt", text)}, "data": {"purpose": "user_data"}}
    if who:
        form["headers"] = {"authorization": f"Bearer {who.secret}"}
    stored: str = app.send("POST", "/v1/files", **form).json()["id"]
    return stored


def test_a_file_is_attached_with_an_acl_and_again_with_another(tmp_path: Path) -> None:
    """The acl waits in the job, over a restart too; without one the vector DB's default holds.

    If this fails: a file that is ingested again is open to everyone.
    """
    config = run_config(ingestion={"wait_seconds": 0})
    with InProcess(tmp_path, config) as app:
        app.register(default_acl=["user:ann"])
        plan = upload(app, "sell the hill")
        app.ok("POST", FILES, {"file_id": plan, "acl": ["group:sales", "user:ann"]})
    with InProcess(tmp_path, config) as app:
        for acl, readers in ((None, ()), (["group:sales"], (BOB,)), (None, (ANN,))):
            if readers:
                app.ok("POST", FILES, {"file_id": plan, "acl": acl})
            wait_until(lambda: app.ok("GET", f"{FILES}/{plan}")["status"] == "completed")
            for who in (ANN, BOB):
                assert (seen(app, who) == [plan]) == (who in (readers or (ANN, BOB)))


def test_a_file_is_attached_only_with_tokens_that_its_submitter_has(app: InProcess) -> None:
    """Others are refused before a job is queued; an admin may give any."""
    app.register()
    admin, ann = holder(app, "ada", Role.ADMIN), holder(app, "ann", Role.WRITER)
    body = {"file_id": upload(app, "sell the hill", ann), "acl": ["group:sales"]}
    refused = ann.send("POST", FILES, body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (403, "acl")
    assert admin.ok("GET", "/v1/jobs")["data"] == []
    assert ann.status("POST", FILES, {**body, "acl": ["user:ann"]}) == 200
    body["file_id"] = upload(app, "buy the hill", admin)
    assert admin.status("POST", FILES, body) == 200


def test_a_document_that_comes_again_with_another_acl_has_changed(app: InProcess) -> None:
    """`skip_unchanged` stores it again: who may read it is part of what it is."""
    app.register()
    body = {
        "vector_db_id": "db",
        "documents": [{"document_id": "a", "content": "x"}],
        "skip_unchanged": True,
    }
    app.ok("POST", "/v1/tool-runtime/rag-tool/insert", body)
    assert app.ok("POST", "/v1/tool-runtime/rag-tool/insert", body)["unchanged"] == ["a"]
    body["documents"] = [{"document_id": "a", "content": "x", "acl": ["user:ann"]}]
    assert app.ok("POST", "/v1/tool-runtime/rag-tool/insert", body)["unchanged"] == []
    assert (seen(app, ANN), seen(app, BOB)) == (["a"], [])


@pytest.mark.parametrize(
    "acl",
    [
        ["ann"], ["user:"], "user:ann", [1], [f"user:{n}" for n in range(65)],
        ["tenant:*\n"], ["user:*"], ["user:ann "], ["user:a\u200bnn"], ["user:Jose\u0301"],
    ],
)  # fmt: skip
def test_a_malformed_acl_is_refused_everywhere(app: InProcess, acl: object) -> None:
    """In a registration, a chunk, a document and a change: 400, and nothing is stored."""
    app.register()
    app.rag_insert({"document_id": "a", "content": "x"})
    chunk = {"content": "x", "acl": acl}
    other = {"vector_db_id": "b", "embedding_model": "hashing"}
    for method, path, body in (
        ("POST", "/v1/vector-dbs", {**other, "default_acl": acl}),
        ("POST", "/v1/vector-io/insert", {"vector_db_id": "db", "chunks": [chunk]}),
        (
            "POST",
            "/v1/tool-runtime/rag-tool/insert",
            {"vector_db_id": "db", "documents": [{"document_id": "b", **chunk}]},
        ),
        (
            "POST",
            "/v1/jobs",
            {"vector_db_id": "db", "documents": [{"document_id": "b", **chunk}]},
        ),
        ("POST", FILES, {"file_id": "file-1", "acl": acl}),
        ("PATCH", document_path("a"), {"acl": acl}),
    ):  # fmt: skip
        response = app.send(method, path, body)
        assert response.status_code == 400, path
        assert "acl" in message_of(response)
    assert seen(app, ANN) == ["a"]
    assert app.send("PATCH", document_path("a"), {}).status_code == 400
    assert app.send("PATCH", document_path("unknown"), {"acl": None}).status_code == 400


def test_the_place_of_the_acl_is_refused_in_metadata_and_filters(app: InProcess) -> None:
    """400, with the field, over every wire that takes metadata or a filter."""
    app.register()
    metadata = {ACL_KEY: ["given", "tenant:*"]}
    chunks = {"vector_db_id": "db", "chunks": [{"content": "x", "metadata": metadata}]}
    documents = {
        "vector_db_id": "db",
        "documents": [{"document_id": "a", "content": "x", "metadata": metadata}],
    }
    filters = {"type": "eq", "key": ACL_KEY, "value": "user:ann"}
    asked = {"vector_db_id": "db", "query": "x", "params": {"filters": filters}}
    for path, body in (
        ("/v1/vector-io/insert", chunks),
        ("/v1/tool-runtime/rag-tool/insert", documents),
        ("/v1/vector-io/query", asked),
    ):
        response = app.send("POST", path, body)
        assert response.status_code == 400
        assert "reserved" in message_of(response)
    assert seen(app, Principal(role=Role.ADMIN)) == []


def test_permissions_outlive_the_server(tmp_path: Path) -> None:
    """What was hidden before a restart is hidden after it."""
    for run in range(2):
        with InProcess(tmp_path) as app:
            if run == 0:
                app.register()
                app.insert({"content": "x", "chunk_id": "c", "acl": ["user:ann"],
                            "metadata": {"document_id": "d"}})  # fmt: skip
            assert (seen(app, ANN), seen(app, BOB)) == (["d"], [])
