"""Acls over HTTP: set with a document or a chunk, changed by a route, applied to whoever asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.api.principal import ACL_KEY, Principal, Role
from corral.providers.stack.stack import Stack

from .harness import InProcess, message_of
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
