"""The playground at `/`: a browser goes through it as a person would."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from corral.bench.report import render_html
from corral.server.cli.cli import main

from ..bench.report.example_report import example_report
from ..bench.report.headless import INSTALLED, Browser
from .harness import InProcess, live_server, run_config
from .playground import ask, fill, listed, texts, wait

TOPICS = ["fox", "owl", "hare", "bear", "wolf", "lynx", "crane", "heron", "otter", "badger"]
HOSTILE = (
    "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\"> "
    "hostile \u202e\u2066 words " + "long" * 250_000
)


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


def prepare(browser: Browser, files: list[Path]) -> None:
    """Register a vector DB, and upload the files."""
    wait(browser, "document.querySelector('[name=embedding_model]').options.length")
    fill(browser, "[name=vector_db_id]", "farm")
    browser.evaluate("document.getElementById('register-form').requestSubmit()")
    wait(browser, "document.getElementById('db').value === 'farm'")
    browser.choose("#files", *files)
    wait(browser, "document.querySelectorAll('#documents tbody tr').length === 2")
    wait(browser, "document.querySelectorAll('#jobs td.failed').length === 1")


def test_a_person_goes_through_the_page(
    tmp_path: Path, files: list[Path], browser: Browser
) -> None:
    """Register, upload, ask, compare, change alpha, copy as curl and run it, judge, tune.

    If this fails: the message says what the page waited for, and what it said meanwhile.
    """
    config = run_config()
    (tmp_path / "run.yaml").write_text(config.model_dump_json())  # JSON is YAML; for the command
    with live_server(config, tmp_path) as url:
        browser.open(url, 1280)
        prepare(browser, files)
        assert listed(browser) == ["hostile.txt", "The fox (topics.md)"]
        failed = browser.evaluate("document.querySelector('#jobs .failed').closest('tr').innerText")
        assert "broken.pdf" in failed
        assert "Retry" in failed
        assert "burrow 1" in ask(browser, "where does the owl sleep?")[0]
        assert all(texts(browser, mode) for mode in ("vector", "keyword"))
        marks = "[...document.querySelectorAll('#keyword mark')].map((one) => one.textContent)"
        assert {"owl", "sleeps"} <= set(browser.evaluate(marks))
        scores = "[...document.querySelectorAll('#hybrid strong')].map((one) => one.textContent)"
        before = browser.evaluate(scores)
        fill(browser, "#alpha", "1")
        wait(browser, f"JSON.stringify({scores}) !== {json.dumps(json.dumps(before))}")
        context = browser.evaluate("document.getElementById('context').textContent")
        assert "burrow 1" in context
        curl = browser.evaluate("import('/page/copy.js').then((copy) => copy.written('curl'))")
        answer = subprocess.run(
            ["sh", "-c", curl], capture_output=True, text=True, timeout=60, check=True
        )
        assert "burrow 1" in answer.stdout
        fill(browser, "#alpha", "0.55")
        judge_all(browser)
        assert browser.errors == []
        assert all(address.startswith((url, "blob:")) for address in browser.requests)
        lines = browser.evaluate("import('/page/judge.js').then((judge) => judge.lines())")
    questions = tmp_path / "questions.jsonl"
    questions.write_text(lines, "utf-8")
    words = ["bench", "tune", "--db", "farm", "--queries", str(questions)]
    tuned = CliRunner().invoke(main, ["--home", str(tmp_path), *words])
    assert tuned.exit_code == 0, tuned.output
    assert "nDCG@10" in tuned.output


def judge_all(browser: Browser) -> None:
    """Ask of every topic, and mark its first hit as right; one is marked wrong and taken back."""
    for name in TOPICS:
        assert f"# The {name}" in ask(browser, f"where does the {name} sleep?")[0]
        browser.evaluate("document.querySelector('#hybrid [data-said=right]').click()")
    browser.evaluate("document.querySelector('#hybrid [data-said=wrong]').click()")
    browser.evaluate("document.querySelector('#hybrid [data-said=right]').click()")
    told = browser.evaluate("document.getElementById('judged').textContent")
    assert told == f"{len(TOPICS)} judged questions."


def test_a_document_is_text_and_never_markup(
    tmp_path: Path, files: list[Path], browser: Browser
) -> None:
    """Scripts, odd direction marks and a line of 1 MB: nothing runs, and nothing overflows.

    If this fails: whoever can put in a document can act as whoever looks at it.
    """
    with live_server(run_config(), tmp_path) as url:
        browser.open(url, 360)
        prepare(browser, files)
        assert any("<script>" in text for text in ask(browser, "hostile words"))
        assert browser.evaluate("document.title") == "Corral"
        assert browser.evaluate("document.querySelectorAll('main img, main script').length") == 0
        width = browser.evaluate("document.documentElement.scrollWidth")
        assert width <= 360
        assert browser.errors == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light")])
def test_nothing_keeps_anybody_from_using_it(
    tmp_path: Path, files: list[Path], browser: Browser, width: int, scheme: str
) -> None:
    """axe-core finds no violation, with hits, a context and jobs on the page.

    If this fails: the message has axe's rule and the element.
    """
    axe = INSTALLED / "axe.min.js"
    if not axe.exists():
        pytest.skip("no Chromium: axe-core comes with it")
    with live_server(run_config(), tmp_path) as url:
        browser.open(url, width, scheme=scheme)
        prepare(browser, files)
        ask(browser, "where does the owl sleep?")
        browser.evaluate("document.getElementById('db-details').open = true")
        browser.evaluate(axe.read_text("utf-8") + "; 0")
        script = "axe.run().then((found) => found.violations.map((v) => [v.id, v.nodes[0].html]))"
        assert browser.evaluate(script) == []
        keep(browser, f"playground-{width}-{scheme}.png")


def keep(browser: Browser, name: str) -> None:
    """Write a screenshot into the folder that $CORRAL_SCREENSHOTS names, for people to look at."""
    folder = os.environ.get("CORRAL_SCREENSHOTS")
    if folder:
        width = browser.evaluate("innerWidth")
        box = {"x": 0, "y": 0, "width": width, "height": 1900}
        (Path(folder) / name).write_bytes(browser.screenshot(box))


def test_with_keys_the_page_asks_for_one_and_keeps_it_to_itself(
    tmp_path: Path, browser: Browser
) -> None:
    """Without a key it shows nothing; with one it works, and nothing is stored in the browser.

    A key that no header can carry, and one that is not valid, are refused in words that say what to
    do, and the form stays.
    """
    made = CliRunner().invoke(
        main, ["--home", str(tmp_path), "keys", "create", "page", "--role", "admin"]
    )
    assert made.exit_code == 0, made.output
    [key] = [word for word in made.output.split() if word.startswith("corral")][:1]
    with live_server(run_config(), tmp_path) as url:
        browser.open(url, 1280)
        wait(browser, "!document.getElementById('key-form').hidden")
        message = "document.getElementById('message').textContent"
        assert browser.evaluate(message) == "This server needs an API key."
        fill(browser, "#key", "corral-ключ")
        browser.evaluate("document.getElementById('key-form').requestSubmit()")
        wait(browser, f"{message}.startsWith('Character 8 of the API key')")
        fill(browser, "#key", f"corral_{'0' * 12}_{'0' * 64}")
        browser.evaluate("document.getElementById('key-form').requestSubmit()")
        wait(browser, f"{message}.startsWith('The API key is not valid.')")
        assert "ask an admin for a new one (`corral keys create NAME`)" in browser.evaluate(message)
        assert not browser.evaluate("document.getElementById('key-form').hidden")
        fill(browser, "#key", key)
        browser.evaluate("document.getElementById('key-form').requestSubmit()")
        wait(browser, "document.getElementById('key-form').hidden")
        wait(browser, "document.querySelector('[name=embedding_model]').options.length")
        kept = "localStorage.length + sessionStorage.length + document.cookie.length"
        assert browser.evaluate(kept) == 0


def test_reports_are_listed_in_a_sandbox(app: InProcess) -> None:
    """Those in the data folder's `reports`, the newest first; no other file is served."""
    for name in ("one", "two <b>"):
        folder = app.home / "reports" / name
        folder.mkdir(parents=True)
        (folder / "report.html").write_text(f"<h1>{name}</h1>", "utf-8")
    (app.home / "reports" / "report.html").write_text("outside")
    listed = app.ok("GET", "/reports")["data"]
    assert {report["name"] for report in listed} == {"one", "two <b>"}
    shown = app.send("GET", "/reports/two%20%3Cb%3E")
    assert shown.status_code == 200
    assert "sandbox" in shown.headers["content-security-policy"]
    for path in ("/reports/..%2Freports", "/reports/%2e%2e%2freports%2fone", "/reports/none"):
        assert app.send("GET", path).status_code == 404


