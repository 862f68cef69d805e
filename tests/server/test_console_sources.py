"""Sources in the console: a PDF on its page, code in colors, tables; and for whom they are."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..bench.report.headless import Browser
from .console import address, click, create_key, fill, keep, sign_in, wait
from .harness import live_server, run_config, wait_until
from .test_pdf_pages import pdf_of

pytest.importorskip("pypdfium2")

CODE = "def feed(ewes):\n    return ewes * 2.5  # kilos <b>of</b> hay\n"
TABLE = (
    "# Hay\n\n| barn | bales |\n|---|---|\n| north | 40 |\n\n"
    "```python\nhay = 40 * 2.5\n```\n\n```nothing\nplain <b>\n```\n"
)
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


def test_a_reader_sees_pages_and_jobs_and_changes_nothing(tmp_path: Path, browser: Browser) -> None:
    """What a reader may see is shown without an error; what it may not do is disabled, with why.

    If this fails: a reader is told only by an error, after trying, or sees less than it may.
    """
    with live_server(run_config(), tmp_path) as url:
        document = fill_farm(url)["fences.pdf"]
        with httpx.Client(base_url=url, timeout=60) as http:
            broken = {"file": ("broken.pdf", b"%PDF-1.7\nbroken")}
            sent = http.post("/v1/files", files=broken, data={"purpose": "assistants"}).json()["id"]
            http.post("/v1/vector_stores/farm/files", json={"file_id": sent}).raise_for_status()
            failed = "/v1/jobs?status=failed"
            wait_until(lambda: len(http.get(failed).json()["data"]) == 1)
        chunk = chunk_with(url, document, "fence keeps")
        create_key(tmp_path, "admin")
        place = ("dbs", "farm", "documents")
        browser.open(url + address(*place, document, chunk=chunk), 1440)
        sign_in(browser, create_key(tmp_path, "reader"), stays=True)
        wait(browser, "document.querySelector('.page rect') !== null")
        views: tuple[tuple[str, str, tuple[str, ...]], ...] = (
            (address(*place, document, chunk=chunk), ".page rect", ("Delete",)),
            (
                address(*place, document, view="about"),
                "#attributes:disabled",
                ("Delete", "Save the attributes", "Save the permissions"),
            ),
            (address(*place), "#documents tr", ("Re-ingest", "Replace", "Delete", "Retry")),
            (address("jobs"), "#all-jobs .failed", ("Retry",)),
            (address("keys"), "main .notice:not([hidden])", ()),
        )
        for path, part, labels in views:
            browser.open(url + path, 1440)
            wait(browser, f"document.querySelector({part!r}) !== null")
            reasons = (
                "[...document.querySelectorAll('main button')].filter((one) => one.disabled)"
                ".map((one) => [one.textContent, one.title])"
            )
            why = "This needs the role writer; yours is reader."
            wait(browser, f"{reasons}.length >= {len(labels)}")
            told = dict(browser.evaluate(reasons))
            assert {label: told.get(label) for label in labels} == dict.fromkeys(labels, why)
            enabled = "document.querySelectorAll('main button:not(:disabled)').length"
            assert browser.evaluate(enabled) == (part == "#documents tr"), path  # Find
            assert browser.errors == [], path
        assert "needs the role admin" in browser.evaluate("document.body.innerText")
        browser.evaluate("sessionStorage.clear()")


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
    """Code has classes and stays text, in Markdown too; tables of Markdown and CSV have cells."""
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
        browser.open(url + address("dbs", "farm", "documents", ids["hay.md"]), 1440)
        blocks = "[...document.querySelectorAll('.markdown .code')].map((one) => one.textContent)"
        shown = wait(browser, f"document.querySelector('.markdown .code') && {blocks}")
        assert shown == ["hay = 40 * 2.5", "plain <b>"]
        numbers = "[...document.querySelectorAll('.code-number')].map((one) => one.textContent)"
        assert browser.evaluate(numbers) == ["40", "2.5"]
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


def test_a_list_and_a_page_are_on_the_first_screen(tmp_path: Path, browser: Browser) -> None:
    """A tablet shows the first document, a desktop the marked passage, without scrolling.

    Two pictures of the documentation are made here.
    """
    folder = os.environ.get("CORRAL_SCREENSHOTS")
    with live_server(run_config(), tmp_path) as url:
        ids = fill_farm(url)
        chunk = chunk_with(url, ids["fences.pdf"], "fence keeps")
        page = address("dbs", "farm", "documents", ids["fences.pdf"], chunk=chunk)
        views = (
            ("documents", 768, address("dbs", "farm", "documents"), "#documents tr"),
            ("page", 1440, page, ".page rect"),
        )
        for name, width, path, part in views:
            browser.open(url + path, width)
            wait(browser, f"document.querySelector({part!r}) !== null")
            wait(browser, "document.querySelector('main [aria-busy=true]') === null")
            box = f"document.querySelector({part!r}).getBoundingClientRect()"
            assert browser.evaluate(f"{box}.top >= 0 && {box}.bottom < innerHeight"), name
            keep(browser, folder, f"console-{name}.png")
            assert browser.errors == []
