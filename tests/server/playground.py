"""What a person does on the playground, for the tests that go through it in a browser."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx

from ..bench.report.headless import Browser


def store(url: str, vector_db_id: str, *contents: str, **settings: Any) -> None:
    """Register a vector DB with the hashing model, and store a chunk of each content."""
    with httpx.Client(base_url=url, timeout=60) as http:
        body = {"vector_db_id": vector_db_id, "embedding_model": "hashing", **settings}
        http.post("/v1/vector-dbs", json=body).raise_for_status()
        chunks = [
            {"content": content, "chunk_id": f"{vector_db_id}-{n}"}
            for n, content in enumerate(contents)
        ]
        body = {"vector_db_id": vector_db_id, "chunks": chunks}
        http.post("/v1/vector-io/insert", json=body).raise_for_status()


def select(browser: Browser, vector_db_id: str) -> None:
    """Select a vector DB, as a person does in the list."""
    browser.evaluate(
        "(() => { const list = document.getElementById('db');"
        f" list.value = {json.dumps(vector_db_id)};"
        " list.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


def wait(browser: Browser, script: str, seconds: float = 60) -> Any:
    """Evaluate a script until it is true, and return its value."""
    deadline = time.monotonic() + seconds
    while not (found := browser.evaluate(script)):
        said = browser.evaluate("document.getElementById('message').textContent")
        assert time.monotonic() < deadline, (script, said, browser.errors)
        time.sleep(0.05)
    return found


def fill(browser: Browser, selector: str, value: str) -> None:
    """Put a value into a field, as typing does."""
    browser.evaluate(
        f"(() => {{ const field = document.querySelector({json.dumps(selector)});"
        f" field.value = {json.dumps(value)};"
        " field.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def ask(browser: Browser, question: str) -> list[str]:
    """Ask a question and return the hybrid hits' texts."""
    fill(browser, "#ask", question)
    browser.evaluate("document.getElementById('hybrid').replaceChildren()")
    browser.evaluate("document.getElementById('ask-form').requestSubmit()")
    wait(browser, "document.querySelectorAll('#hybrid li').length")
    return texts(browser, "hybrid")


def texts(browser: Browser, mode: str) -> list[str]:
    """Return the texts of a mode's hits."""
    script = f"[...document.querySelectorAll('#{mode} .text')].map((one) => one.textContent)"
    found: list[str] = browser.evaluate(script)
    return found


def listed(browser: Browser) -> list[str]:
    """Return the names of the documents that the page lists, sorted."""
    script = "[...document.querySelectorAll('#documents th[scope=row]')].map((o) => o.textContent)"
    return sorted(browser.evaluate(script), key=str.lower)
