"""Documents over HTTP: listed in pages, shown with their chunks, deleted whole."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from .harness import InProcess, Json, id_path, message_of

AWKWARD = ["a/b/c.md", "/", "..", "x/documents/y", "documents", "100% ?#&", "🦊", "line\nbreak"]


def escaped(name: str) -> str:
    """Return an id percent-encoded, dots too."""
    return quote(name, safe="").replace(".", "%2E")


def document_path(document_id: str, db: str = "db") -> str:
    """Return the path of a document."""
    return f"{id_path(db)}/documents/{escaped(document_id)}"


def insert(app: InProcess, *document_ids: str, db: str = "db") -> None:
    """Insert documents of about three chunks each."""
    text = "\n\n".join(f"part {n}: " + "the fox runs over the hill " * 8 for n in range(3))
    documents: list[Json] = [
        {"document_id": name, "content": text, "metadata": {"source": f"/s/{name}"}}
        for name in document_ids
    ]
    app.rag_insert(*documents, db=db)


def listed(app: InProcess, db: str = "db", query: str = "") -> list[str]:
    """Return the ids of a page of documents."""
    page = app.ok("GET", f"{id_path(db)}/documents{query}")
    return [document["document_id"] for document in page["data"]]


def test_documents_are_listed_in_pages(app: InProcess) -> None:
    """By id, each with its number of chunks, until `has_more` is false."""
    app.register()
    assert app.ok("GET", "/v1/vector-dbs/db/documents") == {
        "data": [],
        "has_more": False,
        "last_id": "",
    }
    insert(app, "c", "a", "b")
    app.insert("a chunk of no document")
    first = app.ok("GET", "/v1/vector-dbs/db/documents?limit=2")
    assert [d["document_id"] for d in first["data"]] == ["a", "b"]
    assert {d["chunk_count"] for d in first["data"]} == {3}
    assert (first["has_more"], first["last_id"]) == (True, "b")
    assert listed(app, query="?limit=2&after=b") == ["c"]
    assert app.ok("GET", "/v1/vector-dbs/db/documents?limit=3")["has_more"] is False
    for wrong in ("limit=0", "limit=10001", "limit=x", "names=true&limit=101"):
        assert app.send("GET", f"/v1/vector-dbs/db/documents?{wrong}").status_code == 400


def test_a_document_is_shown_with_its_chunks_in_order(app: InProcess) -> None:
    """Metadata without the counts of one chunk, chunks by position, without embeddings."""
    app.register()
    insert(app, "d")
    shown = app.ok("GET", document_path("d"))
    assert shown["vector_db_id"] == "db"
    assert (shown["document_id"], shown["chunk_count"]) == ("d", 3)
    assert shown["metadata"] == {"source": "/s/d"}
    assert [c["chunk_metadata"]["position"] for c in shown["chunks"]] == [0, 1, 2]
    assert all(chunk["embedding"] is None for chunk in shown["chunks"])
    part = app.ok("GET", document_path("d") + "?offset=1&limit=1")
    assert [c["chunk_metadata"]["position"] for c in part["chunks"]] == [1]
    assert part["chunk_count"] == 3


def test_a_document_is_deleted_whole(app: InProcess) -> None:
    """It is found no more, its chunks are gone, others stay; a second time it is unknown.

    If this fails: what a person asked to have removed is still searched.
    """
    app.register()
    insert(app, "a", "b")
    deleted = app.ok("DELETE", document_path("a"))
    assert deleted == {"document_id": "a", "chunk_count": 3, "deleted": True}
    assert listed(app) == ["b"]
    found = app.query("fox", max_chunks=100)["chunks"]
    assert {chunk["metadata"]["document_id"] for chunk in found} == {"b"}
    for method in ("GET", "DELETE"):
        refused = app.send(method, document_path("a"))
        assert refused.status_code == 400
        assert "no document 'a' in vector DB 'db'" in message_of(refused)
    assert app.send("GET", "/v1/vector-dbs/nope/documents").status_code == 400


def test_any_ids_work(app: InProcess) -> None:
    """Slashes, dots, `documents` and the rest, in both ids, percent-encoded.

    If this fails: an id is split, decoded twice or normalized; another document may be deleted.
    """
    for db in AWKWARD:
        app.register(db)
        insert(app, *AWKWARD, db=db)
    for db in AWKWARD:
        assert listed(app, db) == sorted(AWKWARD)
        left = sorted(AWKWARD)
        for name in AWKWARD:
            assert app.ok("GET", document_path(name, db))["document_id"] == name
            app.ok("DELETE", document_path(name, db))
            left.remove(name)
            assert listed(app, db) == left
        assert app.ok("GET", id_path(db))["identifier"] == db


def test_ids_with_plain_slashes_are_told_apart_by_what_is_registered(app: InProcess) -> None:
    """Clients that put ids into paths as they are reach vector DBs and documents alike."""
    app.register("team/documents")
    assert app.ok("GET", "/v1/vector-dbs/team/documents")["identifier"] == "team/documents"
    insert(app, "x/y", db="team/documents")
    path = "/v1/vector-dbs/team/documents/documents"
    assert [d["document_id"] for d in app.ok("GET", path)["data"]] == ["x/y"]
    app.register("team")
    insert(app, "x/documents/y", db="team")
    shown = app.ok("GET", "/v1/vector-dbs/team/documents/x/documents/y")
    assert (shown["vector_db_id"], shown["document_id"]) == ("team", "x/documents/y")
    assert app.ok("GET", "/v1/vector-dbs/team/documents")["identifier"] == "team/documents"
    assert listed(app, "team", "?limit=5") == ["x/documents/y"]
    app.ok("DELETE", "/v1/vector-dbs/team/documents")
    assert [db["identifier"] for db in app.ok("GET", "/v1/vector-dbs")["data"]] == ["team"]


def test_a_deletion_that_could_mean_two_things_is_refused(app: InProcess) -> None:
    """A path that is a document's and a vector DB's deletes neither; %2F says which is meant."""
    app.register("team")
    app.register("team/documents/x")
    insert(app, "x", db="team")
    refused = app.send("DELETE", "/v1/vector-dbs/team/documents/x")
    assert refused.status_code == 409
    assert "%2F" in message_of(refused)
    assert listed(app, "team", "?limit=5") == ["x"]
    app.ok("DELETE", id_path("team/documents/x"))
    app.ok("DELETE", "/v1/vector-dbs/team/documents/x")
    assert listed(app, "team") == []


def test_a_vector_db_is_shown_with_counts(app: InProcess) -> None:
    """`counts=true` adds chunks and documents; a list without it opens no index."""
    app.register("full")
    app.register("empty")
    insert(app, "a", "b", db="full")
    app.insert("of no document", db="full")
    plain = app.ok("GET", "/v1/vector-dbs")["data"]
    assert all("chunk_count" not in db and "document_count" not in db for db in plain)
    counted = app.ok("GET", "/v1/vector-dbs?counts=true")["data"]
    counts = {db["identifier"]: (db["chunk_count"], db["document_count"]) for db in counted}
    assert counts == {"full": (7, 2), "empty": (0, 0)}
    shown = app.ok("GET", "/v1/vector-dbs/full?counts=true")
    assert (shown["chunk_count"], shown["document_count"]) == (7, 2)


def test_counts_of_a_broken_vector_db_are_absent(tmp_path: Path) -> None:
    """One whose data is gone is listed without counts, and the others with theirs."""
    with InProcess(tmp_path) as app:
        app.register("broken")
    for file in (tmp_path / "sqlite").rglob("*"):
        if file.is_file():
            file.unlink()
    with InProcess(tmp_path) as app:
        app.register("good")
        first, second = app.ok("GET", "/v1/vector-dbs?counts=true")["data"]
    assert (first["identifier"], "chunk_count" in first) == ("broken", False)
    assert (second["identifier"], second["chunk_count"]) == ("good", 0)
