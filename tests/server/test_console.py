"""The console at `/ui`: a browser goes through it as a person would."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from corral.server.cli.cli import main

from ..bench.report.headless import Browser
from .console import (
    BUTTON,
    MESSAGE,
    address,
    ask,
    ask_path,
    click,
    create_key,
    downloaded_questions,
    fill,
    hits,
    listed,
    mark_right,
    sign_in,
    store,
    wait,
)
from .harness import InProcess, live_server, run_config

TOPICS = ["fox", "owl", "hare", "bear", "wolf", "lynx", "crane", "heron", "otter", "badger"]
HOSTILE = (
    "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\"> "
    "hostile \u202e\u2066 words " + "long" * 250_000
)
VIEWS = ["jobs", "keys", "reports", "health", "dbs", "dbs/farm/documents", "dbs/farm/settings"]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Return three files to upload: topics, one that wants to be markup, and a broken one."""
    folder = tmp_path / "files"
    folder.mkdir()
    topics = folder / "topics.md"
    facts = [
        f"# The {name}\n\nThe {name} sleeps in burrow {n}." + " Nobody wakes it before noon." * 35
        for n, name in enumerate(TOPICS)
    ]
    topics.write_text("\n\n".join(facts), "utf-8")
    hostile = folder / "hostile.txt"
    hostile.write_text(HOSTILE, "utf-8")
    broken = folder / "broken.pdf"
    broken.write_bytes(b"%PDF-1.7\nbroken")
    return [topics, hostile, broken]


def prepare(browser: Browser, url: str, files: list[Path], width: int = 1440) -> None:
    """Register a vector DB on the page that a new server shows, and upload the files."""
    browser.open(f"{url}/", width)
    wait(browser, "document.querySelector('[name=provider_id]')?.options.length")
    for name, value in (("vector_db_id", "farm"), ("size", "300"), ("mark", "1")):
        fill(browser, f"[name={name}]", value)
    browser.evaluate("document.getElementById('register-form').requestSubmit()")
    wait(browser, "document.getElementById('files') !== null")
    assert browser.evaluate("location.pathname") == "/ui/dbs/farm/documents"
    browser.choose("#files", *files)
    wait(browser, "document.querySelectorAll('#documents tr').length === 2")
    wait(browser, "document.querySelectorAll('#jobs td.failed').length === 1")


def test_a_person_goes_through_the_console(
    tmp_path: Path, files: list[Path], browser: Browser
) -> None:
    """Register, upload, ask, compare, change alpha, copy as curl and run it, judge, tune.

    If this fails: the message says what the page waited for, and what it showed then.
    """
    config = run_config()
    (tmp_path / "run.yaml").write_text(config.model_dump_json())  # JSON is YAML; for the command
    with live_server(config, tmp_path) as url:
        prepare(browser, url, files)
        registered = browser.evaluate("fetch('/v1/vector-dbs/farm').then((it) => it.json())")
        sizes = {"chunk_size_in_tokens": 300, "overlap_in_tokens": 37}
        assert registered["chunking"] == {**sizes, "split_on": 1}
        assert listed(browser) == ["hostile.txt", "The fox (topics.md)"]
        failed = browser.evaluate("document.querySelector('#jobs .failed').closest('tr').innerText")
        for part in ("broken.pdf", "replace it first", "Retry"):
            assert part in failed
        browser.open(url + ask_path("farm", "where does the owl sleep?", "why", "context"), 1440)
        assert "burrow 1" in hits(browser)[0]
        assert all(hits(browser, mode) for mode in ("vector", "keyword"))
        wait(browser, "document.getElementById('context')?.textContent.includes('burrow 1')")
        scores = "[...document.querySelectorAll('#hybrid strong')].map((one) => one.textContent)"
        before = json.dumps(browser.evaluate(scores), separators=(",", ":"))
        browser.open(browser.evaluate("location.href") + "&alpha=1&show=copies", 1440)
        hits(browser)
        assert json.dumps(browser.evaluate(scores), separators=(",", ":")) != before
        assert "burrow 1" in run_copied_curl(browser)
        browser.open(url + ask_path("farm", "anything", "why"), 1440)
        for name in TOPICS:
            ask(browser, f"where does the {name} sleep?")
            wait(
                browser, f"document.querySelector('#hybrid .text')?.textContent.includes('{name}')"
            )
            mark_right(browser)
        lines = downloaded_questions(browser, url, "farm")
        assert browser.errors == []
        assert all(each.startswith((url, "blob:")) for each in browser.requests)
    assert len(lines.splitlines()) == len(TOPICS)
    questions = tmp_path / "questions.jsonl"
    questions.write_text(lines, "utf-8")
    words = ["bench", "tune", "--db", "farm", "--queries", str(questions)]
    tuned = CliRunner().invoke(main, ["--home", str(tmp_path), *words])
    assert tuned.exit_code == 0, tuned.output
    assert "nDCG@10" in tuned.output


