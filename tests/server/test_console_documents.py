"""The documents that the console lists, and the way from a hit to its place in one."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import httpx

from corral.providers.base.config import ProviderEntry

from ..bench.report.headless import Browser
from .console import address, ask_path, click, fill, hits, listed, store, tab_to, wait
from .harness import live_server, run_config, wait_until

PAGING = "document.querySelector('#paging span')?.textContent"


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

    The page is in the address, so no late reply can lead back to another. If this fails: the
    console says that there is nothing where there are documents.
    """
    memory = ProviderEntry(provider_id="memory", provider_type="inline::memory")
    config = run_config()
    config.providers.vector_io.append(memory)
    with live_server(config, tmp_path) as url:
        insert(url, 48)
        copied = {"target_id": "copy", "provider_id": "memory"}
        httpx.post(f"{url}/v1/vector-dbs/farm/copy", json=copied, timeout=60).raise_for_status()
        store(url, "loose", "a chunk of no document")
        browser.open(url + address("dbs", "copy", "documents"), 1440)
        wait(browser, f"{PAGING} === 'Documents 1 to 25 of 48'")
        assert listed(browser) == [f"Title {n:02}" for n in range(25)]
        assert browser.evaluate("document.getElementById('jobs')") is None
        assert browser.evaluate("document.querySelector('#paging button').disabled")
        click(browser, "Next")
        wait(browser, f"{PAGING} === 'Documents 26 to 48 of 48'")
        assert listed(browser) == [f"Title {n:02}" for n in range(25, 48)]
        assert browser.evaluate("document.querySelector('#paging button:nth-child(2)').disabled")
        browser.open(browser.evaluate("location.href"), 1440)
        wait(browser, f"{PAGING} === 'Documents 26 to 48 of 48'")
        click(browser, "Previous")
        wait(browser, f"{PAGING} === 'Documents 1 to 25 of 48'")
        browser.open(url + address("dbs", "loose", "documents"), 1440)
        wait(browser, "document.getElementById('no-documents') !== null")
        assert listed(browser) == []
        assert browser.errors == []


def test_a_document_is_deleted_after_a_second_question(tmp_path: Path, browser: Browser) -> None:
    """The first press asks, No keeps it, and Yes deletes it from the list and the vector DB."""
    with live_server(run_config(), tmp_path) as url:
        insert(url, 2)
        browser.open(url + address("dbs", "farm", "documents"), 1440)
        for answer in ("No", "Yes"):
            click(browser, "Delete")
            click(browser, answer)
        wait(browser, "document.querySelectorAll('#documents tr').length === 1")
        assert listed(browser) == ["Title 01"]
        left = httpx.get(f"{url}/v1/vector-dbs/farm/documents").json()["data"]
        assert [one["document_id"] for one in left] == ["d01"]


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
                    "metadata": {**one, "document_id": f"d/{n}"},
                }
                for n, one in enumerate(about)
            ]
            http.post("/v1/vector-io/insert", json={"vector_db_id": "a", "chunks": chunks})
            path = "/v1/vector-dbs/a/documents?names=true"
            names = [one["name"] for one in http.get(path).json()["data"]]
        assert names == [
            "Fences (fence.md)", "fence.md", "notes/fence.md", "fence.md",
            "https://farm.example/fence", "Fences (fence.md)", "d/6",
        ]  # fmt: skip
        browser.open(url + ask_path("a", "sheep", "why", k=20), 1440)
        hits(browser, "vector")
        links = (
            "[...document.querySelectorAll('#vector .place a')].map((a) => [a.href, a.textContent])"
        )
        found = dict(browser.evaluate(links))
        assert found == {
            f"{url}/ui/dbs/a/documents/{quote(f'd/{n}', safe='')}?chunk=c{n}": name
            for n, name in enumerate(names)
        }
        for link in list(found)[:2]:
            browser.open(link, 1440)
            marked = wait(browser, "document.querySelector('.chunk.cited')?.textContent")
            assert marked.startswith("Sheep")
        assert browser.errors == []


