"""What a person does on the console, for the tests that go through it in a browser."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
from click.testing import CliRunner

from corral.providers.base.config import RunConfig
from corral.server.cli.cli import main

from ..bench.report.headless import Browser
from .harness import run_config

MESSAGE = "document.getElementById('message').textContent"
BUTTON = "[...document.querySelectorAll('main button')].find((one) => one.textContent === {})"


def modelless_config() -> RunConfig:
    """Return a configuration without a language model, not even the one that quotes."""
    config = run_config()
    config.providers.inference = []
    return config


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


def address(*parts: str, **query: Any) -> str:
    """Return the path of a view; a list in the query repeats the name."""
    path = "/".join(quote(part, safe="") for part in ("ui", *parts))
    return f"/{path}?{urlencode(query, doseq=True)}" if query else f"/{path}"


def ask_path(vector_db_id: str, question: str, *show: str, **settings: Any) -> str:
    """Return the path that asks a question, with parts of the view opened."""
    return address("dbs", vector_db_id, "ask", q=question, **settings, show=list(show))


def module(name: str) -> str:
    """Return the script that imports a module of the page, as the page itself does."""
    main = "document.querySelector('script[type=module]').src"
    return f"import(new URL({json.dumps(name)}, {main}))"


def wait(browser: Browser, script: str, seconds: float = 60.0) -> Any:
    """Evaluate a script until it is true, and return its value."""
    deadline = time.monotonic() + seconds
    while not (found := browser.evaluate(script)):
        shown = browser.evaluate("document.body.innerText.slice(0, 2000)")
        assert time.monotonic() < deadline, (script, shown, browser.errors)
        time.sleep(0.05)
    return found


def fill(browser: Browser, selector: str, value: str) -> None:
    """Put a value into a field, as typing does."""
    browser.evaluate(
        f"(() => {{ const field = document.querySelector({json.dumps(selector)});"
        f" field.value = {json.dumps(value)};"
        " field.dispatchEvent(new Event('input', {bubbles: true}));"
        " field.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


def click(browser: Browser, label: str) -> None:
    """Press the first button of the view with this label, as soon as it is there."""
    button = BUTTON.format(json.dumps(label))
    wait(browser, f"{button} !== undefined")
    browser.evaluate(f"{button}.click()")


def ask(browser: Browser, question: str) -> None:
    """Type a question and send it."""
    wait(browser, "document.getElementById('question') !== null")
    fill(browser, "#question", question)
    wait(browser, f"document.getElementById('question').value === {json.dumps(question)}")
    browser.evaluate("document.querySelector('form.ask').requestSubmit()")
    asked = json.dumps(question)
    wait(browser, f"new URLSearchParams(location.search).get('q') === {asked}")


def hits(browser: Browser, mode: str = "hybrid") -> list[str]:
    """Wait for the hits of a mode, and return their texts."""
    wait(browser, f"document.querySelectorAll('#{mode} .hit').length")
    script = f"[...document.querySelectorAll('#{mode} .text')].map((one) => one.textContent)"
    found: list[str] = browser.evaluate(script)
    return found


RIGHT = "document.querySelector('#hybrid [data-said=right]')"


def mark_right(browser: Browser) -> None:
    """Mark the first hit as right, and wait until the server has stored it."""
    wait(browser, f"{RIGHT}?.disabled === false")
    browser.evaluate(f"{RIGHT}.click()")
    wait(browser, f"{RIGHT}.getAttribute('aria-pressed') === 'true'")


# Keeps what the page would save as a file.
CATCH = "URL.createObjectURL = (blob) => { window.saved = blob; return '#'; }; 0"


def downloaded_questions(browser: Browser, url: str, vector_db_id: str) -> str:
    """Return the file of questions that the view of a vector DB saves."""
    browser.open(url + address("dbs", vector_db_id, "evaluate"), 1440)
    browser.evaluate(CATCH)
    click(browser, "Download questions.jsonl")
    wait(browser, "window.saved !== undefined")
    text: str = browser.evaluate("window.saved.text()")
    return text


def listed(browser: Browser) -> list[str]:
    """Return the names of the documents that the view lists, sorted."""
    script = "[...document.querySelectorAll('#documents th[scope=row]')].map((o) => o.textContent)"
    return sorted(browser.evaluate(script), key=str.lower)


def keep(browser: Browser, folder: str | None, name: str) -> None:
    """Write a screenshot of the window into a folder, if there is one."""
    if folder:
        box = browser.evaluate("({x: 0, y: 0, width: innerWidth, height: innerHeight})")
        (Path(folder) / name).write_bytes(browser.screenshot(box))


def tab_to(browser: Browser, script: str) -> None:
    """Press Tab until the element with the focus passes."""
    for _ in range(120):
        if browser.evaluate(f"((one) => {script})(document.activeElement)"):
            return
        browser.press("Tab")
    raise AssertionError(script)


def create_key(home: Path, role: str, *more: str) -> str:
    """Create a key and return it."""
    words = ["--home", str(home), "keys", "create", "page", "--role", role, *more]
    made = CliRunner().invoke(main, words)
    assert made.exit_code == 0, made.output
    return next(word for word in made.output.split() if word.startswith("corral_"))


def sign_in(browser: Browser, key: str, *, stays: bool = False) -> None:
    """Give the page a key."""
    wait(browser, "document.getElementById('key-form') !== null")
    fill(browser, "[name=key]", key)
    browser.evaluate(f"(document.querySelector('[name=stays]').checked = {json.dumps(stays)}, 0)")
    browser.evaluate("document.getElementById('key-form').requestSubmit()")
