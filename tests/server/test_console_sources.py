"""Sources in the console: a PDF on its page, code in colors, tables; and for whom they are."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..bench.report.headless import INSTALLED, Browser
from .console import address, click, fill, keep, wait
from .harness import live_server, run_config, wait_until
from .test_pdf_pages import pdf_of

pytest.importorskip("pypdfium2")

CODE = "def feed(ewes):\n    return ewes * 2.5  # kilos <b>of</b> hay\n"
TABLE = "# Hay\n\n| barn | bales |\n|---|---|\n| north | 40 |\n"
PDF_PAGES = (
    "The fence keeps the sheep in at night.\nIt is checked each spring,\nbefore the lambs go out.",
    "The wire of the fence lasts 20 years.\nA post of oak lasts 15 years.",
)


def upload(http: httpx.Client, name: str, data: bytes) -> str:
    """Upload a file, ingest it into `farm`, and return its id."""
    form: dict[str, Any] = {"files": {"file": (name, data)}, "data": {"purpose": "assistants"}}
    stored: str = http.post("/v1/files", **form).json()["id"]
    path = "/v1/vector_stores/farm/files"
    http.post(path, json={"file_id": stored}).raise_for_status()
    wait_until(lambda: http.get(f"{path}/{stored}").json()["status"] == "completed")
    return stored


def fill_farm(url: str) -> dict[str, str]:
    """Register `farm`, ingest a file of each kind, and return the ids by name."""
    files = {
        "fences.pdf": pdf_of(*PDF_PAGES),
        "feed.py": CODE.encode(),
        "hay.md": TABLE.encode(),
        "bales.csv": b"barn,bales\nnorth,40\nsouth,20\n",
    }
    with httpx.Client(base_url=url, timeout=60) as http:
        body = {"vector_db_id": "farm", "embedding_model": "hashing"}
        http.post("/v1/vector-dbs", json=body).raise_for_status()
        return {name: upload(http, name, data) for name, data in files.items()}


def chunk_with(url: str, document: str, text: str) -> str:
    """Return the id of the chunk of a document that has this text."""
    chunks = httpx.get(f"{url}/v1/vector-dbs/farm/documents/{document}").json()["chunks"]
    [found] = [each["chunk_id"] for each in chunks if text in each["content"]]
    return str(found)


def test_a_pdf_opens_on_its_page_with_the_passage_marked(tmp_path: Path, browser: Browser) -> None:
    """The picture is of the page that has the chunk, and the mark is over its line.

    Pages are turned by links. A passage that is not on the page marks nothing, and that is said.
    """
    with live_server(run_config(), tmp_path) as url:
        document = fill_farm(url)["fences.pdf"]
        chunk = chunk_with(url, document, "wire")
        browser.open(url + address("dbs", "farm", "documents", document, chunk=chunk, page=2), 1440)
        wait(browser, "document.querySelector('.page img')?.naturalWidth === 1200")
        assert "Page 2 of 2" in browser.evaluate("document.getElementById('pages').textContent")
        mark, _ = browser.evaluate(
            "[...document.querySelectorAll('.page rect')].map((r) => [r.x, r.y].map((one) =>"
            " one.baseVal.value))"
        )
        assert mark == pytest.approx([10, 100 - 500 / 6], abs=3)
        box = "document.querySelector('.page rect').getBoundingClientRect()"
        assert browser.evaluate(f"{box}.width > 100 && {box}.height > 5")
        click_link(browser, "Page before")
        wait(browser, "document.querySelector('.page img')?.alt === 'Page 1'")
        click_link(browser, "Text")
        wait(browser, "document.querySelector('.chunk.cited')?.textContent.includes('wire')")
        assert browser.errors == []
        assert all(each.startswith((url, "data:")) for each in browser.requests)


def click_link(browser: Browser, label: str) -> None:
    """Follow the link of the view with this label."""
    link = f"[...document.querySelectorAll('main a')].find((a) => a.textContent === {label!r})"
    wait(browser, f"{link} !== undefined")
    browser.evaluate(f"{link}.click()")


def test_what_is_not_on_its_page_is_not_marked(tmp_path: Path, browser: Browser) -> None:
    """A chunk of the document that somebody has written by hand is text without a mark.

    Its number of chunks no longer is that of the file, so there are no pages, and the text is
    shown with the reason.
    """
    with live_server(run_config(), tmp_path) as url:
        document = fill_farm(url)["fences.pdf"]
        chunk = {
            "content": "A dog obeys.",
            "chunk_id": "dog",
            "metadata": {"document_id": document, "file_id": document},
            "chunk_metadata": {"page": 1},
        }
        body = {"vector_db_id": "farm", "chunks": [chunk]}
        httpx.post(f"{url}/v1/vector-io/insert", json=body, timeout=60).raise_for_status()
        browser.open(url + address("dbs", "farm", "documents", document, chunk="dog"), 1440)
        wait(browser, "document.getElementById('no-pages')?.textContent.includes('no pages')")
        wait(browser, "document.querySelector('.chunk.cited')?.textContent.includes('dog obeys')")


def test_code_is_colored_and_tables_are_tables(tmp_path: Path, browser: Browser) -> None:
    """Code has classes and stays text; tables of Markdown and of a CSV file have cells."""
    with live_server(run_config(), tmp_path) as url:
        ids = fill_farm(url)
        browser.open(url + address("dbs", "farm", "documents", ids["feed.py"]), 1440)
        wait(browser, "document.querySelector('.code-keyword')?.textContent === 'def'")
        shown = browser.evaluate("document.querySelector('.code').textContent")
        assert shown.rstrip() == CODE.rstrip()
        comment = browser.evaluate("document.querySelector('.code-comment').textContent")
        assert comment == "# kilos <b>of</b> hay"
        assert browser.evaluate("document.querySelector('.code b') === null")
        color = "getComputedStyle(document.querySelector('{}')).color"
        assert browser.evaluate(color.format(".code-keyword")) != browser.evaluate(
            color.format(".code")
        )
        for name, cell in (("hay.md", "north"), ("bales.csv", "north")):
            browser.open(url + address("dbs", "farm", "documents", ids[name]), 1440)
            cells = "[...document.querySelectorAll('main td')].map((one) => one.textContent)"
            assert cell in wait(browser, f"document.querySelector('main td') && {cells}")
        assert browser.errors == []


def test_attributes_are_changed_and_bad_ones_refused(tmp_path: Path, browser: Browser) -> None:
    """What is not JSON, or is reserved, is told and changes nothing; others are on the list."""
    with live_server(run_config(), tmp_path) as url:
        document = fill_farm(url)["hay.md"]
        browser.open(url + address("dbs", "farm", "documents", document, view="about"), 1440)
        message = "document.getElementById('message').textContent"
        for text, told in (
            ("{", "not JSON"),
            ('{"file_id": "x"}', "reserved"),
            (json.dumps({"year": 2026}), "are changed"),
        ):
            wait(browser, "document.getElementById('attributes') !== null")
            fill(browser, "#attributes", text)
            click(browser, "Save the attributes")
            wait(browser, f"{message}.includes({told!r})")
        browser.open(url + address("dbs", "farm", "documents", q="hay"), 1440)
        row = "document.querySelector('#documents tr')?.innerText"
        assert "year: 2026" in wait(browser, row)


@pytest.mark.parametrize("width", [1440, 768, 390])
def test_axe_finds_nothing_in_documents_and_sources(
    tmp_path: Path, browser: Browser, width: int
) -> None:
    """In light and dark, each view has no violation and is no wider than the window.

    Two pictures of the documentation are made here.
    """
    pictures = {(768, "#documents"): "documents", (1440, ".page img"): "page"}
    axe = INSTALLED / "axe.min.js"
    if not axe.exists():
        pytest.skip("no Chromium: axe-core comes with it")
    with live_server(run_config(), tmp_path) as url:
        ids = fill_farm(url)
        chunk = chunk_with(url, ids["fences.pdf"], "fence keeps")
        views = {
            address("dbs", "farm", "documents"): "#documents",
            address("dbs", "farm", "documents", q="nothing like it"): "#no-documents",
            address("dbs", "farm", "documents", ids["fences.pdf"], chunk=chunk): ".page img",
            address("dbs", "farm", "documents", ids["feed.py"]): ".code",
            address("dbs", "farm", "documents", ids["feed.py"], view="about"): "#attributes",
        }
        found: list[tuple[str, ...]] = []
        for scheme in ("light", "dark"):
            for path, part in views.items():
                browser.open(url + path, width, scheme=scheme)
                wait(browser, f"document.querySelector({part!r}) !== null")
                wait(browser, "document.querySelector('main [aria-busy=true]') === null")
                if scheme == "light" and (width, part) in pictures:
                    name = f"console-{pictures[width, part]}.png"
                    keep(browser, os.environ.get("CORRAL_SCREENSHOTS"), name)
                browser.evaluate(axe.read_text("utf-8") + "; 0")
                script = "axe.run().then((f) => f.violations.map((v) => [v.id, v.nodes[0].html]))"
                found += [(scheme, path, *each) for each in browser.evaluate(script)]
                assert browser.evaluate("document.documentElement.scrollWidth") <= width, path
                assert browser.errors == []
        assert found == []
