"""Citations: what they call a document, and the page that they link to."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from click.testing import CliRunner

from corral.api.principal import Role
from corral.server.cli.cli import main

from ..bench.report.headless import Browser
from .console import fill, wait
from .harness import InProcess, Json, live_server, message_of, run_config, wait_until
from .secured import Holder, holder, nobody

HTML = {"accept": "text/html,*/*;q=0.8"}
WINTER = "The ewes are fed hay & oats in <winter>."
HOSTILE = "<script>document.title='taken'</script><img src=x onerror=alert(1)></mark></pre>"
FLOCK = "\n\n".join(
    " ".join([text] * 8)
    for text in ("Sheep graze on the northern hill.", f"{WINTER} {HOSTILE}", "Lambs are born.")
)


def upload(app: InProcess, name: str, text: str | bytes, db: str = "db") -> str:
    """Upload a file into a vector DB, wait until it is stored, and return its id."""
    file = {"file": (name, text.encode() if isinstance(text, str) else text)}
    stored = app.send("POST", "/v1/files", files=file, data={"purpose": "assistants"}).json()
    file_id: str = stored["id"]
    app.ok("POST", f"/v1/vector_stores/{db}/files", {"file_id": file_id})

    def is_stored() -> bool:
        shown = app.ok("GET", f"/v1/vector_stores/{db}/files/{file_id}")
        return bool(shown["status"] == "completed")

    wait_until(is_stored)
    return file_id


def cite(app: InProcess | Holder, question: str, db: str = "db") -> Json:
    """Return the first citation of the RAG tool, with the line of the context in `line`."""
    config = {"citations": True, "max_chunks": 1, "mode": "keyword"}
    body = {"content": question, "vector_db_ids": [db], "query_config": config}
    found = app.ok("POST", "/v1/tool-runtime/rag-tool/query", body)
    line = found["content"][1]["text"].split("\n")[0]
    return {**found["metadata"]["citations"][0], "line": line}


def path_of(url: str) -> str:
    """Return the part of an address behind the host, without the fragment."""
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


def marked(page: str) -> str:
    """Return the marked passage of a page."""
    found = re.findall(r'<mark id="passage">(.*?)</mark>', page, re.DOTALL)
    assert len(found) == 1, page
    return unescape(found[0])


def call(app: InProcess, name: str, **arguments: Any) -> Any:
    """Call a tool as agents do."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    body = {"id": "1", "type": "function", "function": function}
    return json.loads(app.ok("POST", "/v1/tools/openai/call", body)["content"])


def test_an_uploaded_file_is_cited_by_its_name(app: InProcess) -> None:
    """On every road the file's name, never the id that the server gave it.

    If this fails: a reader is told that `file-e0e3...` says so.
    """
    app.register()
    file_id = upload(app, "winter plan.txt", "Hay is stored dry in the barn.")
    cited = cite(app, "hay")
    assert cited["line"] == "[1] Source: winter plan.txt, line 1"
    assert (cited["title"], cited["document_id"]) == ("winter plan.txt", file_id)
    found = app.ok("POST", "/v1/vector_stores/db/search", {"query": "hay"})
    assert found["data"][0]["filename"] == "winter plan.txt"
    for tool, arguments in (("search", {"query": "hay"}), ("rag_query", {"question": "hay"})):
        answer = call(app, tool, **arguments)
        [one] = answer["results"] if tool == "search" else answer["citations"]
        assert one["title"] == "winter plan.txt"
        assert marked(app.send("GET", path_of(one["url"])).text) == "Hay is stored dry in the barn."
    fetched = call(app, "fetch", id=f"db/{file_id}")
    assert fetched["title"] == "winter plan.txt"
    assert '<h1 dir="auto">winter plan.txt</h1>' in app.send("GET", path_of(fetched["url"])).text
    [listed] = app.ok("GET", "/v1/vector-dbs/db/documents?names=true")["data"]
    assert listed == {"document_id": file_id, "chunk_count": 1, "name": "winter plan.txt"}
    dify = {"knowledge_id": "db", "query": "hay", "retrieval_setting": {"top_k": 1}}
    assert app.ok("POST", "/v1/dify/retrieval", dify)["records"][0]["title"] == "winter plan.txt"
    metadata = app.rag_query("hay")["metadata"]
    assert metadata["filenames"] == ["winter plan.txt"]


def test_a_document_on_the_web_is_cited_by_its_address(app: InProcess) -> None:
    """Its URL stays the link, and its title is the name."""
    app.register()
    about = {"title": "Winter", "source": "https://farm.example/winter"}
    app.rag_insert({"document_id": "w", "content": "Hay is dry.", "metadata": about})
    cited = cite(app, "hay")
    assert cited["line"] == "[1] Source: Winter (https://farm.example/winter), line 1"
    assert (cited["title"], cited["url"]) == ("Winter", "https://farm.example/winter")