def test_a_report_sorts_its_tables_and_asks_for_nothing(tmp_path: Path, browser: Browser) -> None:
    """Opened from the page, its buttons work; its script is of no origin and reaches no route.

    If this fails: the buttons are dead, or a text in a report acts as whoever looks at it.
    """
    folder = tmp_path / "reports" / "one"
    folder.mkdir(parents=True)
    (folder / "report.html").write_text(render_html(example_report()), "utf-8")
    with live_server(run_config(), tmp_path) as url:
        browser.open(url, 1280)
        opened = wait(browser, "document.querySelector('#reports a')?.href")
        browser.open(opened, 1280)
        browser.evaluate("document.querySelector('thead button').click()")
        sort = "document.querySelector('thead th').getAttribute('aria-sort')"
        assert browser.evaluate(sort) == "ascending"
        assert browser.errors == []
        assert browser.evaluate("self.origin") == "null"
        for path in ("/v1/vector-dbs", "/v1/health"):
            asked = f"fetch({json.dumps(url + path)}).then(() => 'reached', () => 'refused')"
            assert browser.evaluate(asked) == "refused"


def test_the_playground_has_a_strict_policy(app: InProcess) -> None:
    """No script but its own files, no other host, nothing inline; other files are not served."""
    page = app.send("GET", "/", headers={"accept": "text/html"})
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "<script>" not in page.text
    assert " style=" not in page.text
    for name in ("main.js", "documents.js", "page.css", "icon.svg"):
        assert app.send("GET", f"/page/{name}").status_code == 200
    for name in ("..%2froutes.py", "routes.py", "%2e%2e"):
        assert app.send("GET", f"/page/{name}").status_code == 404
