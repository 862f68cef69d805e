"""Files of vector stores: attached, read in the background, shown, changed, detached."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types import VectorStore
from openai.types.vector_stores import (
    FileContentResponse,
    VectorStoreFile,
    VectorStoreFileBatch,
    VectorStoreFileDeleted,
)

from ..harness import Json
from .doubles import ClockedApp

STORES = "/v1/vector_stores"
TEXT = "# Foxes\n\nThe fox lives in the wood.\n\n## Food\n\n" + "\n\n".join(
    f"Paragraph {number} says that a fox eats mouse number {number} on day {number}."
    for number in range(60)
)
STATIC = {
    "type": "static",
    "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 40},
}


@pytest.fixture
def store(app: ClockedApp) -> str:
    """Return the path of an empty store."""
    return f"{STORES}/{app.create_store(name='docs')['id']}"


def attach(app: ClockedApp, store: str, file_id: str, **more: Any) -> Json:
    """Attach a file, wait until it is read, and return it."""
    app.ok("POST", f"{store}/files", {"file_id": file_id, **more})
    return app.read(store, file_id)


def test_an_attached_file_is_found(app: ClockedApp, store: str) -> None:
    """A file is read, found by its attributes, counted, and given back as it was parsed.

    If this fails: the first thing that OpenAI's users try does not work.
    """
    file = app.upload(TEXT.encode(), "foxes.md")["id"]
    begun = app.ok(
        "POST",
        f"{store}/files",
        {"file_id": file, "attributes": {"topic": "foxes", "year": 2024, "draft": False}},
    )
    VectorStoreFile.model_validate(begun)
    done = app.read(store, file)
    VectorStoreFile.model_validate(done)
    assert (done["status"], done["last_error"]) == ("completed", None)
    assert done["chunking_strategy"]["static"] == {
        "max_chunk_size_tokens": 800,
        "chunk_overlap_tokens": 400,
    }
    shown = VectorStore.model_validate(app.ok("GET", store))
    assert (shown.status, shown.file_counts.completed, shown.file_counts.total) == (
        "completed",
        1,
        1,
    )
    assert shown.usage_bytes == done["usage_bytes"] > len(TEXT)
    wanted = {"type": "eq", "key": "topic", "value": "foxes"}
    found = app.search(store.rpartition("/")[2], "where does the fox live?", filters=wanted)
    best = found["data"][0]
    assert (best["file_id"], best["filename"]) == (file, "foxes.md")
    assert best["attributes"] == {"topic": "foxes", "year": 2024, "draft": False} | {
        name: value for name, value in best["attributes"].items() if name == "title"
    }


@pytest.mark.parametrize("strategy", [None, STATIC])
def test_the_content_is_the_file_once(app: ClockedApp, store: str, strategy: Json | None) -> None:
    """The pieces of the content join to the text, without what chunks repeat of each other."""
    file = app.upload(TEXT.encode(), "foxes.md")["id"]
    attach(app, store, file, **({"chunking_strategy": strategy} if strategy else {}))
    page = app.ok("GET", f"{store}/files/{file}/content")
    pieces = [FileContentResponse.model_validate(each).text or "" for each in page["data"]]
    assert "".join(pieces).strip() == TEXT
    assert (page["object"], page["has_more"]) == ("vector_store.file_content.page", False)


def test_a_title_that_is_taken_away_is_not_found(app: ClockedApp, store: str) -> None:
    """`title` is an attribute like any other: once it is gone, no filter finds it."""
    file = app.upload(b"A fox.")["id"]
    attach(app, store, file, attributes={"title": "secret"})
    asked = {"query": "fox", "filters": {"type": "eq", "key": "title", "value": "secret"}}
    assert app.ok("POST", f"{store}/search", asked)["data"]
    app.ok("POST", f"{store}/files/{file}", {"attributes": {"x": 1}})
    assert app.ok("POST", f"{store}/search", asked)["data"] == []


def test_attributes_change_without_reading_again(app: ClockedApp, store: str) -> None:
    """New attributes filter at once; those that are gone do not."""
    file = app.upload(b"the fox")["id"]
    attach(app, store, file, attributes={"a": "old", "b": 1})
    changed = app.ok("POST", f"{store}/files/{file}", {"attributes": {"a": "new"}})
    assert (changed["attributes"], changed["status"]) == ({"a": "new"}, "completed")
    name = store.rpartition("/")[2]
    assert app.texts(name, "fox", filters={"type": "eq", "key": "a", "value": "new"})
    assert not app.texts(name, "fox", filters={"type": "eq", "key": "a", "value": "old"})
    assert not app.texts(name, "fox", filters={"type": "eq", "key": "b", "value": 1})


def test_a_detached_file_is_gone_from_its_store_alone(app: ClockedApp, store: str) -> None:
    """Its chunks go; the file itself, and what it became in other stores, stay."""
    other = f"{STORES}/{app.create_store()['id']}"
    file = app.upload(b"the fox")["id"]
    for each in (store, other):
        attach(app, each, file)
    gone = app.ok("DELETE", f"{store}/files/{file}")
    VectorStoreFileDeleted.model_validate(gone)
    assert not app.texts(store.rpartition("/")[2], "fox")
    assert app.refused(404, "GET", f"{store}/files/{file}")["param"] == "file_id"
    assert app.ok("GET", store)["file_counts"]["total"] == 0
    assert app.texts(other.rpartition("/")[2], "fox") == ["the fox"]
    assert app.ok("GET", f"/v1/files/{file}")["id"] == file


@pytest.mark.parametrize("name", ["sheep.txt", "sheep.md", "sheep"])
def test_the_charset_of_an_upload_is_the_one_of_its_text(
    app: ClockedApp, store: str, name: str
) -> None:
    """The part's Content-Type names it; where it is another one, the file fails and says so.

    If this fails: the error advises to name the charset, and naming it changes nothing.
    """

    def uploaded(charset: str) -> str:
        part = name, "Schäfer hüten.".encode("latin-1"), f"text/plain; charset={charset}"
        form = {"purpose": "assistants"}
        sent = app.send("POST", "/v1/files", files={"file": part}, data=form)
        return str(sent.json()["id"])

    assert attach(app, store, uploaded("latin-1"))["status"] == "completed"
    assert app.texts(store.rpartition("/")[2], "Schäfer") == ["Schäfer hüten."]
    for wrong in ("utf-8", "rot13"):
        failed = attach(app, store, uploaded(wrong))
        assert failed["last_error"]["code"] == "invalid_file"
        assert f"not in {wrong}" in failed["last_error"]["message"]


def test_what_cannot_be_read_fails_and_harms_nothing(app: ClockedApp, store: str) -> None:
    """A file that is no text ends as failed, with why; it can be listed by that, and detached."""
    good, bad = app.upload(b"the fox")["id"], app.upload(b"\0\1\2" * 999, "a.bin")["id"]
    attach(app, store, good)
    failed = attach(app, store, bad)
    VectorStoreFile.model_validate(failed)
    assert failed["status"] == "failed"
    assert failed["last_error"]["code"] in ("unsupported_file", "invalid_file")
    assert failed["last_error"]["message"]
    for status, expected in (("failed", [bad]), ("completed", [good]), ("in_progress", [])):
        page = app.ok("GET", f"{store}/files?filter={status}")
        assert [each["id"] for each in page["data"]] == expected
    assert app.ok("GET", store)["file_counts"]["failed"] == 1
    app.ok("DELETE", f"{store}/files/{bad}")
    assert app.ok("GET", store)["file_counts"]["failed"] == 0


def test_files_of_a_store_come_in_pages(app: ClockedApp, store: str) -> None:
    """`after` and `before` walk through the files once; other documents are not there."""
    ids = [app.upload(b"fox %d" % number)["id"] for number in range(5)]
    for file in ids:
        attach(app, store, file)
    app.rag_insert({"document_id": "d", "content": "no file"}, db=store.rpartition("/")[2])
    first = app.ok("GET", f"{store}/files?limit=3")
    assert [each["id"] for each in first["data"]] == ids[:1:-1]
    assert (first["has_more"], first["last_id"]) == (True, ids[2])
    rest = app.ok("GET", f"{store}/files?limit=3&after={ids[2]}")
    assert ([each["id"] for each in rest["data"]], rest["has_more"]) == ([ids[1], ids[0]], False)
    up = app.ok("GET", f"{store}/files?order=asc&before={ids[2]}")
    assert [each["id"] for each in up["data"]] == ids[:2]


def test_an_unknown_place_in_a_list_is_bad_input(app: ClockedApp, store: str) -> None:
    """Every list answers 400 to an `after` or `before` that it does not hold, and names it.

    If this fails: 404 tells a client that the store is gone, where only its cursor is stale.
    """
    file = app.upload(b"fox")["id"]
    batch = app.ok("POST", f"{store}/file_batches", {"file_ids": [file]})["id"]
    app.read(store, file)
    lists = (f"{store}/files", f"{store}/file_batches/{batch}/files", STORES, "/v1/files")
    for path, end in [(path, end) for path in lists for end in ("after", "before")]:
        if (path, end) != ("/v1/files", "before"):  # which OpenAI's list of files does not take
            assert app.refused(400, "GET", f"{path}?{end}=file-0")["param"] == end, path


def test_a_list_goes_on_while_its_objects_are_deleted(app: ClockedApp) -> None:
    """Who deletes all that a list yields sees all of it: `after` names what is deleted by then.

    OpenAI's client pages with the last id of a page. If this fails: a loop that cleans up ends
    after its first page, with a 400.
    """
    store = f"{STORES}/{app.create_store(name='first')['id']}"
    for number in range(5):
        file = app.upload(b"fox %d" % number)["id"]
        app.ok("POST", f"{store}/files", {"file_id": file})
        app.read(store, file)
        app.create_store(name=f"store-{number}")
    for path, there in ((f"{store}/files", 5), ("/v1/files", 5), (STORES, 6)):
        deleted, after, more = [], "", True
        while more:
            page = app.ok("GET", f"{path}?limit=2{after}")
            for each in page["data"]:
                app.ok("DELETE", f"{path}/{each['id']}")
                deleted.append(each["id"])
            after, more = f"&after={page['last_id']}", page["has_more"]
        assert len(set(deleted)) == len(deleted) == there, path
        assert app.ok("GET", path)["data"] == []


def test_a_store_is_made_with_its_files(app: ClockedApp) -> None:
    """`file_ids` of a new store are attached to it; an unknown one leaves no store."""
    ids = [app.upload(b"fox %d" % number)["id"] for number in range(3)]
    created = app.create_store(file_ids=ids, chunking_strategy=STATIC)
    path = f"{STORES}/{created['id']}"
    assert created["file_counts"]["total"] == 3
    for file in ids:
        assert app.read(path, file)["chunking_strategy"] == STATIC
    assert sorted(app.texts(created["id"], "fox")) == ["fox 0", "fox 1", "fox 2"]
    error = app.refused(404, "POST", STORES, {"file_ids": [*ids, "file-unknown"]})
    assert error["param"] == "file_ids[3]"
    wrong = app.upload(b"x", purpose="batch")["id"]
    error = app.refused(400, "POST", STORES, {"file_ids": [wrong]})
    assert error["param"] == "file_ids[0]"
    assert [each["id"] for each in app.ok("GET", STORES)["data"]] == [created["id"]]


def test_a_batch_is_watched_as_one(app: ClockedApp, store: str) -> None:
    """A batch counts its files, lists them, and each has the settings that it was sent with."""
    ids = [app.upload(b"fox %d" % number)["id"] for number in range(4)]
    files = [{"file_id": file, "attributes": {"n": place}} for place, file in enumerate(ids)]
    begun = VectorStoreFileBatch.model_validate(
        app.ok("POST", f"{store}/file_batches", {"files": files})
    )
    assert begun.file_counts.total == 4
    path = f"{store}/file_batches/{begun.id}"
    for file in ids:
        app.read(store, file)
    done = VectorStoreFileBatch.model_validate(app.ok("GET", path))
    assert (done.status, done.file_counts.completed) == ("completed", 4)
    listed = app.ok("GET", f"{path}/files?order=asc")
    assert [each["attributes"]["n"] for each in listed["data"]] == [0, 1, 2, 3]
    assert [each["id"] for each in app.ok("GET", f"{path}/files?filter=failed")["data"]] == []
    cancelled = VectorStoreFileBatch.model_validate(app.ok("POST", f"{path}/cancel"))
    assert cancelled.file_counts.completed == 4  # what is done stays
    alias = f"/v1/openai{store}/file_batches/{begun.id}/files"
    assert len(app.ok("GET", alias)["data"]) == 4


def test_a_file_in_progress_says_when_to_ask_again(app: ClockedApp, store: str) -> None:
    """The header that the clients' `..._and_poll` go by is there until a file is read."""
    file = app.upload(TEXT.encode() * 50, "foxes.md")["id"]
    app.ok("POST", f"{store}/files", {"file_id": file})
    shown = app.send("GET", f"{store}/files/{file}")
    if shown.json()["status"] == "in_progress":
        assert int(shown.headers["openai-poll-after-ms"]) > 0
    app.read(store, file)
    assert "openai-poll-after-ms" not in app.send("GET", f"{store}/files/{file}").headers