def test_the_link_of_a_citation_shows_the_passage(app: InProcess) -> None:
    """A page with the document's text, the cited chunks marked, everything else around them.

    If this fails: a person who follows a citation sees raw JSON, or cannot find the sentence.
    """
    app.register()
    app.rag_insert({"document_id": "flock/x", "content": FLOCK, "metadata": {"title": "A <b>"}})
    cited = cite(app, "ewes winter oats")
    asked = parse_qs(urlsplit(cited["url"]).query)
    assert urlsplit(cited["url"]).path == "/document"
    assert (asked["vector_db_id"], asked["document_id"]) == (["db"], ["flock/x"])
    assert cited["url"].endswith("#passage")
    shown = app.send("GET", path_of(cited["url"]), headers=HTML)
    assert (shown.status_code, shown.headers["content-type"]) == (200, "text/html; charset=utf-8")
    chunks = app.ok("GET", "/v1/vector-dbs/db/documents/flock%2Fx")["chunks"]
    assert len(chunks) > 2
    [passage] = [c["content"] for c in chunks if c["chunk_id"] in asked["chunk_id"]]
    assert marked(shown.text) == passage
    text = unescape(re.sub("</?mark[^>]*>", "", shown.text.partition('<pre dir="auto">')[2]))
    assert text.startswith(f"{FLOCK}</pre>")
    assert '<h1 dir="auto">A &lt;b&gt;</h1>' in shown.text
    assert WINTER in marked(shown.text)


def test_a_passage_of_a_table_is_marked_without_its_repeated_header(app: InProcess) -> None:
    """Each part of a long table marks its own rows, though its chunk repeats the header.

    If this fails: the mark begins in the rows before, by as many characters as the header has.
    """
    app.register()
    table = "name,kept\n" + "".join(f"ewe {number},hill {number}\n" for number in range(60))
    app.rag_insert({"document_id": "t", "content": table, "mime_type": "text/csv"})
    chunks = app.ok("GET", "/v1/vector-dbs/db/documents/t")["chunks"]
    repeated = [chunk["chunk_metadata"]["repeated_characters"] or 0 for chunk in chunks]
    assert len(chunks) > 2
    assert min(repeated[1:]) > 0
    for chunk, skipped in zip(chunks, repeated, strict=True):
        query = urlencode({"vector_db_id": "db", "document_id": "t", "chunk_id": chunk["chunk_id"]})
        page = app.send("GET", f"/document?{query}").text
        assert marked(page) == chunk["content"][skipped:]


def test_a_document_is_never_markup_on_its_page(app: InProcess) -> None:
    """Text, title, source and ids are escaped, and the policy runs and loads nothing of others.

    If this fails: whoever can put in a document can act as whoever follows a citation.
    """
    db = '"><script>1</script>'
    app.register(db)
    about = {
        "title": HOSTILE,
        "source": 'https://x.example/"onmouseover="alert(1)',
        "url": "javascript:alert(1)",
    }
    app.rag_insert({"document_id": HOSTILE, "content": FLOCK, "metadata": about}, db=db)
    query = urlencode({"vector_db_id": db, "document_id": HOSTILE})
    shown = app.send("GET", f"/document?{query}", headers=HTML)
    assert shown.status_code == 200
    for raw in ("<script", "<img", "javascript:alert", 'onmouseover="'):
        assert raw not in shown.text.replace("&quot;onmouseover=&quot;", "")
    policy = shown.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert shown.headers["cache-control"] == "no-store"
    query = urlencode({"vector_db_id": HOSTILE, "document_id": HOSTILE})
    refused = app.send("GET", f"/document?{query}", headers=HTML)
    assert refused.status_code == 404
    assert "<script" not in refused.text
    assert "<img" not in refused.text


def test_a_closed_document_does_not_exist_on_its_page(app: InProcess) -> None:
    """Who may not read it gets the answer for a document that is not there; others the page.

    If this fails: the page tells whoever knows a link what the permissions close.
    """
    admin = holder(app, "root", Role.ADMIN)
    admin.register(default_acl=["user:ann"])
    chunk = {"content": "sell the hill", "chunk_id": "c", "metadata": {"document_id": "plan"}}
    admin.ok("POST", "/v1/vector-io/insert", {"vector_db_id": "db", "chunks": [chunk]})
    ann, bob = holder(app, "ann"), holder(app, "bob")
    for query in ("document_id=plan", "document_id=plan&chunk_id=c", "chunk_id=c"):
        path = f"/document?vector_db_id=db&{query}"
        assert "sell the hill" in ann.send("GET", path, headers=HTML).text
        closed, absent = (
            bob.send("GET", path),
            bob.send("GET", path.replace("=c", "=d").replace("plan", "none")),
        )
        assert (closed.status_code, absent.status_code) == (404, 404)
        said = message_of(absent).replace("'none'", "'plan'").replace("'d'", "'c'")
        assert message_of(closed) == said
        page = bob.send("GET", path, headers=HTML)
        assert page.status_code == 404
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert int(page.headers["content-length"]) == len(page.content)
        assert "There is no" in page.text
        asked = nobody(app).send("GET", path, headers=HTML)
        assert (asked.status_code, "sell" in asked.text) == (401, False)
        assert 'id="key-form"' in asked.text
        assert nobody(app).send("GET", path).headers["content-type"] == "application/json"
    assert ann.send("GET", "/document?vector_db_id=other&document_id=plan").status_code == 404


