"""The console's view Evaluate: judge, suggest, tune, apply, take back."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from corral.providers.base.config import ProviderEntry

from ..bench.report.headless import Browser
from .console import (
    BUTTON,
    CATCH,
    MESSAGE,
    RIGHT,
    address,
    ask_path,
    click,
    create_key,
    downloaded_questions,
    fill,
    hits,
    mark_right,
    sign_in,
    store,
    tab_to,
    wait,
)
from .harness import live_server, run_config

WORDS = [f"word{number}" for number in range(60)]
TUNING = "document.querySelector('.tuning')"
TUNE = "Tune with these questions"


def text_of(number: int) -> str:
    """Return a text of 24 words and a name, different for each number."""
    words = (WORDS[(number * 7 + place * (1 + number % 5)) % 60] for place in range(24))
    return f"item{number} {' '.join(words)}."


def judged_store(url: str, count: int) -> None:
    """Store 60 chunks, searched by vectors of few dimensions, and judge questions about them."""
    store(url, "db", *map(text_of, range(60)), search_mode="vector")
    with httpx.Client(base_url=url, timeout=60) as http:
        of = {"vector_db_id": "db", "name": "main"}
        http.post("/v1/judgments", json=of).raise_for_status()
        for n in range(count):
            body = {**of, "question": f"item{n}", "grades": {f"db-{n}": 1}}
            http.post("/v1/judgments/questions", json=body).raise_for_status()


def search_mode(url: str) -> Any:
    """Return the registered search mode."""
    return httpx.get(f"{url}/v1/vector-dbs/db").json()["search_mode"]


def evaluate(browser: Browser, url: str, width: int = 1440, scheme: str = "light") -> None:
    """Open the view of the vector DB."""
    browser.open(url + address("dbs", "db", "evaluate"), width, scheme=scheme)
    wait(browser, "document.getElementById('judged') !== null")


def test_a_judgment_is_of_its_vector_db(tmp_path: Path, browser: Browser) -> None:
    """A mark belongs to the vector DB and question that it was made on, survives, and goes again.

    If this fails: questions.jsonl names chunks of a vector DB that is not the one tuned.
    """
    with live_server(run_config(), tmp_path) as url:
        store(url, "birds", "The owl sleeps in a tree.")
        store(url, "bears", "The bear sleeps in a cave.")
        question = 'who sleeps? "__proto__"'
        browser.open(url + ask_path("birds", question, "why"), 1440)
        hits(browser)
        mark_right(browser)
        row = json.loads(downloaded_questions(browser, url, "birds"))
        assert (row["query"], row["relevant"]) == (question, {"birds-0": 1})
        browser.evaluate(CATCH + "; window.saved = undefined")
        click(browser, "Export as BEIR")
        wait(browser, "window.saved !== undefined")
        packed = browser.evaluate("window.saved.bytes().then((them) => [...them])")
        assert "qrels/test.tsv" in zipfile.ZipFile(io.BytesIO(bytes(packed))).namelist()
        browser.open(url + ask_path("bears", question, "why"), 1440)
        wait(browser, f"{RIGHT}?.disabled === false")
        assert browser.evaluate(f"{RIGHT}.getAttribute('aria-pressed')") == "false"
        browser.open(url + ask_path("birds", question, "why"), 1440)
        wait(browser, f"{RIGHT}?.getAttribute('aria-pressed') === 'true'")
        browser.evaluate(f"{RIGHT}.click()")
        wait(browser, f"{RIGHT}.getAttribute('aria-pressed') === 'false'")
        browser.open(url + address("dbs", "birds", "evaluate"), 1440)
        wait(browser, "document.getElementById('judged')?.textContent.startsWith('0 judged')")
        assert browser.evaluate("localStorage.length + sessionStorage.length") == 0
        assert browser.errors == []


def test_sets_are_made_chosen_and_deleted(tmp_path: Path, browser: Browser) -> None:
    """A set is in the address; a question about a hit opened from it is judged into it."""
    with live_server(run_config(), tmp_path) as url:
        judged_store(url, 3)
        evaluate(browser, url)
        wait(browser, "document.querySelectorAll('#questions tr').length === 3")
        fill(browser, "#new-set [name=set]", "second")
        browser.evaluate("document.getElementById('new-set').requestSubmit()")
        wait(browser, "location.search === '?set=second'")
        wait(browser, "document.getElementById('judged')?.textContent.startsWith('0 judged')")
        browser.open(url + ask_path("db", "item7", "why", set="second"), 1440)
        mark_right(browser)
        browser.open(url + address("dbs", "db", "evaluate", set="second"), 1440)
        wait(browser, "document.getElementById('judged')?.textContent.startsWith('1 judged')")
        click(browser, "Delete the set")
        click(browser, "Yes")
        wait(browser, "location.search === ''")
        wait(browser, "document.getElementById('judged').textContent.startsWith('3 judged')")
        wait(browser, "document.getElementById('set').options.length === 1")
        click(browser, "Remove")
        click(browser, "Yes")
        wait(browser, "document.getElementById('judged').textContent.startsWith('2 judged')")
        assert browser.errors == []


def test_questions_are_suggested_and_taken_over(tmp_path: Path, browser: Browser) -> None:
    """Suggestions show their chunk; added ones are judged, and dropped ones are gone."""
    with live_server(run_config(), tmp_path) as url:
        judged_store(url, 1)
        evaluate(browser, url)
        click(browser, "Suggest questions")
        wait(browser, "document.querySelectorAll('#suggestions li').length === 10")
        assert "no language model" in browser.evaluate(
            "document.getElementById('suggested-by').textContent"
        )
        click(browser, "Drop")
        wait(browser, "document.querySelectorAll('#suggestions li').length === 9")
        click(browser, "Add")
        wait(browser, "document.querySelectorAll('#suggestions li').length === 8")
        wait(browser, "document.getElementById('judged').textContent.startsWith('2 judged')")
        click(browser, "Add all")
        wait(browser, "document.getElementById('judged').textContent.startsWith('10 judged')")
        assert browser.evaluate(MESSAGE) == "8 questions added."
        page = "document.querySelector('#questions').innerText.match(/suggested/g).length"
        assert browser.evaluate(page) == 9
        assert browser.errors == []


def test_a_tuning_is_watched_applied_and_taken_back(tmp_path: Path, browser: Browser) -> None:
    """One click starts it, one applies what it recommends, one brings the settings back.

    If this fails: the message says what the page waited for, and what it showed then.
    """
    with live_server(run_config(dimension=8), tmp_path) as url:
        judged_store(url, 40)
        evaluate(browser, url)
        click(browser, TUNE)
        wait(browser, f"{TUNING}?.dataset.status === 'completed'", 300)
        shown = browser.evaluate(f"{TUNING}.innerText")
        for part in ("Change from vector to", "vector (registered)", "(recommended)", "nDCG@10"):
            assert part in shown
        assert browser.evaluate("document.querySelectorAll('.trials svg circle').length") > 3
        assert search_mode(url) == "vector"
        click(browser, "Apply it")
        wait(browser, f"{MESSAGE}.startsWith('Applied: ')")
        wait(browser, BUTTON.format("'Take it back'") + " !== undefined")
        assert search_mode(url) != "vector"
        click(browser, "Take it back")
        wait(browser, f"{MESSAGE} === 'Taken back: vector.'")
        assert search_mode(url) == "vector"
        click(browser, TUNE)
        wait(browser, "document.querySelector('.tuning progress') !== null")
        click(browser, "Cancel")
        wait(browser, f"{TUNING}.dataset.status === 'cancelled'")
        assert browser.evaluate(f"{TUNING}.querySelector('table')") is None
        wait(browser, BUTTON.format(json.dumps(TUNE)) + ".disabled === false")
        assert browser.errors == []


def test_it_stays_where_nothing_is_resolvable(tmp_path: Path, browser: Browser) -> None:
    """There is nothing to apply then; too few questions are refused with the reason."""
    with live_server(run_config(), tmp_path) as url:
        judged_store(url, 9)
        evaluate(browser, url)
        click(browser, TUNE)
        wait(browser, f"{MESSAGE}.includes('10 questions are needed')")
        refused = "Failed to load resource: the server responded with a status of 400 (Bad Request)"
        assert browser.errors == [refused]
        browser.open(url + ask_path("db", "item9", "why"), 1440)
        mark_right(browser)
        evaluate(browser, url)
        click(browser, TUNE)
        wait(browser, f"{TUNING}?.dataset.status === 'completed'", 300)
        assert "Stay with vector" in browser.evaluate(f"{TUNING}.innerText")
        assert browser.evaluate(BUTTON.format("'Apply it'")) is None
        assert browser.errors == []


def test_a_reader_reads_the_judgments_and_is_told_the_rest(
    tmp_path: Path, browser: Browser
) -> None:
    """Marks show, and what changes something is disabled and says which role it takes.

    If this fails: a reader is told only by an error, after trying.
    """
    with live_server(run_config(), tmp_path) as url:
        judged_store(url, 10)
        create_key(tmp_path, "admin")
        key = create_key(tmp_path, "reader")
        browser.open(url + ask_path("db", "item3", "why"), 1440)
        sign_in(browser, key, stays=True)
        right = "document.querySelector('[data-said=right][aria-pressed=true]')"
        wait(browser, f"{right}?.disabled")
        assert "needs the role writer" in browser.evaluate(f"{right}.title")
        assert "needs the role writer" in browser.evaluate("document.body.innerText")
        evaluate(browser, url)
        wait(browser, "document.querySelectorAll('#questions tr').length === 10")
        for label in (TUNE, "Create", "Remove", "Delete the set"):
            wait(browser, BUTTON.format(json.dumps(label)) + "?.disabled")
        click(browser, "Suggest questions")
        wait(browser, "document.querySelectorAll('#suggestions li').length === 10")
        wait(browser, BUTTON.format("'Add all'") + "?.disabled")
        assert browser.errors == []
        browser.evaluate("sessionStorage.clear()")


def press(browser: Browser, label: str) -> None:
    """Reach the first button with this label by Tab, and press it by Enter."""
    tab_to(
        browser, f"one.matches('main button:enabled') && one.textContent === {json.dumps(label)}"
    )
    browser.press("Enter")


def test_the_keyboard_alone_judges_and_tunes(tmp_path: Path, browser: Browser) -> None:
    """Tab and Enter reach a mark, a suggestion, the start and report of a tuning, and its use.

    After `Apply it` the focus is on `Take back`. If this fails: a vector DB cannot be evaluated
    without a mouse.
    """
    with live_server(run_config(dimension=8), tmp_path) as url:
        judged_store(url, 38)
        browser.open(url + ask_path("db", "item38", "why"), 1440)
        wait(browser, f"{RIGHT}?.disabled === false")
        tab_to(browser, "one.matches('#results [data-said=right]')")
        browser.press("Enter")
        wait(browser, "document.activeElement.getAttribute('aria-pressed') === 'true'")
        evaluate(browser, url)
        wait(browser, "document.getElementById('judged').textContent.startsWith('39 judged')")
        press(browser, "Suggest questions")
        wait(browser, "document.querySelectorAll('#suggestions li').length === 10")
        press(browser, "Add")
        wait(browser, "document.getElementById('judged').textContent.startsWith('40 judged')")
        press(browser, TUNE)
        wait(browser, f"{TUNING}?.dataset.status === 'completed'", 300)
        tab_to(browser, "one.getAttribute('aria-label') === 'Settings that were tried'")
        press(browser, "Apply it")
        wait(browser, "document.activeElement.textContent === 'Take it back'")
        assert search_mode(url) != "vector"
        browser.press("Enter")
        wait(browser, f"{MESSAGE} === 'Taken back: vector.'")
        assert search_mode(url) == "vector"
        assert browser.errors == []


def test_the_keyboard_alone_keeps_sets(tmp_path: Path, browser: Browser) -> None:
    """A set is made by Enter in its field and chosen by letters; No gives the focus back."""
    with live_server(run_config(), tmp_path) as url:
        judged_store(url, 2)
        evaluate(browser, url)
        wait(browser, "document.querySelectorAll('#questions tr').length === 2")
        tab_to(browser, "one.name === 'set'")
        fill(browser, "#new-set [name=set]", "second")
        browser.press("Enter")
        wait(browser, "location.search === '?set=second'")
        wait(browser, "document.getElementById('judged')?.textContent.startsWith('0 judged')")
        tab_to(browser, "one.id === 'set'")
        browser.press("m")
        wait(browser, "location.search === ''")
        wait(browser, "document.querySelectorAll('#questions tr').length === 2")
        press(browser, "Remove")
        wait(browser, "document.activeElement.textContent === 'Yes'")
        tab_to(browser, "one.textContent === 'No'")
        browser.press("Enter")
        wait(browser, "document.activeElement.textContent === 'Remove'")
        browser.press("Enter")
        wait(browser, "document.activeElement.textContent === 'Yes'")
        browser.press("Enter")
        wait(browser, "document.getElementById('judged').textContent.startsWith('1 judged')")
        press(browser, "Delete the set")
        wait(browser, "document.activeElement.textContent === 'Yes'")
        browser.press("Enter")
        wait(browser, "document.getElementById('judged').textContent.startsWith('0 judged')")
        assert browser.errors == []


@pytest.mark.parametrize(
    ("engine", "command"),
    [
        ("inline::sqlite", "corral bench tune --db 'db' --queries questions.jsonl"),
        (
            "inline::milvus",
            "# inline::milvus serves one process at a time: stop this server first.\n"
            "corral bench tune --db 'db' --queries questions.jsonl",
        ),
        (
            "inline::memory",
            "# inline::memory keeps nothing that a command could tune. Ingest into another "
            "provider, such as inline::sqlite.",
        ),
    ],
)
def test_the_tune_command_can_run(
    tmp_path: Path, browser: Browser, engine: str, command: str
) -> None:
    """Where the command and the server cannot have a vector DB open together, the page says so.

    If this fails: the command that the page gives ends with an error of the engine.
    """
    config = run_config()
    config.providers.vector_io = [ProviderEntry(provider_id="here", provider_type=engine)]
    with live_server(config, tmp_path) as url:
        store(url, "db", "The owl sleeps.", provider_id="here")
        evaluate(browser, url)
        browser.evaluate("document.querySelector('main > details > summary').click()")
        wait(browser, "document.getElementById('tune') !== null")
        assert browser.evaluate("document.getElementById('tune').textContent") == command