def run_copied_curl(browser: Browser) -> str:
    """Copy the request for the context as curl, run it, and return what it prints."""
    copies = "document.querySelector('[data-copies=\"v1/tool-runtime/rag-tool/query\"]')"
    wait(browser, f"{copies} !== null")
    browser.evaluate(f"{copies}.querySelector('button').focus()")
    browser.press("Enter")  # a person's act: without one, the browser blocks the clipboard
    wait(browser, f"{MESSAGE} === 'Copied as curl.'")
    browser.evaluate("(document.getElementById('question').value = '', 0)")
    browser.evaluate("document.getElementById('question').focus()")
    browser.paste()
    curl = browser.evaluate("document.getElementById('question').value")
    ran = subprocess.run(["sh", "-c", curl], capture_output=True, text=True, timeout=60, check=True)
    return ran.stdout


def test_every_view_can_be_opened_by_its_address(tmp_path: Path, browser: Browser) -> None:
    """Each address shows its view after a reload, and `back` leads to the one before.

    If this fails: a link to a view shows another, or nothing.
    """
    with live_server(run_config(), tmp_path) as url:
        store(url, "farm", "The owl sleeps in a tree.")
        store(url, "a/b ?#%é", "The hen sleeps in a coop.")
        for view in VIEWS:
            browser.open(f"{url}/ui/{view}", 1440)
            wait(browser, "document.querySelector('main h1') !== null")
            assert browser.evaluate("document.querySelector('main h1').textContent") != "Not found"
            assert browser.errors == []
        browser.open(url + ask_path("a/b ?#%é", "who sleeps?", "why"), 1440)
        assert hits(browser) == ["The hen sleeps in a coop."]
        browser.evaluate("document.querySelector('nav.side a[href$=health]').click()")
        wait(browser, "document.getElementById('providers') !== null")
        browser.evaluate("history.back()")
        assert hits(browser) == ["The hen sleeps in a coop."]
        for wrong in (
            address("nothing"),
            address("dbs", "nothing", "ask"),
            address("dbs", "farm", "x"),
        ):
            browser.open(url + wrong, 1440)
            wait(browser, "document.querySelector('main h1')?.textContent === 'Not found'")


def test_the_shell_serves_every_address_with_a_strict_policy(app: InProcess) -> None:
    """No script but its own files, no other host, nothing inline; other files are not served."""
    for path, base in (
        ("/ui", "./"),
        ("/ui/", "../"),
        ("/ui/jobs", "../"),
        ("/ui/dbs/a%2Fb/documents/c", "../../../../"),
    ):
        page = app.send("GET", path)
        assert (page.status_code, f'<base href="{base}">' in page.text) == (200, True)
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "<script>" not in page.text
        assert " style=" not in page.text
    for name in ("main.js", "views/ask.js", "vendor/htm-preact.js", "console.css", "icon.svg"):
        file = app.send("GET", f"/page/{name}")
        assert (file.status_code, file.headers["cache-control"]) == (200, "no-cache")
    for name in (
        "..%2froutes.py",
        "routes.py",
        "%2e%2e",
        "index.html",
        "vendor",
        "vendor/README.md",
    ):
        assert app.send("GET", f"/page/{name}").status_code == 404


def test_a_reload_asks_for_no_module_again(tmp_path: Path, browser: Browser) -> None:
    """The page names all modules, under a version of theirs, and browsers keep them.

    The session is one round of requests. If this fails: each reload loads forty files, one after
    the other's imports.
    """
    with live_server(run_config(), tmp_path) as url:
        store(url, "farm", "The owl sleeps in a tree.")
        shell = httpx.get(f"{url}/ui").text
        named = re.findall(r'"(page/[0-9a-f]{16}/[^"]+)"', shell)
        for name in named:
            file = httpx.get(f"{url}/{name}")
            assert (file.status_code, "immutable" in file.headers["cache-control"]) == (200, True)
        other = httpx.get(f"{url}/{named[0].replace(named[0].split('/')[1], '0' * 16)}")
        assert (other.status_code, other.headers["cache-control"]) == (200, "no-cache")
        loaded = "performance.getEntriesByType('resource').filter((one) => one.transferSize > 0)"
        names = f"{loaded}.map((one) => one.name).filter((one) => one.includes('/page/'))"
        for is_first in (True, False):
            browser.open(f"{url}/ui/dbs/farm/settings", 1440)
            wait(browser, "document.querySelector('main .facts') !== null")
            sent = [each.removeprefix(f"{url}/") for each in browser.evaluate(names)]
            assert set(sent) == (set(named) if is_first else set())


