"""What the playground asks, shows and keeps while vector DBs and questions change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from corral.providers.base.config import ProviderEntry

from ..bench.report.headless import Browser, find_browser
from .harness import live_server, run_config
from .playground import ask, fill, select, store, texts, wait

SHOWN = "!document.getElementById('results').hidden"
LINES = "import('/page/judge.js').then((judge) => judge.lines())"
RIGHT = "document.querySelector('#hybrid [data-said=right]')"
CURRENT = "import('/page/registry.js').then((one) => one.current.identifier)"
CONTEXT = "document.getElementById('context').textContent"
MESSAGE = "document.getElementById('message').textContent"


def judged(browser: Browser) -> list[dict[str, Any]]:
    """Return the questions as the page hands them to `corral bench tune`."""
    return [json.loads(line) for line in browser.evaluate(LINES).splitlines()]


def open_page(browser: Browser, url: str) -> None:
    """Open the page, and wait until it has its vector DBs."""
    browser.open(url, 1280)
    wait(browser, "document.getElementById('db').value")


def test_a_judgment_is_of_its_vector_db(tmp_path: Path, browser: Browser) -> None:
    """The page hands over the marks of the vector DB that it shows, and asks it at once.

    If this fails: questions.jsonl names chunks of a vector DB that is not the one tuned.
    """
    with live_server(run_config(), tmp_path) as url:
        store(url, "birds", "The owl sleeps in a tree.")
        store(url, "bears", "The bear sleeps in a cave.")
        open_page(browser, url)
        select(browser, "birds")
        wait(browser, f"{CURRENT}.then((name) => name === 'birds')")
        assert "owl" in ask(browser, "who sleeps?")[0]
        browser.evaluate(f"{RIGHT}.click()")
        assert judged(browser) == [{"query": "who sleeps?", "relevant": ["birds-0"]}]
        select(browser, "bears")
        wait(browser, "document.getElementById('hybrid').textContent.includes('bear')")
        assert judged(browser) == []
        assert browser.evaluate(f"{RIGHT}.getAttribute('aria-pressed')") == "false"
        assert browser.evaluate("document.getElementById('download').hidden")
        browser.evaluate(f"{RIGHT}.click()")
        assert judged(browser) == [{"query": "who sleeps?", "relevant": ["bears-0"]}]
        select(browser, "birds")
        wait(browser, "document.getElementById('hybrid').textContent.includes('owl')")
        assert judged(browser) == [{"query": "who sleeps?", "relevant": ["birds-0"]}]
        fill(browser, "[name=vector_db_id]", "new")
        browser.evaluate("document.getElementById('register-form').requestSubmit()")
        wait(browser, "document.getElementById('hybrid').textContent === 'Nothing found.'")
        assert judged(browser) == []
        assert "--db 'new'" in browser.evaluate("document.getElementById('tune').textContent")


def test_a_refused_question_shows_nothing_to_judge(tmp_path: Path, browser: Browser) -> None:
    """Where a question is refused, the hits, context and confidence of the one before go.

    If this fails: whoever marks what is still there marks it for the question that was refused.
    """
    with live_server(run_config(), tmp_path) as url:
        store(url, "birds", "The owl sleeps in a tree.")
        open_page(browser, url)
        assert ask(browser, "who sleeps?")
        assert browser.evaluate(SHOWN)
        fill(browser, "#ask", "\u200b")  # no character that can be seen
        browser.evaluate("document.getElementById('ask-form').requestSubmit()")
        wait(browser, f"{MESSAGE}.includes('empty')")
        for part in ("results", "confidence", "context-section"):
            assert browser.evaluate(f"document.getElementById('{part}').hidden")
        assert texts(browser, "hybrid") == []


# Holds back the reply about one vector DB until it is let go, and counts how often jobs are asked
# for, which is what follows a selection.
HOLD_BACK = """
(() => {
  const real = window.fetch;
  window.watched = 0;
  window.fetch = async (path, options) => {
    if (path.startsWith("v1/jobs")) window.watched += 1;
    const reply = await real(path, options);
    if (path === "v1/vector-dbs/birds") await new Promise((go) => { window.letGo = go; });
    return reply;
  };
})()
"""


def test_the_last_selection_wins(tmp_path: Path, browser: Browser) -> None:
    """A reply about a vector DB that is no longer selected changes nothing.

    If this fails: the list shows one vector DB, and the page asks another.
    """
    with live_server(run_config(), tmp_path) as url:
        for name in ("asses", "bears", "birds"):
            store(url, name, f"The {name} sleep.")
        open_page(browser, url)
        browser.evaluate(HOLD_BACK)
        select(browser, "birds")
        wait(browser, "window.letGo !== undefined")
        select(browser, "bears")
        wait(browser, f"{CURRENT}.then((name) => name === 'bears')")
        wait(browser, "window.watched === 1")
        browser.evaluate("letGo()")
        wait(browser, "window.watched === 2")
        assert browser.evaluate(CURRENT) == "bears"
        assert ask(browser, "who sleeps?") == ["The bears sleep."]


def marks(browser: Browser) -> list[str]:
    """Return what is marked in the hits of keyword search."""
    script = "[...document.querySelectorAll('#keyword mark')].map((one) => one.textContent)"
    found: list[str] = browser.evaluate(script)
    return found


@pytest.mark.parametrize(
    ("language", "text", "question", "words"),
    [
        ("english", "Cities grow. No citizen leaves the city.", "city", ["Cities", "city"]),
        ("german", "Die Bücher im Buchenwald.", "Buch", ["Bücher"]),
        ("chinese", "这是一个数据库系统", "数据库", ["数据库"]),
        ("simple", "Ask E-4711, not xE-4711.", "e4711", ["E-4711"]),
    ],
)
def test_matched_words_are_marked(
    tmp_path: Path, browser: Browser, language: str, text: str, question: str, words: list[str]
) -> None:
    """What is marked is the words that were matched, however they are inflected, and no others.

    If this fails: a hit does not show why it is one.
    """
    with live_server(run_config(), tmp_path) as url:
        store(url, "db", text, language=language)
        open_page(browser, url)
        assert ask(browser, question)
        assert marks(browser) == words


def test_a_long_chunk_breaks_nothing(tmp_path: Path, browser: Browser) -> None:
    """Of 200,000 matched words the first thousand are marked, and the whole text is there.

    If this fails: one chunk keeps everybody from seeing what any question finds.
    """
    text = "owl " * 200_000
    with live_server(run_config(), tmp_path) as url:
        store(url, "db", text)
        open_page(browser, url)
        assert ask(browser, "owl") == [text]
        assert marks(browser) == ["owl"] * 1000
        assert browser.errors == []


def request(browser: Browser) -> dict[str, Any]:
    """Return what the page would ask the RAG tool for, as it copies it."""
    copied: str = browser.evaluate("import('/page/copy.js').then((copy) => copy.written('json'))")
    found: dict[str, Any] = json.loads(copied)["query_config"]
    return {name: found[name] for name in ("mode", "ranker", "rerank") if name in found}


def state(browser: Browser) -> list[Any]:
    """Return what the settings show: mode, alpha, MMR and lambda."""
    read = "((id) => document.getElementById(id))"
    alpha = "document.querySelector('output[for=alpha]').textContent"
    shown: list[Any] = browser.evaluate(
        f"[{read}('mode').value, {alpha}, {read}('mmr').checked, {read}('lambda').value]"
    )
    return shown


def test_the_settings_start_as_registered(tmp_path: Path, browser: Browser) -> None:
    """What the registration says is asked for and shown; a request says what was moved, no more.

    If this fails: the page shows other answers than the agents that ask the vector DB get.
    """
    weighted = {"type": "weighted", "alpha": 0.9, "normalization": "raw", "candidates": 30}
    mmr = {"type": "mmr", "lambda": 0.2, "relevance": "both"}
    with live_server(run_config(), tmp_path) as url:
        store(url, "ranked", "The owl sleeps.", ranker={"type": "rrf"})
        store(url, "words", "The owl.", search_mode="keyword", ranker=weighted, rerank=mmr)
        open_page(browser, url)
        assert state(browser) == ["hybrid", "rrf", False, "0.5"]
        assert ask(browser, "bear")
        assert request(browser) == {}
        assert "owl" in browser.evaluate(CONTEXT)
        fill(browser, "#alpha", "0.4")
        assert state(browser)[1] == "0.4"
        ranker = {"type": "weighted", "normalization": "z_score", "alpha": 0.4}
        assert request(browser) == {"ranker": ranker}
        select(browser, "words")
        wait(browser, f"{CONTEXT}.startsWith('(empty')")  # by keywords nothing is found
        assert state(browser) == ["keyword", "0.9", True, "0.2"]
        assert request(browser) == {}
        fill(browser, "#alpha", "0.3")
        assert request(browser) == {}  # keyword search fuses nothing
        fill(browser, "#mode", "hybrid")
        wait(browser, f"{CONTEXT}.includes('owl')")
        assert request(browser) == {"mode": "hybrid", "ranker": {**weighted, "alpha": 0.3}}
        fill(browser, "#lambda", "0.7")
        assert request(browser)["rerank"]["lambda"] == 0.7
        assert request(browser)["rerank"]["relevance"] == "both"
        browser.evaluate("document.getElementById('mmr').click()")
        assert request(browser)["rerank"] == {"type": "none"}


def test_a_vector_db_is_registered_with_the_settings_shown(
    tmp_path: Path, browser: Browser
) -> None:
    """Where the box is ticked, the mode, fusion and re-ranking on the page become a registration.

    If this fails: what somebody found by trying is lost when they register it.
    """
    with live_server(run_config(), tmp_path) as url:
        store(url, "db", "The owl sleeps.", ranker={"type": "rrf", "rank_constant": 7})
        open_page(browser, url)
        fill(browser, "#mode", "vector")
        browser.evaluate("document.getElementById('mmr').click()")
        fill(browser, "[name=vector_db_id]", "tried")
        browser.evaluate("document.querySelector('[name=found]').click()")
        browser.evaluate("document.getElementById('register-form').requestSubmit()")
        wait(browser, f"{CURRENT}.then((name) => name === 'tried')")
        made = httpx.get(f"{url}/v1/vector-dbs/tried").json()
        assert made["search_mode"] == "vector"
        assert made["ranker"]["rank_constant"] == 7
        assert (made["rerank"]["type"], made["rerank"]["lambda"]) == ("mmr", 0.5)
        assert state(browser) == ["vector", "rrf", True, "0.5"]


@pytest.mark.parametrize("form", ["curl", "python", "json"])
@pytest.mark.parametrize("host", ["127.0.0.1", "corral.test"])
def test_the_buttons_copy(tmp_path: Path, host: str, form: str) -> None:
    """What a button says is in the clipboard, under a name without TLS too; the focus stays.

    If this fails: the buttons are dead for whoever opens the page of a server in their network.
    """
    binary = find_browser()
    if binary is None:
        pytest.skip("no Chromium: run `make test`, which installs one with npm")
    config = run_config()
    config.server.allowed_hosts = ["corral.test"]
    rules = "--host-resolver-rules=MAP corral.test 127.0.0.1"
    with live_server(config, tmp_path) as url, Browser(binary, rules) as browser:
        store(url, "db", "The owl sleeps.")
        open_page(browser, url.replace("127.0.0.1", host))
        assert browser.evaluate("window.isSecureContext") == (host == "127.0.0.1")
        assert ask(browser, "who 'sleeps'?")
        browser.evaluate(f"document.querySelector('[data-copy={form}]').focus()")
        browser.press("Enter")
        wait(browser, f"{MESSAGE} === 'Copied as {form}.'")
        assert browser.evaluate("document.activeElement.dataset.copy") == form
        browser.evaluate("(document.getElementById('ask').value = '', 0)")
        browser.evaluate("document.getElementById('ask').focus()")
        browser.paste()
        written = browser.evaluate(f"import('/page/copy.js').then((it) => it.written('{form}'))")
        assert browser.evaluate("document.getElementById('ask').value") == written


@pytest.mark.parametrize(
    ("engine", "said"),
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
def test_the_tune_command_can_run(tmp_path: Path, browser: Browser, engine: str, said: str) -> None:
    """Where the command and the server cannot have a vector DB open together, the page says so.

    If this fails: the command that the page gives ends with an error of the engine.
    """
    config = run_config()
    config.providers.vector_io = [ProviderEntry(provider_id="here", provider_type=engine)]
    with live_server(config, tmp_path) as url:
        store(url, "db", "The owl sleeps.", provider_id="here")
        open_page(browser, url)
        ask(browser, "who sleeps?")
        browser.evaluate(f"{RIGHT}.click()")
        assert browser.evaluate("document.getElementById('tune').textContent") == said


def test_an_answer_has_links_to_its_sources(tmp_path: Path, browser: Browser) -> None:
    """The page shows the answer with numbers, and below it links to the pages of its documents.

    If this fails: the first screen lists chunks, and does not answer.
    """
    with live_server(run_config(), tmp_path) as url:
        store(url, "birds", "The owl sleeps in a tree. It hunts mice.")
        open_page(browser, url)
        ask(browser, "where does the owl sleep?")
        wait(browser, "!document.getElementById('answer-section').hidden")
        answer = browser.evaluate("document.getElementById('answer').textContent")
        assert answer.startswith("The owl sleeps in a tree.[1]")
        link = browser.evaluate("document.querySelector('#sources a').getAttribute('href')")
        assert httpx.get(f"{url}/{link.partition('#')[0]}").status_code == 200
        fill(browser, "#ask", "\u200b")
        browser.evaluate("document.getElementById('ask-form').requestSubmit()")
        wait(browser, "document.getElementById('answer-section').hidden")
