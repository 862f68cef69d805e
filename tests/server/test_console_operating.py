"""The console's views of the server: figures, sizes, configuration; jobs and keys by keyboard."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from corral.providers.base.config import ProviderEntry

from ..bench.report.headless import Browser
from .console import address, create_key, fill, module, sign_in, store, tab_to, wait
from .harness import live_server, run_config

CHARTS = "document.querySelector('.charts')"


def test_figures_are_drawn_from_the_metrics(tmp_path: Path, browser: Browser) -> None:
    """Each look adds a point to every chart, and a request counts.

    If this fails: whoever looks after the server sees an empty chart, or figures of something else.
    """
    with live_server(run_config(), tmp_path) as url:
        browser.open(f"{url}/ui/health", 1440)
        wait(browser, f"Number({CHARTS}?.dataset.looks) >= 3")
        points = "[...document.querySelectorAll('.chart polyline')].map((one) => one.points.length)"
        drawn = browser.evaluate(points)
        assert len(drawn) == 4
        assert min(drawn) >= 2
        labels = browser.evaluate("document.querySelector('.chart svg').getAttribute('aria-label')")
        assert labels.startswith("Requests per second: now ")
        assert browser.errors == []
        before = json.dumps(httpx.get(f"{url}/metrics").text)
        httpx.get(f"{url}/v1/version").raise_for_status()
        after = json.dumps(httpx.get(f"{url}/metrics").text)
        sums = f"[{before}, {after}].map((text) => it.sums(text))"
        script = f"{module('charts.js')}.then((it) => {sums})"
        first, second = browser.evaluate(script)
        route = 'corral_requests_total{route="/v1/version"}'
        assert second[route] - first[route] == 1
        total = "corral_requests_total"
        assert second[total] > first[total]


def test_the_configuration_is_shown_without_secrets(tmp_path: Path, browser: Browser) -> None:
    """The operator sees every setting in force; a reader is told that it is not allowed."""
    config = run_config()
    config.server.allowed_hosts = ["corral.example.org"]
    settings = {"base_url": "http://127.0.0.1:9/v1", "models": ["m"], "api_key": "very-secret"}
    config.providers.inference = [
        ProviderEntry(provider_id="llm", provider_type="remote::chat", config=settings)
    ]
    with live_server(config, tmp_path) as url:
        reply = httpx.get(f"{url}/v1/config")
        shown = reply.json()
        assert shown["server"]["allowed_hosts"] == ["corral.example.org"]
        assert set(shown["providers"]["inference"][0]["config"]["api_key"]) == {"*"}
        assert "very-secret" not in reply.text
        browser.open(f"{url}/ui/health", 1440)
        summary = (
            "[...document.querySelectorAll('main summary')]"
            ".find((one) => one.textContent.startsWith('Configuration'))"
        )
        wait(browser, f"{summary} !== undefined")
        browser.evaluate(f"{summary}.click()")
        wait(browser, "document.getElementById('config') !== null")
        text = browser.evaluate("document.getElementById('config').textContent")
        assert "corral.example.org" in text
        assert "very-secret" not in text
        assert browser.errors == []
        create_key(tmp_path, "admin")
        key = create_key(tmp_path, "reader", "--tenant", "acme")
        browser.open(f"{url}/ui/health", 1440)
        sign_in(browser, key)
        wait(browser, f"{summary} !== undefined")
        browser.evaluate(f"{summary}.click()")
        refused = "[...document.querySelectorAll('main .notice')].map((one) => one.textContent)"
        wait(
            browser, f"{refused}.filter((one) => one.includes('This needs the role')).length === 2"
        )


def test_sizes_show_chunks_documents_and_disk(tmp_path: Path, browser: Browser) -> None:
    """For each vector DB, on request; a reader is not told the size of files."""
    with live_server(run_config(), tmp_path) as url:
        store(url, "birds", "The owl sleeps in a tree.", "The hen sleeps in a coop.")
        browser.open(f"{url}/ui/dbs", 1440)
        wait(browser, "document.querySelector('main [aria-pressed=false]') !== null")
        browser.evaluate("document.querySelector('main [aria-pressed=false]').click()")
        cells = "[...document.querySelectorAll('main tbody .n')].map((one) => one.textContent)"
        wait(browser, f"{cells}.length === 3 && !{cells}.includes('...')")
        chunks, documents, disk = browser.evaluate(cells)
        assert (chunks, documents) == ("2", "0")
        assert disk.endswith("B")
        found = httpx.get(f"{url}/v1/vector-dbs/birds?counts=true").json()["disk_bytes"]
        assert 0 < found < sum(each.stat().st_size for each in tmp_path.rglob("*"))
        admin, reader = create_key(tmp_path, "admin"), create_key(tmp_path, "reader")
        for key, is_shown in ((admin, True), (reader, False)):
            headers = {"authorization": f"Bearer {key}"}
            one = httpx.get(f"{url}/v1/vector-dbs/birds?counts=true", headers=headers).json()
            assert ("disk_bytes" in one, one["chunk_count"]) == (is_shown, 2)
            assert ("searcher" in one) == is_shown
        assert browser.errors == []


def test_the_keyboard_alone_creates_and_revokes_a_key(tmp_path: Path, browser: Browser) -> None:
    """Tab and Enter reach the form, the new key, and the question before it is revoked.

    If this fails: somebody without a mouse cannot take a key back.
    """
    key = create_key(tmp_path, "admin")
    with live_server(run_config(), tmp_path) as url:
        browser.open(f"{url}/ui/keys", 1440)
        sign_in(browser, key)
        wait(browser, "document.querySelectorAll('#keys tr').length === 1")
        browser.errors.clear()  # without a key, the page's first requests were refused
        tab_to(browser, "one.name === 'user'")
        fill(browser, "[name=user]", "ann")
        browser.press("Enter")
        wait(browser, "document.getElementById('secret') !== null")
        wait(browser, "document.querySelectorAll('#keys tr').length === 2")
        tab_to(browser, "one.textContent === 'Hide'")
        browser.press("Enter")
        wait(browser, "document.getElementById('secret') === null")
        tab_to(
            browser, "one.textContent === 'Revoke' && one.closest('tr').innerText.includes('ann')"
        )
        browser.press("Enter")
        wait(browser, "document.activeElement.textContent === 'Yes'")
        browser.press("Enter")
        wait(browser, "document.getElementById('keys').innerText.includes('revoked')")
        assert browser.errors == []


def test_the_keyboard_alone_retries_a_job(tmp_path: Path, browser: Browser) -> None:
    """Tab and Enter reach the filters and the retry of a job that failed."""
    with live_server(run_config(), tmp_path) as url:
        store(url, "birds")
        with httpx.Client(base_url=url, timeout=60) as http:
            broken = ("broken.pdf", b"%PDF-1.7\nbroken", "application/pdf")
            sent = http.post("/v1/files", data={"purpose": "assistants"}, files={"file": broken})
            body = {"vector_db_id": "birds", "file_ids": [sent.json()["id"]]}
            http.post("/v1/jobs", json=body).raise_for_status()
        browser.open(url + address("jobs"), 1440)
        wait(browser, "document.querySelector('#all-jobs td.failed') !== null")
        tab_to(browser, "one.id === 'state'")
        tab_to(browser, "one.textContent === 'Retry'")
        browser.press("Enter")
        wait(browser, "document.querySelector('#all-jobs td.failed') !== null")
        assert browser.errors == []