def bad_strategy(size: Any, overlap: Any) -> Json:
    """Return a strategy of sizes that are out of range."""
    return {
        "type": "static",
        "static": {"max_chunk_size_tokens": size, "chunk_overlap_tokens": overlap},
    }


BAD: list[tuple[str, Json, str]] = [
    ("files", {}, "file_id"),
    ("files", {"chunking_strategy": bad_strategy(99, 0)}, "max_chunk_size_tokens"),
    ("files", {"chunking_strategy": bad_strategy(4097, 0)}, "max_chunk_size_tokens"),
    ("files", {"chunking_strategy": bad_strategy(800, 401)}, "chunking_strategy.static"),
    ("files", {"chunking_strategy": {"type": "best"}}, "chunking_strategy"),
    ("files", {"attributes": {f"k{n}": 1 for n in range(17)}}, "attributes"),
    ("files", {"attributes": {"k": "v" * 513}}, "attributes.k"),
    ("files", {"attributes": {"k": [1]}}, "attributes.k"),
    ("files", {"attributes": {"file_id": "x"}}, "attributes"),
    ("files", {"atributes": {}}, "atributes"),
    ("file_batches", {}, ""),
    ("file_batches", {"file_ids": []}, "file_ids"),
    ("file_batches", {"files": [{"file_id": "x"}], "file_ids": ["x"]}, ""),
    ("file_batches", {"file_ids": [f"file-{n}" for n in range(2001)]}, "file_ids"),
    ("file_batches", {"files": [{"attributes": {}}]}, "files[0].file_id"),
]