def test_a_long_document_opens_at_its_passage(tmp_path: Path, browser: Browser) -> None:
    """Of 450 chunks, those around the cited one are shown and it is in the window; links go on."""
    with live_server(run_config(), tmp_path) as url:
        store(url, "db")
        chunks = [
            {"content": f"line {n:03}", "chunk_id": f"c{n:03}", "metadata": {"document_id": "long"}}
            for n in range(450)
        ]
        body = {"vector_db_id": "db", "chunks": chunks}
        httpx.post(f"{url}/v1/vector-io/insert", json=body, timeout=60).raise_for_status()
        browser.open(url + address("dbs", "db", "documents", "long", chunk="c300"), 390)
        wait(browser, "document.querySelector('.chunk.cited')?.textContent.trim() === 'line 300'")
        assert browser.evaluate("document.querySelectorAll('.chunk').length") == 100
        top = browser.evaluate("document.getElementById('passage').getBoundingClientRect().top")
        assert 0 <= top < 900
        browser.open(url + address("dbs", "db", "documents", "long", chunk="gone"), 390)
        wait(browser, "document.body.innerText.includes('no longer in this document')")


def test_documents_are_sorted_found_and_counted(tmp_path: Path, browser: Browser) -> None:
    """Headings sort, a part of a name finds, and the address holds both and no cursors.

    If this fails: the order is only of the page that is shown, or the address grows.
    """
    with live_server(run_config(), tmp_path) as url:
        insert(url, 60)
        browser.open(url + address("dbs", "farm", "documents"), 1440)
        total = "document.getElementById('total')?.textContent"
        wait(browser, f"{total} === '60 documents'")
        heading = "[...document.querySelectorAll('thead a')].find((a) => a.textContent.{})"
        browser.evaluate(heading.format("startsWith('Document')") + ".click()")
        wait(browser, "location.search === '?order=desc'")
        first = "document.querySelector('#documents th')?.textContent"
        wait(browser, f"{first} === 'Title 59'")
        for page in (2, 3):
            click(browser, "Next")
            wait(browser, f"location.search === '?order=desc&page={page}'")
            wait(browser, f"{PAGING}?.startsWith('Documents {25 * page - 24} to')")
        assert (
            browser.evaluate(
                "document.querySelector('thead [aria-sort]').getAttribute('aria-sort')"
            )
            == "descending"
        )
        fill(browser, "#find input", "TITLE 1")
        browser.evaluate("document.querySelector('#find').requestSubmit()")
        wait(browser, f"{total}?.startsWith('10 documents')")
        assert listed(browser) == [f"Title 1{n}" for n in range(10)]
        tops = "['h1', '#total', '#drop', '#find', '#documents'].map((one) =>"
        tops += " document.querySelector(`main ${one}`).getBoundingClientRect().top)"
        assert (order := browser.evaluate(tops)) == sorted(order)
        assert browser.evaluate("location.search") == "?q=TITLE+1&order=desc"
        browser.evaluate("history.back()")
        wait(browser, f"{total} === '60 documents'")
        assert browser.errors == []


