"""Mails and archives over HTTP: documents below the container, on every road in and out."""

from __future__ import annotations

import base64
import io
import zipfile

from .harness import InProcess, Json, wait_until
from .test_citations import cite, upload


def archive(**files: str | bytes) -> bytes:
    """Return an archive; a name's underscore is its period."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in files.items():
            made.writestr(f"farm/{name.replace('_', '.')}", data)
    return out.getvalue()


def as_uri(data: bytes) -> Json:
    """Return the content of a document."""
    return {"uri": f"data:application/zip;base64,{base64.b64encode(data).decode()}"}


def ids(app: InProcess, db: str = "db") -> list[str]:
    """Return the ids of the documents of a vector DB."""
    return [each["document_id"] for each in app.ok("GET", f"/v1/vector-dbs/{db}/documents")["data"]]


def insert(app: InProcess, data: bytes, **more: object) -> Json:
    """Insert an archive as the document `a`."""
    document = {"document_id": "a", "content": as_uri(data), **more}
    body = {"vector_db_id": "db", "chunk_size_in_tokens": 64, "documents": [document]}
    reply: Json = app.ok("POST", "/v1/tool-runtime/rag-tool/insert", body)
    return reply


def test_an_inserted_archive_is_several_documents(app: InProcess) -> None:
    """The reply counts each; a new version drops what is gone; deleting it deletes all.

    If this fails: files of an archive are not found, or stay behind.
    """
    app.register("db")
    reply = insert(app, archive(hay_md="# Hay\n\nDry.", oats_txt="Oats.", pic_gif=b"GIF89a"))
    assert set(reply["chunks"]) == {"a", "a/farm/hay.md", "a/farm/oats.txt"}
    [skipped] = reply["unread"]["a"]
    assert skipped.startswith("farm/pic.gif (")
    insert(app, archive(hay_md="# Hay\n\nWet."))
    assert ids(app) == ["a", "a/farm/hay.md"]
    app.ok("POST", "/v1/tool-runtime/rag-tool/insert", {
        "vector_db_id": "db", "chunk_size_in_tokens": 64,
        "documents": [{"document_id": "a/other", "content": "Of another sender."}],
    })  # fmt: skip
    app.ok("DELETE", "/v1/vector-dbs/db/documents/a")
    assert ids(app) == ["a/other"]


def test_parts_have_the_acl_of_their_container(app: InProcess) -> None:
    """At the insert, and after a change.

    If this fails: an attachment is open to those who may not read its mail.
    """
    app.register("db")
    insert(app, archive(hay_md="Dry."), acl=["group:farm"], metadata={"year": 2026})

    def of_part() -> Json:
        shown: Json = app.ok("GET", "/v1/vector-dbs/db/documents/a/farm/hay.md")
        return shown

    assert of_part()["chunks"][0]["acl"] == ["group:farm"]
    assert of_part()["metadata"]["year"] == 2026
    app.ok("PATCH", "/v1/vector-dbs/db/documents/a", {"acl": ["group:mill"]})
    assert of_part()["chunks"][0]["acl"] == ["group:mill"]


def test_an_uploaded_archive_is_one_file_of_its_store(app: InProcess) -> None:
    """Its content has all texts, citations name file and path, and removing it removes all."""
    app.register("db")
    file_id = upload(app, "farm.zip", archive(hay_md="The hay is dry.", oats_txt="Oats."))
    assert ids(app) == [file_id, f"{file_id}/farm/hay.md", f"{file_id}/farm/oats.txt"]
    path = f"/v1/vector_stores/db/files/{file_id}"
    texts = [each["text"] for each in app.ok("GET", f"{path}/content")["data"]]
    assert "".join(texts) == "- farm/hay.md\n- farm/oats.txtThe hay is dry.Oats."
    cited = cite(app, "dry hay")
    assert cited["title"] == "farm.zip/farm/hay.md"
    found = app.ok("POST", "/v1/vector_stores/db/search", {"query": "dry hay"})["data"][0]
    assert (found["file_id"], found["filename"]) == (file_id, "farm.zip/farm/hay.md")
    app.ok("POST", path, {"attributes": {"year": 2026}})
    assert app.ok("GET", "/v1/vector-dbs/db/documents/" + ids(app)[1])["metadata"]["year"] == 2026
    app.ok("DELETE", path)
    assert ids(app) == []


def test_a_job_with_an_archive_is_one_job(app: InProcess) -> None:
    """It ends with what was not read in its notes; the same archive again is unchanged."""
    app.register("db")
    document = {"document_id": "a", "content": as_uri(archive(hay_md="Dry.", id_rsa="secret"))}
    body = {"vector_db_id": "db", "documents": [document], "skip_unchanged": True}
    [job] = app.ok("POST", "/v1/jobs", body)["jobs"]

    def is_done() -> bool:
        state = app.ok("GET", f"/v1/jobs/{job['job_id']}")
        return bool(state["status"] == "completed")

    wait_until(is_done)
    done = app.ok("GET", f"/v1/jobs/{job['job_id']}")
    assert done["notes"] == []
    assert done["progress"]["characters"] == done["progress"]["characters_total"]
    assert ids(app) == ["a", "a/farm/hay.md", "a/farm/id.rsa"]
    assert app.ok("POST", "/v1/jobs", body)["unchanged"] == ["a"]


def test_an_archive_of_what_cannot_be_read_is_refused(app: InProcess) -> None:
    """Nothing of it is stored."""
    app.register("db")
    document = {"document_id": "a", "content": as_uri(archive(one_gif=b"GIF89a\0"))}
    body = {"vector_db_id": "db", "chunk_size_in_tokens": 64, "documents": [document]}
    refused = app.send("POST", "/v1/tool-runtime/rag-tool/insert", body)
    assert refused.status_code == 400
    assert "None of its 1 files can be read: farm/one.gif" in refused.text
    assert ids(app) == []