@pytest.mark.parametrize(
    "query",
    ["", "vector_db_id=db", "vector_db_id=db&chunk_id=1&chunk_id=2&chunk_id=3",
     "vector_db_id=db&document_id=long&offset=-1", "document_id=long"],
)  # fmt: skip
def test_a_malformed_link_is_refused(app: InProcess, query: str) -> None:
    """400 with a message that names the parameter, as JSON and as a page."""
    app.register()
    for headers in ({}, HTML):
        assert app.send("GET", f"/document?{query}", headers=headers).status_code == 400


def test_a_long_document_comes_in_parts(app: InProcess) -> None:
    """The page begins near the passage, and links lead to the rest; nothing is lost between."""
    app.register()
    chunks = [
        {"content": f"line {n:03}", "chunk_id": f"c{n:03}", "metadata": {"document_id": "long"}}
        for n in range(450)
    ]
    app.insert(*chunks)
    path: str | None = "/document?vector_db_id=db&document_id=long"
    lines: list[str] = []
    while path:
        page = app.send("GET", path).text
        lines += re.findall(r"line \d{3}", page)
        later = re.search(r'<a href="([^"]*)">Later</a>', page)
        path = later and f"/{unescape(later[1])}"
    assert lines == [f"line {n:03}" for n in range(450)]
    near = app.send("GET", "/document?vector_db_id=db&document_id=long&chunk_id=c300").text
    assert marked(near) == "line 300"
    assert "Chunks 281 to 450 of 450." in near
    both = "/document?vector_db_id=db&document_id=long&chunk_id=c003&chunk_id=c005"
    assert marked(app.send("GET", both).text) == "line 003\n\nline 004\n\nline 005"
    gone = app.send("GET", "/document?vector_db_id=db&document_id=long&chunk_id=gone").text
    assert "no longer in this document" in gone
    past = app.send("GET", "/document?vector_db_id=db&document_id=long&offset=450")
    assert past.status_code == 404


def test_a_browser_shows_the_passage(tmp_path: Path, browser: Browser) -> None:
    """Without a key the link shows the passage; with one, the page asks for it and keeps it.

    If this fails: the link of a citation is dead on a server that has keys.
    """
    made = CliRunner().invoke(
        main, ["--home", str(tmp_path), "keys", "create", "page", "--role", "admin"]
    )
    [key] = [word for word in made.output.split() if word.startswith("corral")][:1]
    with InProcess(tmp_path) as app:
        bearer = Holder(app, key)
        bearer.register()
        documents = [{"document_id": "f", "content": FLOCK, "metadata": {"title": "Flock"}}]
        body = {"vector_db_id": "db", "documents": documents, "chunk_size_in_tokens": 64}
        bearer.ok("POST", "/v1/tool-runtime/rag-tool/insert", body)
        path = path_of(cite(bearer, "ewes winter oats")["url"])
    with live_server(run_config(), tmp_path) as url:
        browser.open(f"{url}{path}#passage", 360)
        wait(browser, "document.getElementById('key-form') !== null")
        message = "document.getElementById('message').textContent"
        assert browser.evaluate("document.title") == "This document needs an API key"
        fill(browser, "#key", "corral-wrong")
        browser.evaluate("document.getElementById('key-form').requestSubmit()")
        wait(browser, f"{message}.includes('not valid')")
        fill(browser, "#key", key)
        browser.evaluate("document.getElementById('key-form').requestSubmit()")
        wait(browser, "document.querySelector('mark') !== null")
        assert WINTER in browser.evaluate("document.querySelector('mark').textContent")
        assert browser.evaluate("document.title") == "Flock"
        assert browser.evaluate("document.querySelectorAll('main img, main script').length") == 0
        assert browser.evaluate("document.documentElement.scrollWidth") <= 360
        kept = "localStorage.length + sessionStorage.length + document.cookie.length"
        assert browser.evaluate(kept) == 0
        top = browser.evaluate("document.querySelector('mark').getBoundingClientRect().top")
        assert 0 <= top < 900