def test_bad_files_are_refused(app: ClockedApp, store: str) -> None:
    """Each is a 400 that names the field, and nothing is attached."""
    file = app.upload(b"the fox")["id"]
    for below, body, param in BAD:
        named = {"file_id": file} if below == "files" and param != "file_id" else {}
        error = app.refused(400, "POST", f"{store}/{below}", {**named, **body})
        assert param in (error["param"] or "")
    assert app.ok("GET", f"{store}/files")["data"] == []


def test_wrong_purposes_and_unknown_files_are_refused(app: ClockedApp, store: str) -> None:
    """A file for another purpose is a 400, an unknown one a 404; a batch takes all or none."""
    good, wrong = app.upload(b"x")["id"], app.upload(b"x", purpose="batch")["id"]
    assert "purpose" in app.refused(400, "POST", f"{store}/files", {"file_id": wrong})["message"]
    assert app.refused(404, "POST", f"{store}/files", {"file_id": "file-0"})["param"] == "file_id"
    for ids, status in (([good, wrong], 400), ([good, "file-0"], 404), ([good, good], 400)):
        error = app.refused(status, "POST", f"{store}/file_batches", {"file_ids": ids})
        assert error["param"] == "file_ids[1]"
        files = {"files": [{"file_id": each} for each in ids]}
        error = app.refused(status, "POST", f"{store}/file_batches", files)
        assert error["param"] == "files[1].file_id"
    assert app.ok("GET", f"{store}/files")["data"] == []
    for path in ("/files/file-0", "/files/file-0/content", "/file_batches/vsfb_0"):
        app.refused(404, "GET", store + path)
    app.refused(404, "POST", f"{STORES}/vs_0/files", {"file_id": good})


