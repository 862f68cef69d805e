"""Pages of PDFs over HTTP: who may see them, and what is not a page."""

from __future__ import annotations

import io
from typing import Any

import pytest
from reportlab.pdfgen.canvas import Canvas

from corral.api.principal import Role

from .harness import InProcess, message_of, wait_until
from .secured import Holder, holder

pytest.importorskip("pypdfium2")

LINES = ["The fence keeps the sheep in.", "The wire of a fence lasts 20 years."]
PICTURE, AREAS = "/v1/pages/picture", "/v1/pages/areas"


def pdf_of(*pages: str) -> bytes:
    """Return a PDF with the lines of each page."""
    file = io.BytesIO()
    canvas = Canvas(file, pagesize=(400, 600))
    for page in pages:
        for number, line in enumerate(page.split("\n")):
            canvas.drawString(40, 500 - 20 * number, line)
        canvas.showPage()
    canvas.save()
    return file.getvalue()


def attach(app: InProcess, data: bytes, name: str = "farm.pdf") -> str:
    """Upload a file, ingest it into `db`, and return its id, which is also its document's."""
    form: dict[str, Any] = {"files": {"file": (name, data)}, "data": {"purpose": "assistants"}}
    stored: str = app.send("POST", "/v1/files", **form).json()["id"]
    path = "/v1/vector_stores/db/files"
    assert app.send("POST", path, {"file_id": stored}).status_code == 200
    wait_until(lambda: app.ok("GET", f"{path}/{stored}")["status"] == "completed")
    return stored


@pytest.fixture
def farm(app: InProcess) -> tuple[InProcess, str]:
    """Return the app with a PDF of two pages in `db`, and the id of its document."""
    app.register()
    return app, attach(app, pdf_of(*LINES))


def asked(document: str, /, **more: Any) -> str:
    """Return the query of a request for a page."""
    pairs = {"vector_db_id": "db", "document_id": document, **more}
    return "&".join(f"{name}={value}" for name, value in pairs.items())


def test_a_page_is_a_picture_with_the_area_of_a_chunk(farm: tuple[InProcess, str]) -> None:
    """The picture may be kept by the browser and by no proxy; the chunk is on its own page."""
    app, document = farm
    shown = app.send("GET", f"{PICTURE}?{asked(document, page=2, width=300)}")
    assert shown.content.startswith(b"\x89PNG")
    headers = shown.headers
    assert (headers["content-type"], headers["cache-control"]) == (
        "image/png",
        "private, max-age=300",
    )
    assert "authorization" in headers["vary"].lower()
    chunks = app.ok("GET", f"/v1/vector-dbs/db/documents/{document}")["chunks"]
    [second] = [each for each in chunks if "wire" in each["content"]]
    assert second["chunk_metadata"]["page"] in (1, 2)
    found = app.ok("GET", f"{AREAS}?{asked(document, page=2, chunk_id=second['chunk_id'])}")
    assert (found["page"], found["page_count"], len(found["areas"])) == (2, 2, 1)
    assert found["areas"][0]["left"] == pytest.approx(10, abs=1)
    assert app.ok("GET", f"{AREAS}?{asked(document)}")["areas"] == []


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ({"page": 3}, "page"),
        ({"page": 0}, "page"),
        ({"width": 99}, "width"),
        ({"width": 2001}, "width"),
        ({"document_id": "x"}, "document"),
        ({"vector_db_id": "x"}, "x"),
        ({"chunk_id": "loose"}, "chunk_id"),
        ({"chunk_id": "gone"}, "chunk"),
    ],
)
def test_bad_requests_are_refused(
    farm: tuple[InProcess, str], query: dict[str, Any], word: str
) -> None:
    """Each names what is wrong."""
    app, document = farm
    app.insert({"content": "straw", "chunk_id": "loose"})
    path = AREAS if "chunk_id" in query else PICTURE
    refused = app.send("GET", f"{path}?{asked(document, **query)}")
    assert refused.status_code == 400
    assert word in message_of(refused)