def test_a_document_is_text_and_never_markup(
    tmp_path: Path, files: list[Path], browser: Browser
) -> None:
    """Scripts, odd direction marks and a line of 1 MB: nothing runs, and nothing overflows.

    If this fails: whoever can put in a document can act as whoever looks at it.
    """
    with live_server(run_config(), tmp_path) as url:
        prepare(browser, url, files, 390)
        browser.open(url + ask_path("farm", "hostile words", "why"), 390)
        assert any("<script>" in text for text in hits(browser))
        assert browser.evaluate("document.title.startsWith('Corral')")
        assert browser.evaluate("document.querySelectorAll('main img, main script').length") == 0
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390
        assert browser.errors == []


def test_with_keys_the_page_asks_for_one_and_keeps_it_to_itself(
    tmp_path: Path, browser: Browser
) -> None:
    """Without a key it shows nothing; with one it works, and nothing is stored unless wished.

    A key that no header can carry, and one that is not valid, are refused in words that say what to
    do, and the form stays.
    """
    key = create_key(tmp_path, "admin")
    alert = "document.querySelector('main [role=alert]')?.textContent"
    stored = "localStorage.length + sessionStorage.length + document.cookie.length"
    with live_server(run_config(), tmp_path) as url:
        browser.open(f"{url}/ui/health", 1440)
        wait(browser, "document.querySelector('main h1')?.textContent.includes('needs an API key')")
        sign_in(browser, "corral-ключ")
        wait(browser, f"{alert}?.startsWith('Character 8 of the API key')")
        sign_in(browser, f"corral_{'0' * 12}_{'0' * 64}")
        wait(browser, f"{alert}?.startsWith('The API key is not valid.')")
        assert "ask an admin for a new one (`corral keys create NAME`)" in browser.evaluate(alert)
        sign_in(browser, key)
        wait(browser, "document.getElementById('providers') !== null")
        assert browser.evaluate(stored) == 0
        browser.open(f"{url}/ui/health", 1440)
        sign_in(browser, key, stays=True)
        wait(browser, "document.getElementById('providers') !== null")
        assert browser.evaluate("Object.keys(sessionStorage).join()") == "corral.key"
        browser.open(f"{url}/ui/health", 1440)
        wait(browser, "document.getElementById('providers') !== null")
        browser.evaluate("document.querySelector('header button:last-child').click()")
        wait(browser, "document.getElementById('key-form') !== null")
        assert browser.evaluate(stored) == 0


def test_a_reader_is_told_what_is_not_allowed(tmp_path: Path, browser: Browser) -> None:
    """A reader asks and reads; what takes another role is disabled and says so, and no view fails.

    If this fails: a reader is told only by an error, after trying.
    """
    with live_server(run_config(), tmp_path) as url:
        store(url, "farm", "The owl sleeps in a tree.")
        admin, key = create_key(tmp_path, "admin"), create_key(tmp_path, "reader", "--tenant", "")
        assert admin != key
        browser.open(url + ask_path("farm", "where does the owl sleep?"), 1440)
        sign_in(browser, key, stays=True)
        wait(browser, "document.getElementById('answer')?.textContent.includes('tree')")
        for view in (*VIEWS, "dbs/farm/evaluate"):
            browser.open(f"{url}/ui/{view}", 1440)
            wait(browser, "document.querySelector('main h1') !== null")
            wait(browser, "document.querySelector('main [aria-busy=true]') === null")
            shown = browser.evaluate("document.querySelector('main').innerText")
            if view in ("jobs", "keys", "dbs", "dbs/farm/documents", "dbs/farm/settings"):
                assert "This needs the role" in shown, view
            assert browser.errors == [], view
        assert browser.evaluate("document.getElementById('files')") is None
        browser.open(f"{url}/ui/dbs/farm/settings", 1440)
        wait(browser, BUTTON.format("'Delete the vector DB'") + "?.disabled")
        browser.evaluate("sessionStorage.clear()")


def test_an_operator_creates_and_revokes_a_key(tmp_path: Path, browser: Browser) -> None:
    """The key is shown once and works; a revoked one is refused from the next request on."""
    key = create_key(tmp_path, "admin")
    with live_server(run_config(), tmp_path) as url:
        browser.open(f"{url}/ui/keys", 1440)
        sign_in(browser, key)
        wait(browser, "document.querySelectorAll('#keys tr').length === 1")
        fill(browser, "[name=user]", "ann <b>")
        browser.evaluate("document.getElementById('new-key').requestSubmit()")
        made = wait(browser, "document.getElementById('secret')?.textContent")
        asked = "fetch('/v1/whoami', {headers: {authorization: 'Bearer %s'}}).then((r) => r.status)"
        assert browser.evaluate(asked % made) == 200
        wait(browser, "document.querySelectorAll('#keys tr').length === 2")
        click(browser, "Hide")
        wait(browser, "document.getElementById('secret') === null")
        browser.evaluate("document.querySelector('#keys tr:last-child button').click()")
        click(browser, "Yes")
        wait(browser, "document.querySelector('#keys tr:last-child').innerText.includes('revoked')")
        assert browser.evaluate(asked % made) == 401
