"""Documents that want to be more than text: the console runs and fetches nothing of theirs."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import httpx
import pytest

from ..bench.report.headless import Browser
from .console import address, ask_path, hits, wait
from .harness import live_server, run_config

RUN = "window.taken = 1"
HTML = [
    "<script>{run}</script><script src='{there}/a.js'></script>",
    "<img src='{there}/a.png' onerror='{run}'><image href='{there}/b.png'>",
    "<svg onload='{run}'><use href='{there}/a.svg#x'/><script>{run}</script></svg>",
    "<iframe src='{there}/frame' srcdoc='<script>parent.{run}</script>'></iframe>",
    "<link rel=stylesheet href='{there}/a.css'><style>@import '{there}/b.css';</style>",
    "<meta http-equiv=refresh content='0;url={there}'><base href='{there}/'>",
    "<form action='{there}'><button autofocus onfocus='{run}'>x</button></form>",
    "</div></section></main><video src='{there}/a.mp4' autoplay><object data='{there}/o'>",
]
MARKDOWN = [
    "![picture]({there}/a.png) ![x][ref]\n\n[ref]: {there}/b.png",
    "[link](javascript:{run}) [tab](java\tscript:{run}) <javascript:{run}>",
    "[data](data:text/html,<script>{run}</script>) [file](file:///etc/passwd)",
    "[![picture]({there}/a.png)](javascript:{run})",
    "| <img src={there}/t.png onerror='{run}'> |\n|---|\n| [x](javascript:{run}) |",
    "```html\n<script>{run}</script>\n```\n\n    <img src={there}/code.png>",
    "# <img src={there}/h.png onerror={run}>\n\n- <svg onload={run}>\n- **<b onclick={run}>**",
    "[x](<javascript:{run}> \"' onmouseover='{run}\") &lt;script&gt;{run}&lt;/script&gt;",
]
NAMES = [
    "plain.md",
    "<img src='{there}/name.png' onerror='{run}'>.md",
    "\u202e<script>{run}</script>.md",
]
VIEWS = ("", "&view=chunks", "&view=about")


class Listener(socketserver.ThreadingTCPServer):
    """Counts the connections to another host, which documents would like to reach."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.count = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def process_request(self, request: object, client_address: object) -> None:
        """Count a connection and close it."""
        self.count += 1
        self.close_request(request)  # type: ignore[arg-type]  # a socket: the base class says more


@pytest.fixture
def listener() -> Iterator[Listener]:
    """Yield a host that counts who connects to it."""
    with Listener() as started:
        thread = threading.Thread(target=started.serve_forever)
        thread.start()
        yield started
        started.shutdown()
        thread.join()


def test_nothing_of_a_hostile_document_is_run_or_fetched(
    tmp_path: Path, browser: Browser, listener: Listener
) -> None:
    """48 documents of HTML, SVG, Markdown and names leave no request, no script and no such link.

    If this fails: an author of a document acts as the people who look at it, or learns who does.
    """
    pairs = list(product([*HTML, *MARKDOWN], NAMES))
    filled = {"run": RUN, "there": listener.url}
    documents = [
        {
            "document_id": f"{n}/{name.format(**filled)}"[:200],
            "content": "hostile " + text.format(**filled),
            "metadata": {"filename": name.format(**filled), "title": text.format(**filled)[:200]},
        }
        for n, (text, name) in enumerate(pairs)
    ]
    assert len(documents) >= 40
    with live_server(run_config(), tmp_path) as url:
        with httpx.Client(base_url=url, timeout=60) as http:
            body = {"vector_db_id": "farm", "embedding_model": "hashing"}
            http.post("/v1/vector-dbs", json=body).raise_for_status()
            insert = {"vector_db_id": "farm", "documents": documents, "chunk_size_in_tokens": 512}
            http.post("/v1/tool-runtime/rag-tool/insert", json=insert).raise_for_status()
        browser.open(url + ask_path("farm", "hostile", "why", "context", k=50), 1440)
        hits(browser)
        check(browser, url)
        browser.open(url + address("dbs", "farm", "documents"), 1440)
        wait(browser, "document.querySelectorAll('#documents tr').length === 25")
        check(browser, url)
        for document in documents:
            view = VIEWS[documents.index(document) % len(VIEWS)]
            path = address("dbs", "farm", "documents", str(document["document_id"]), x=1)
            browser.open(f"{url}{path}{view}", 1440)
            wait(browser, "document.querySelector('main .tabs') !== null")
            check(browser, url)
    assert listener.count == 0


def check(browser: Browser, url: str) -> None:
    """Check that a view has run and asked for nothing, and has no element or link of a document."""
    assert browser.evaluate("window.taken === undefined && document.title.startsWith('Corral')")
    others = "script, img, svg, image, iframe, link, style, base, video, object, embed"
    assert browser.evaluate(f"document.querySelectorAll('main :is({others})').length") == 0
    links = browser.evaluate("[...document.querySelectorAll('a')].map((one) => one.protocol)")
    assert set(links) <= {"http:"}
    assert [each for each in browser.requests if not each.startswith(f"{url}/")] == []
    assert browser.errors == []
