"""The documents that the playground lists, and what it keeps when it is loaded again."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from corral.providers.base.config import ProviderEntry

from ..bench.report.headless import Browser
from .harness import live_server, run_config
from .playground import ask, fill, listed, select, store, texts, wait

RIGHT = "document.querySelector('#hybrid [data-said=right]')"
JUDGED = "document.getElementById('judged').textContent"


def insert(url: str, count: int) -> None:
    """Insert documents into `farm`, each of one chunk and with a title."""
    documents = [
        {
            "document_id": f"d{n:02}",
            "content": f"Sheep {n}.",
            "metadata": {"title": f"Title {n:02}"},
        }
        for n in range(count)
    ]
    with httpx.Client(base_url=url, timeout=60) as http:
        http.post(
            "/v1/vector-dbs", json={"vector_db_id": "farm", "embedding_model": "hashing"}
        ).raise_for_status()
        body = {"vector_db_id": "farm", "documents": documents, "chunk_size_in_tokens": 64}
        http.post("/v1/tool-runtime/rag-tool/insert", json=body).raise_for_status()


def test_the_page_lists_documents_and_not_jobs(tmp_path: Path, browser: Browser) -> None:
    """A copied vector DB, which has no jobs, shows its 48 documents by name, page by page.

    If this fails: the page says that there is nothing where there are documents.
    """
    memory = ProviderEntry(provider_id="memory", provider_type="inline::memory")
    config = run_config()
    config.providers.vector_io.append(memory)
    with live_server(config, tmp_path) as url:
        insert(url, 48)
        copied = {"target_id": "copy", "provider_id": "memory"}
        httpx.post(f"{url}/v1/vector-dbs/farm/copy", json=copied, timeout=60).raise_for_status()
        store(url, "loose", "a chunk of no document")
        browser.open(url, 1280)
        wait(browser, "document.getElementById('db').value")
        select(browser, "loose")
        wait(browser, "!document.getElementById('documents-none').hidden")
        assert listed(browser) == []
        select(browser, "copy")
        wait(browser, "!document.getElementById('documents').hidden")  # of the one before: hidden
        assert listed(browser) == [f"Title {n:02}" for n in range(25)]
        assert browser.evaluate("document.getElementById('jobs').hidden")
        assert browser.evaluate("document.getElementById('previous').disabled")
        browser.evaluate("document.getElementById('next').click()")
        wait(browser, "document.getElementById('listed').textContent === 'Documents 26 to 48'")
        assert listed(browser) == [f"Title {n:02}" for n in range(25, 48)]
        assert browser.evaluate("document.getElementById('next').disabled")
        link = browser.evaluate("document.querySelector('#documents a').href")
        assert link == f"{url}/document?vector_db_id=copy&document_id=d25"
        browser.evaluate("document.getElementById('previous').click()")
        wait(browser, "document.getElementById('listed').textContent === 'Documents 1 to 25'")
        assert browser.errors == []


def test_a_hit_links_to_its_passage(tmp_path: Path, browser: Browser) -> None:
    """A hit is named as the server names it, and the link shows its text marked."""
    about = [
        {"title": "Fences", "filename": "fence.md"},
        {"filename": "fence.md"},
        {"title": "fence", "source": "notes/fence.md"},
        {"source": "/home/ann/fence.md"},
        {"source": "https://farm.example/fence"},
        {"title": "Fences", "source": "C:\\ann\\fence.md"},
        {},
    ]
    with live_server(run_config(), tmp_path) as url:
        with httpx.Client(base_url=url, timeout=60) as http:
            http.post("/v1/vector-dbs", json={"vector_db_id": "a", "embedding_model": "hashing"})
            chunks = [
                {
                    "content": f"Sheep {n}.",
                    "chunk_id": f"c{n}",
                    "metadata": {**one, "document_id": f"d{n}"},
                }
                for n, one in enumerate(about)
            ]
            http.post("/v1/vector-io/insert", json={"vector_db_id": "a", "chunks": chunks})
            path = "/v1/vector-dbs/a/documents?names=true"
            names = [one["name"] for one in http.get(path).json()["data"]]
        assert names == [
            "Fences (fence.md)", "fence.md", "notes/fence.md", "fence.md",
            "https://farm.example/fence", "Fences (fence.md)", "d6",
        ]  # fmt: skip
        browser.open(url, 1280)
        wait(browser, "document.getElementById('db').value")
        fill(browser, "#k", "20")
        ask(browser, "sheep")
        links = (
            "[...document.querySelectorAll('#vector .place a')].map((a) => [a.href, a.textContent])"
        )
        found = dict(browser.evaluate(links))
        assert found == {
            f"{url}/document?vector_db_id=a&document_id=d{n}&chunk_id=c{n}#passage": name
            for n, name in enumerate(names)
        }
        browser.open(next(iter(found)), 1280)
        assert "Sheep" in browser.evaluate("document.querySelector('mark').textContent")
        assert browser.errors == []


def test_judgments_survive_a_reload(tmp_path: Path, browser: Browser) -> None:
    """The marks, the question and the vector DB are there again, until they are deleted.

    If this fails: an hour of judging is lost with a tab.
    """
    with live_server(run_config(), tmp_path) as url:
        store(url, "bears", "The bear sleeps in a cave.")
        store(url, "birds", "The owl sleeps in a tree.", "The hen sleeps in a coop.")
        browser.open(url, 1280)
        wait(browser, "document.getElementById('db').value")
        select(browser, "birds")
        ask(browser, 'who sleeps? "__proto__"')
        browser.evaluate(f"{RIGHT}.click()")
        lines = browser.evaluate("import('/page/judge.js').then((judge) => judge.lines())")
        assert json.loads(lines)["query"] == 'who sleeps? "__proto__"'
        browser.open(url, 1280)
        wait(browser, "document.getElementById('db').value === 'birds'")
        wait(browser, f"{JUDGED}.startsWith('1 judged question')")
        again = browser.evaluate("import('/page/judge.js').then((judge) => judge.lines())")
        assert again == lines
        assert browser.evaluate("document.getElementById('ask').value") == 'who sleeps? "__proto__"'
        browser.evaluate("document.getElementById('ask-form').requestSubmit()")
        wait(browser, "document.querySelectorAll('#hybrid li').length")
        assert browser.evaluate(f"{RIGHT}.getAttribute('aria-pressed')") == "true"
        browser.evaluate("document.getElementById('forget').click()")
        assert browser.evaluate(f"{RIGHT}.getAttribute('aria-pressed')") == "false"
        browser.open(url, 1280)
        wait(browser, "document.getElementById('db').value === 'birds'")
        wait(browser, f"{JUDGED}.startsWith('Mark hits')")
        assert browser.evaluate("Object.keys(localStorage).sort().join()") == (
            "corral.question,corral.vector-db"
        )


def test_on_a_phone_the_answer_scrolls_into_view(tmp_path: Path, browser: Browser) -> None:
    """The first hit is in the window after a question; a setting that is moved scrolls nothing.

    If this fails: a person on a phone asks, and sees nothing change.
    """
    with live_server(run_config(), tmp_path) as url:
        store(url, "birds", "The owl sleeps in a tree.")
        browser.open(url, 360, 640)
        wait(browser, "document.getElementById('db').value")
        assert ask(browser, "who sleeps?")
        top = "document.querySelector('#results li').getBoundingClientRect().top"
        wait(browser, f"0 <= {top} && {top} < innerHeight")
        browser.evaluate("scrollTo(0, 0)")
        fill(browser, "#k", "7")
        wait(browser, "document.querySelector('output[for=k]').textContent === '7'")
        wait(browser, "document.getElementById('message').textContent.includes('hits')")
        assert texts(browser, "hybrid")
        assert browser.evaluate("scrollY") == 0