def test_what_is_no_uploaded_pdf_has_no_pages(farm: tuple[InProcess, str]) -> None:
    """A text, and a document that came with a request, say so."""
    app, _ = farm
    text = attach(app, b"The hay is dry.", "hay.txt")
    app.rag_insert({"document_id": "note", "content": "The hay is dry."})
    for document, word in ((text, "not a PDF"), ("note", "no pages")):
        refused = app.send("GET", f"{PICTURE}?{asked(document)}")
        assert refused.status_code == 400
        assert word in message_of(refused)


def test_only_who_may_read_all_of_a_document_sees_its_pages(farm: tuple[InProcess, str]) -> None:
    """A reader sees the page of a document that everyone may read, and none of another's.

    With one chunk hidden there is no picture, as a page shows everything on it. A chunk that only
    names the file as its own gives no picture either.
    """
    app, document = farm
    root = holder(app, "root", Role.ADMIN)
    ann, bob = holder(app, "ann"), holder(app, "bob", Role.WRITER)
    path = f"/v1/vector-dbs/db/documents/{document}"

    def statuses(query: str) -> list[int]:
        return [who.status("GET", f"{PICTURE}?{query}") for who in (root, ann, bob)]

    assert statuses(asked(document)) == [200, 200, 200]
    root.ok("PATCH", path, {"acl": ["user:ann"]})
    assert statuses(asked(document)) == [200, 200, 400]
    forged = {"content": "mine", "metadata": {"document_id": "forged", "file_id": document}}
    insert(bob, forged)
    assert statuses(asked("forged")) == [400, 400, 400]
    root.ok("PATCH", path, {"acl": ["tenant:*"]})
    hidden = {
        "content": "secret",
        "chunk_id": "s",
        "metadata": {"document_id": document},
        "acl": ["user:root"],
    }
    insert(root, hidden)
    assert statuses(asked(document))[1:] == [400, 400]


def insert(who: Holder, chunk: dict[str, Any]) -> None:
    """Insert a chunk into `db`."""
    who.ok("POST", "/v1/vector-io/insert", {"vector_db_id": "db", "chunks": [chunk]})


def test_code_comes_in_pieces_with_their_classes(app: InProcess) -> None:
    """The pieces of a chunk join to its text; a text that is not code has none."""
    app.register()
    code = "def feed(ewes):\n    return ewes * 2.5  # kilos of hay\n"
    for name, text in (("feed.py", code), ("hay.md", "The **hay** is dry.")):
        document = {"document_id": name, "content": text, "metadata": {"filename": name}}
        app.rag_insert(document)
    shown = app.ok("GET", "/v1/vector-dbs/db/documents/feed.py?colors=true")
    [pieces] = shown["colors"]
    assert "".join(text for _, text in pieces) == shown["chunks"][0]["content"]
    assert ["keyword", "def"] in pieces
    assert ["name", "feed"] in pieces
    assert ["comment", "# kilos of hay"] in pieces
    assert "colors" not in app.ok("GET", "/v1/vector-dbs/db/documents/feed.py")
    assert "colors" not in app.ok("GET", "/v1/vector-dbs/db/documents/hay.md?colors=true")


MARKDOWN = """# Hay

1. Count:

   ~~~js title="count"
   let ewes = 40;

     ewes += 1;
   ~~~

```no-such-language
hay
```

```python
def feed("""


def test_code_in_markdown_comes_in_pieces(app: InProcess) -> None:
    """Blocks of known languages, without their indentation, and one that the text ends in.

    A text without such a block has none, and neither is sent unless asked for.
    """
    app.register()
    for name, text in (("feed.md", MARKDOWN), ("hay.md", "The `hay` is ```dry```.")):
        app.rag_insert({"document_id": name, "content": text, "metadata": {"filename": name}})
    path = "/v1/vector-dbs/db/documents/feed.md"
    [blocks] = app.ok("GET", f"{path}?colors=true")["code_blocks"]
    texts = ["".join(text for _, text in pieces) for pieces in blocks]
    assert texts == ["let ewes = 40;\n\n  ewes += 1;", "def feed("]
    assert [blocks[0][0], blocks[1][0]] == [["keyword", "let"], ["keyword", "def"]]
    assert "code_blocks" not in app.ok("GET", path)
    assert "code_blocks" not in app.ok("GET", "/v1/vector-dbs/db/documents/hay.md?colors=true")