def test_under_the_alias_files_are_read_at_once(app: ClockedApp) -> None:
    """Llama Stack's clients cannot wait, so the answer does; an unknown file fails."""
    alias = "/v1/openai/v1/vector_stores"
    good = app.upload(b"the fox", "fox.txt")["id"]
    store = app.ok("POST", alias, {"name": "a", "file_ids": [good, "nope"]})
    assert (store["file_counts"]["completed"], store["file_counts"]["failed"]) == (1, 1)
    path = f"{alias}/{store['id']}/files"
    again = app.ok("POST", path, {"file_id": good, "attributes": {"a": "b"}})
    assert (again["status"], again["chunking_strategy"]) == ("completed", {"type": "auto"})
    content = app.ok("GET", f"{path}/{good}/content")
    assert (content["content"][0]["text"], content["filename"]) == ("the fox", "fox.txt")
    assert content["attributes"] == {"a": "b"}
    assert {each["id"] for each in app.ok("GET", path)["data"]} == {good, "nope"}


def test_a_snapshot_holds_what_files_have_become(app: ClockedApp, store: str) -> None:
    """The documents of a restored store are found and listed; its files are attached again.

    The import says so. A file that is attached again takes the place of its document, and detaching
    it leaves nothing.

    If this fails: a restored store has each document twice, or some that nobody can delete.
    """
    file = app.upload(TEXT.encode(), "foxes.md")["id"]
    attach(app, store, file, attributes={"topic": "foxes"})
    content = app.send("GET", f"/v1/snapshots/{store.rpartition('/')[2]}").content
    sent = {"content": content, "headers": {"content-type": "application/zip"}}
    reply = app.send("POST", "/v1/snapshots", params={"vector_db_id": "again"}, **sent).json()
    assert "files: 1." in reply["notes"][0]
    again, documents = f"{STORES}/again", "/v1/vector-dbs/again/documents"
    wanted = {"type": "eq", "key": "topic", "value": "foxes"}
    found = app.search("again", "where does the fox live?", filters=wanted)["data"][0]
    assert (found["file_id"], found["filename"]) == (file, "foxes.md")
    assert app.ok("GET", f"{again}/files")["data"] == []
    assert app.ok("GET", again)["file_counts"]["total"] == 0
    assert app.refused(404, "DELETE", f"{again}/files/{file}")["param"] == "file_id"
    before = app.ok("GET", documents)["data"]
    attach(app, again, file, attributes={"topic": "foxes"})
    assert [each["document_id"] for each in before] == [
        each["document_id"] for each in app.ok("GET", documents)["data"]
    ]
    assert app.ok("GET", again)["file_counts"]["completed"] == 1
    app.ok("DELETE", f"{again}/files/{file}")
    assert app.ok("GET", documents)["data"] == []
