"""Documents and names that want to be more than text: the console runs and fetches nothing."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import httpx
import pytest

from ..bench.report.headless import Browser
from ..chat_service import running_chat, said
from ..providers.ingestion.hostile_pdfs import raw_pdf, stream
from .console import (
    address,
    ask_path,
    click,
    create_key,
    hits,
    mark_right,
    sign_in,
    store,
    wait,
)
from .harness import live_server, run_config
from .openai.answers import with_model
from .test_console_sources import upload

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

# Entries of a PDF's catalog and of its page. The objects from 5 on are below.
PDFS = {
    "a script on opening": ("/OpenAction 5 0 R", ""),
    "a link on opening": ("/OpenAction<</S/URI/URI({there}/open)>>", ""),
    "scripts by name": ("/Names<</JavaScript<</Names[(a)5 0 R]>>>>", ""),
    "a script of the page": ("", "/AA<</O 5 0 R/C 5 0 R>>"),
    "a link": ("", "/Annots[<</Subtype/Link/Rect[0 0 600 800]/A<</S/URI/URI({there}/a)>>>>]"),
    "a program": ("", "/Annots[<</Subtype/Link/Rect[0 0 600 800]/A<</S/Launch/F({there}/p)>>>>]"),
    "another document": ("/OpenAction<</S/GoToR/D[0/Fit]/F<</FS/URL/F({there}/o.pdf)>>>>", ""),
    "a form to send": ("/OpenAction<</S/SubmitForm/F<</FS/URL/F({there}/form)>>/Flags 4>>", ""),
    "a form of XML": ("/AcroForm<</Fields[]/XFA 6 0 R>>", ""),
    "a file in it": (
        "/Names<</EmbeddedFiles<</Names[(a.html)<</F(a.html)/EF<</F 6 0 R>>>>]>>>>",
        "/Annots[<</Subtype/FileAttachment/Rect[9 9 90 90]/FS<</F(a.html)/EF<</F 6 0 R>>>>>>]",
    ),
    "a picture elsewhere": ("", "/Thumb 7 0 R"),
    "a film": ("", "/Annots[<</Subtype/Movie/Rect[9 9 90 90]/Movie<</F({there}/f.mp4)>>>>]"),
}


DRAWN = b"BT/F1 18 Tf 72 700 Td(hostile <script>words</script>)Tj ET q 9 0 0 9 0 0 cm/I Do Q"


def hostile_pdf(catalog: str, page: str, filled: dict[str, str]) -> bytes:
    """Return a PDF of a page with a picture of another host, and with these entries."""
    fonts = "/Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>"
    box = "/MediaBox[0 0 600 800]/Contents 4 0 R"
    pdf = raw_pdf(
        f"<</Type/Catalog/Pages 2 0 R{catalog}>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        f"<</Type/Page/Parent 2 0 R{box}/Resources<<{fonts}/XObject<</I 7 0 R>>>>{page}>>",
        stream(DRAWN),
        "<</S/JavaScript/JS(app.launchURL\\('{there}/js'\\); {run})>>",
        stream(HTML[0].format(**filled).encode()),
        "<</Type/XObject/Subtype/Image/Width 9/Height 9/ColorSpace/DeviceRGB/BitsPerComponent 8"
        "/F<</FS/URL/F({there}/i.png)>>/FFilter/DCTDecode/Length 0>>stream\n\nendstream",
    )
    for name, value in filled.items():
        pdf = pdf.replace(f"{{{name}}}".encode(), value.encode())
    return pdf


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


def test_a_hostile_pdf_is_a_picture(tmp_path: Path, browser: Browser, listener: Listener) -> None:
    """Of its scripts, links, forms, files and pictures elsewhere nothing is run, linked or fetched.

    If this fails: the server or the browser does what a PDF says.
    """
    filled = {"run": RUN, "there": listener.url}
    with live_server(run_config(), tmp_path) as url, httpx.Client(base_url=url, timeout=60) as http:
        body = {"vector_db_id": "farm", "embedding_model": "hashing"}
        http.post("/v1/vector-dbs", json=body).raise_for_status()
        for number, (name, (catalog, page)) in enumerate(PDFS.items()):
            shown = f"{NAMES[number % len(NAMES)].format(**filled)} {name}.pdf"
            document = upload(http, shown, hostile_pdf(catalog, page, filled))
            browser.open(url + address("dbs", "farm", "documents", document), 1440)
            wait(browser, "document.querySelector('.page img')?.naturalWidth === 1200")
            check(browser, url, pictures=1)
            browser.open(url + address("dbs", "farm", "documents", document, view="text"), 1440)
            text = wait(browser, "document.querySelector('.chunk')?.textContent")
            assert "hostile <script>words</script>" in text
            check(browser, url)
    assert listener.count == 0


def test_hostile_names_are_text(tmp_path: Path, browser: Browser, listener: Listener) -> None:
    """Of vector DBs, questions, judgments, tenants, users and jobs, in each view that has them.

    A set of judgments cannot have such a name.
    """
    hostile = f"<img src='{listener.url}/n.png' onerror='{RUN}'>"
    key = create_key(tmp_path, "admin")
    create_key(tmp_path, "reader", "--tenant", hostile[:60], "--group", "<b>")
    with live_server(run_config(), tmp_path) as url:
        headers = {"authorization": f"Bearer {key}"}
        with httpx.Client(base_url=url, timeout=60, headers=headers) as http:
            body = {"vector_db_id": hostile, "embedding_model": "hashing"}
            http.post("/v1/vector-dbs", json=body).raise_for_status()
            document = {
                "document_id": hostile,
                "content": f"{hostile} is a long name of a document.",
                "metadata": {"title": hostile, hostile: hostile},
            }
            jobs = {"vector_db_id": hostile, "documents": [document]}
            http.post("/v1/jobs", json=jobs).raise_for_status()
            http.post("/v1/keys", json={"user": hostile}).raise_for_status()
            named = {"vector_db_id": hostile, "name": hostile}
            assert http.post("/v1/judgments", json=named).status_code == 400
        browser.open(f"{url}/ui/jobs", 1440)
        sign_in(browser, key, stays=True)
        wait(browser, "document.querySelector('#all-jobs .completed') !== null")
        browser.errors.clear()  # of the requests without a key
        check(browser, url)
        browser.open(url + ask_path(hostile, hostile, "why", "context", "options", "copies"), 1440)
        hits(browser)
        mark_right(browser)
        check(browser, url)
        views = {
            address("dbs"): "#register-form",
            address("dbs", hostile, "documents"): "#documents tr",
            address("dbs", hostile, "settings"): "main .facts dd",
            address("dbs", hostile, "evaluate"): "#questions tr",
            address("keys"): "#keys tr:nth-child(3)",
            address("dbs", hostile, hostile): "main h1",
        }
        for path, part in views.items():
            browser.open(url + path, 1440)
            wait(browser, f"document.querySelector({part!r}) !== null")
            if part == "#questions tr":
                click(browser, "Suggest questions")
                wait(browser, "document.getElementById('suggested-by') !== null")
            check(browser, url)
        browser.evaluate("sessionStorage.clear()")
    assert listener.count == 0


def test_a_hostile_answer_is_text(
    tmp_path: Path, browser: Browser, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Markup, links and pictures in a language model's answer are shown as text.

    If this fails: a document makes the answer carry what was asked to another host.
    """
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    filled = {"run": RUN, "there": listener.url}
    answer = "\n\n".join([*HTML, *MARKDOWN]).format(**filled)
    with running_chat() as service:
        service.scripts = [said(answer[:99], answer[99:], " [1]")]
        with live_server(with_model(service), tmp_path) as url:
            store(url, "farm", *(f"The sheep of farm {n} eat hay in winter." for n in range(9)))
            browser.open(url + ask_path("farm", "what do the sheep of farm 3 eat?"), 1440)
            wait(browser, "document.querySelector('.answered[aria-busy=false] sup a') !== null")
            shown = browser.evaluate("document.getElementById('answer').textContent")
            assert all(part in shown for part in ("<script>", "![picture]", "javascript:"))
            check(browser, url)
            browser.open(url + address("dbs", "farm", "evaluate"), 1440)
            click(browser, "Suggest questions")
            wait(browser, "document.getElementById('suggested-by') !== null")
            check(browser, url)
    assert listener.count == 0


def check(browser: Browser, url: str, pictures: int = 0) -> None:
    """Check that a view has run and asked for nothing, and has no element or link of a document.

    Args:
        browser: The browser with the view.
        url: The server's address.
        pictures: Number of pictures of pages, which come from the server.
    """
    assert browser.evaluate("window.taken === undefined && document.title.startsWith('Corral')")
    others = "script, img, image, iframe, link, style, base, video, object, embed"
    count = f"[...document.querySelectorAll('main :is({others}), main svg')].filter((one) =>"
    count += " !one.closest('.page') || !one.matches('img[src^=\"data:image/png\"], svg')).length"
    assert browser.evaluate(count) == 0
    assert browser.evaluate("document.querySelectorAll('.page img').length") == pictures
    links = browser.evaluate("[...document.querySelectorAll('a')].map((one) => one.protocol)")
    assert set(links) <= {"http:"}
    assert [each for each in browser.requests if not each.startswith(f"{url}/")] == []
    assert browser.errors == []