def test_a_file_is_replaced_and_read_again(tmp_path: Path, browser: Browser) -> None:
    """The new file takes the attributes, and the old document goes once it is stored.

    A file that cannot be read leaves the old document. What has no file says why it cannot be read
    again.
    """
    old, new, broken = tmp_path / "old.md", tmp_path / "new.md", tmp_path / "broken.pdf"
    old.write_text("The hen lays an egg.")
    new.write_text("The goose lays an egg.")
    broken.write_bytes(b"%PDF-1.7\nbroken")
    message = "document.getElementById('message').textContent"
    with live_server(run_config(), tmp_path) as url:
        insert(url, 1)
        browser.open(url + address("dbs", "farm", "documents"), 1440)
        wait(browser, "document.getElementById('files') !== null")
        browser.choose("#files", old)
        wait(browser, "document.querySelectorAll('#documents tr').length === 2")
        path = f"{url}/v1/vector-dbs/farm/documents"
        [document] = [
            one["document_id"]
            for one in httpx.get(f"{path}?names=true").json()["data"]
            if one["name"] == "old.md"
        ]
        changed = httpx.patch(f"{path}/{document}", json={"attributes": {"year": 2026}})
        changed.raise_for_status()
        browser.open(url + address("dbs", "farm", "documents"), 1440)
        again = "[...document.querySelectorAll('button')].find((b) => b.ariaLabel === {})"
        without_file = again.format("'Re-ingest Title 00'")
        wait(browser, f"{without_file}?.disabled")
        assert "no file" in browser.evaluate(f"{without_file}.title")
        jobs = f"{url}/v1/jobs?vector_db_id=farm"
        browser.evaluate(again.format("'Re-ingest old.md'") + ".click()")
        wait_until(
            lambda: [job["status"] for job in httpx.get(jobs).json()["data"]] == ["completed"] * 2
        )
        browser.choose(f"[data-replaces='{document}']", broken)
        wait(browser, f"{message}.includes('The old document stays.')")
        assert "old.md" in listed(browser)
        browser.choose(f"[data-replaces='{document}']", new)
        wait(browser, f"{message} === 'old.md is replaced by new.md.'")
        wait(browser, "document.querySelector('#documents').innerText.includes('new.md')")
        assert listed(browser) == ["new.md", "Title 00"]
        row = "[...document.querySelectorAll('#documents tr')].map((r) => r.innerText).join()"
        assert "year: 2026" in browser.evaluate(row)


def test_files_are_added_with_the_keyboard(tmp_path: Path, browser: Browser) -> None:
    """Tab reaches the field for files before the list, and what is chosen there is stored."""
    note = tmp_path / "note.md"
    note.write_text("The hen lays an egg.")
    with live_server(run_config(), tmp_path) as url:
        insert(url, 1)
        browser.open(url + address("dbs", "farm", "documents"), 1440)
        wait(browser, "document.querySelectorAll('#documents tr').length === 1")
        browser.evaluate("document.getElementById('main').focus()")
        reached = []
        while (at := browser.evaluate("document.activeElement.id || 'x'")) != "files":
            reached.append(at)
            assert len(reached) < 10, reached
            browser.press("Tab")
        browser.choose("#files", note)
        wait(browser, "document.querySelectorAll('#documents tr').length === 2")
        assert listed(browser) == ["note.md", "Title 00"]


def test_the_keyboard_alone_finds_sorts_changes_and_deletes(
    tmp_path: Path, browser: Browser
) -> None:
    """Tab and Enter reach the search, a heading, a document's attributes and acl, and its end.

    If this fails: documents cannot be managed without a mouse.
    """
    with live_server(run_config(), tmp_path) as url:
        insert(url, 30)
        browser.open(url + address("dbs", "farm", "documents"), 1440)
        wait(browser, "document.querySelectorAll('#documents tr').length === 25")
        tab_to(browser, "one.name === 'part'")
        fill(browser, "#find input", "title 2")
        browser.press("Enter")
        wait(browser, "document.querySelectorAll('#documents tr').length === 10")
        tab_to(browser, "one.matches('thead a') && one.textContent.startsWith('Document')")
        browser.press("Enter")
        wait(browser, "document.querySelector('#documents a').textContent === 'Title 29'")
        tab_to(browser, "one.textContent === 'Title 29'")
        browser.press("Enter")
        wait(browser, "document.querySelector('main .tabs [href*=about]') !== null")
        tab_to(browser, "one.textContent === 'About'")
        browser.press("Enter")
        wait(browser, "document.getElementById('attributes') !== null")
        for field, value, label in (
            ("#attributes", '{"year": 2026}', "Save the attributes"),
            ("#acl", "group:sales", "Save the permissions"),
        ):
            wait(browser, f"document.querySelector('{field}') !== null")
            fill(browser, field, value)
            tab_to(browser, f"one.textContent === '{label}'")
            browser.press("Enter")
            changed = "document.getElementById('message').textContent.includes('changed')"
            wait(browser, changed)
        tab_to(browser, "one.textContent === 'Delete'")
        browser.press("Enter")
        wait(browser, "document.activeElement.textContent === 'Yes'")
        browser.press("Enter")
        wait(browser, "document.getElementById('total')?.textContent === '29 documents'")
        assert browser.errors == []
