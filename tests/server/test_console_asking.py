"""What the console asks, shows and keeps while questions and settings change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..bench.report.headless import Browser, find_browser
from ..chat_service import running_chat
from .console import (
    MESSAGE,
    address,
    ask,
    ask_path,
    click,
    fill,
    hits,
    modelless_config,
    module,
    store,
    tab_to,
    wait,
)
from .harness import live_server, run_config
from .openai.answers import with_model


def test_an_answer_streams_with_links_to_its_sources(tmp_path: Path, browser: Browser) -> None:
    """Numbers in the text and sources beside it lead to the passage, which is marked.

    If this fails: whoever reads an answer cannot see what it is taken from.
    """
    with live_server(run_config(), tmp_path) as url:
        store(url, "birds", "The owl sleeps in a tree. It hunts mice.", "The hen 🐔 lays eggs.")
        browser.open(url + address("dbs", "birds", "ask"), 1440)
        ask(browser, "where does the owl sleep?")
        wait(browser, "document.querySelector('#answer sup a') !== null")
        wait(browser, "document.querySelector('.answered[aria-busy=false]') !== null")
        answer = browser.evaluate("document.getElementById('answer').textContent")
        assert answer.startswith("The owl sleeps in a tree.[1]")
        assert "tree" in browser.evaluate("document.querySelector('#sources .quote').textContent")
        browser.evaluate("document.querySelector('#answer sup a').click()")
        cited = wait(browser, "document.querySelector('.chunk.cited')?.textContent")
        assert cited == "The owl sleeps in a tree. It hunts mice."
        browser.evaluate("history.back()")
        wait(browser, "document.querySelector('#answer sup a') !== null")
        ask(browser, "\u200b?")
        assert browser.errors == []


def test_several_vector_dbs_answer_together(tmp_path: Path, browser: Browser) -> None:
    """With others ticked, sources come from each of them, with and without settings moved."""
    with live_server(run_config(), tmp_path) as url:
        store(url, "bears", "The bear sleeps in a cave.")
        store(url, "birds", "The owl sleeps in a tree.")
        for settings in ({}, {"k": "4", "mode": "keyword"}):
            browser.open(url + ask_path("birds", "who sleeps?", also="bears", **settings), 1440)
            wait(browser, "document.querySelector('.answered[aria-busy=false]') !== null")
            assert {"bears", "birds"} == set(
                browser.evaluate(
                    "[...document.querySelectorAll('.source a')]"
                    ".map((one) => one.pathname.split('/')[3])"
                )
            )


def test_an_admin_asks_as_another_user(tmp_path: Path, browser: Browser) -> None:
    """Answer, context and hits are of what that user may read, with settings moved too.

    If this fails: an admin who checks permissions sees documents that the user does not.
    """
    with live_server(run_config(), tmp_path) as url:
        facts = ("The owl sleeps in a tree.", "The hen lays an egg.")
        store(url, "birds", *facts, default_acl=["group:keepers"])
        path = ask_path("birds", "where does the owl sleep?", "options", "why", "context")
        browser.open(url + path, 1440)
        answer = "document.getElementById('answer')?.textContent"
        context = "document.getElementById('context')?.textContent"
        wait(browser, f"{answer}?.includes('owl')")
        fill(browser, "#as", "ann")
        wait(browser, "location.search.includes('as=ann')")
        wait(browser, f"{answer} === 'Nothing was found that answers this question.'")
        wait(browser, f"{context}?.startsWith('(empty')")
        wait(browser, "document.querySelectorAll('#results .hit, .source').length === 0")
        fill(browser, "#groups", "keepers others")
        wait(browser, f"{answer}?.includes('owl')")
        wait(browser, f"{context}?.includes('owl')")
        wait(browser, "document.querySelectorAll('#results .hit').length > 0")
        shown = browser.evaluate("document.getElementById('asked-as').textContent")
        assert "what ann of keepers, others may read" in shown
        browser.open(url + path + "&as=ann&k=4", 1440)
        wait(browser, f"{answer} === 'Nothing was found that answers this question.'")
        assert browser.errors == []


def test_the_configured_model_answers_with_changed_settings(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`answers.model` answers, with moved settings too, though another model is listed first.

    If this fails: whoever moves a setting gets the answer of another model.
    """
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_chat() as service:
        config = with_model(service, answers={"model": "extractive"})
        with live_server(config, tmp_path) as url:
            store(url, "birds", "The owl sleeps in a tree. It hunts mice.")
            for settings in ({}, {"k": "4"}):
                browser.open(url + ask_path("birds", "where does the owl sleep?", **settings), 1440)
                wait(browser, "document.querySelector('#answer sup a') !== null")
                answer = browser.evaluate("document.getElementById('answer').textContent")
                assert answer.startswith("The owl sleeps in a tree.")
            assert service.requests == []


def test_without_a_language_model_the_context_is_shown(tmp_path: Path, browser: Browser) -> None:
    """The page says that there is no model, and shows the context with links to its documents."""
    with live_server(modelless_config(), tmp_path) as url:
        store(url, "birds", "The owl sleeps in a tree.")
        browser.open(url + ask_path("birds", "who sleeps?"), 1440)
        wait(browser, "document.getElementById('context')?.textContent.includes('owl')")
        assert "language model" in browser.evaluate("document.querySelector('main').innerText")
        assert browser.evaluate("document.querySelectorAll('#sources a').length") == 1


@pytest.mark.parametrize("has_model", [True, False])
def test_a_refused_question_shows_nothing_of_the_one_before(
    tmp_path: Path, browser: Browser, has_model: bool
) -> None:
    """Where a question is refused, the answer, hits and context of the one before are gone.

    If this fails: whoever marks what is still there marks it for the question that was refused.
    """
    with live_server(run_config() if has_model else modelless_config(), tmp_path) as url:
        store(url, "birds", "The owl sleeps in a tree.")
        browser.open(url + ask_path("birds", "who sleeps?", "why"), 1440)
        hits(browser)
        browser.evaluate(  # what is typed can hold no such question: the field drops nothing
            module("router.js") + ".then((it) => it.go(it.address(['dbs', 'birds', 'ask'],"
            " {q: '\\u200b', show: ['why']})))"
        )
        wait(browser, "document.querySelectorAll('main [role=alert]').length === 2")
        assert browser.evaluate("document.querySelectorAll('.hit, .source, #context').length") == 0
        assert "owl" not in browser.evaluate("document.querySelector('main').innerText")


# Holds back the reply to the first question until it is let go.
HOLD_BACK = """
(() => {
  const real = window.fetch;
  window.fetch = async (path, options) => {
    const reply = await real(path, { ...options, signal: undefined });
    const isFirst = options.body?.includes("who sleeps first");
    if (isFirst) await new Promise((go) => { window.letGo = go; });
    return reply;
  };
})()
"""


def test_the_last_question_wins(tmp_path: Path, browser: Browser) -> None:
    """A reply to a question that is no longer asked changes nothing.

    If this fails: the page shows one question, and the hits of another.
    """
    with live_server(run_config(), tmp_path) as url:
        store(url, "birds", "The owl sleeps in a tree.")
        browser.open(url + address("dbs", "birds", "ask", show="why"), 1440)
        wait(browser, "document.getElementById('question') !== null")
        browser.evaluate(HOLD_BACK)
        ask(browser, "who sleeps first")
        wait(browser, "window.letGo !== undefined")
        ask(browser, "no such words at all")
        wait(browser, "document.getElementById('vector') !== null")
        wait(browser, "document.querySelector('main').innerText.includes('answer is complete')")
        before = browser.evaluate("document.querySelector('main').innerText")
        browser.evaluate("window.letGo()")
        browser.evaluate("new Promise((done) => setTimeout(done, 300))")
        assert browser.evaluate("document.querySelector('main').innerText") == before


@pytest.mark.parametrize(
    ("language", "text", "question", "words"),
    [
        ("english", "Cities grow. No citizen leaves the city.", "city", ["Cities", "city"]),
        ("german", "Die Bücher im Buchenwald.", "Buch", ["Bücher"]),
        ("chinese", "这是一个数据库系统", "数据库", ["数据库"]),
        ("simple", "Ask E-4711, not xE-4711.", "e4711", ["E-4711"]),
        ("english", "owl " * 200_000, "owl", ["owl"] * 1000),
    ],
    ids=["english", "german", "chinese", "simple", "long"],
)
def test_matched_words_are_marked(
    tmp_path: Path, browser: Browser, language: str, text: str, question: str, words: list[str]
) -> None:
    """What is marked is the words that were matched, however they are inflected, and no others.

    Of very many the first thousand are marked. If this fails: a hit does not show why it is one.
    """
    with live_server(run_config(), tmp_path) as url:
        store(url, "db", text, language=language)
        browser.open(url + ask_path("db", question, "why"), 1440)
        assert hits(browser, "keyword") == [text]
        marks = "[...document.querySelectorAll('#keyword mark')].map((one) => one.textContent)"
        assert browser.evaluate(marks) == words
        assert browser.errors == []


def config_of(browser: Browser, path: str, db: dict[str, Any]) -> dict[str, Any]:
    """Return the options that an address sends to the RAG tool."""
    script = (
        f"{module('searching.js')}.then((it) => it.ragRequest(new URLSearchParams("
        f"{json.dumps(path.partition('?')[2])}), {json.dumps(db)}).query_config)"
    )
    found: dict[str, Any] = browser.evaluate(script)
    return {name: found[name] for name in ("mode", "ranker", "rerank", "filters") if name in found}


def test_a_request_says_what_was_moved_and_no_more(tmp_path: Path, browser: Browser) -> None:
    """Settings start as registered; only what differs is sent, in the registered ranker's terms.

    If this fails: the page shows other answers than the agents that ask the vector DB get.
    """
    weighted = {"type": "weighted", "alpha": 0.9, "normalization": "raw", "candidates": 30}
    mmr = {"type": "mmr", "lambda": 0.2, "relevance": "both"}
    ranked: dict[str, Any] = {"identifier": "r", "search_mode": "hybrid", "ranker": {"type": "rrf"}}
    words = {"identifier": "w", "search_mode": "keyword", "ranker": weighted, "rerank": mmr}
    z_score = {"type": "weighted", "normalization": "z_score", "alpha": 0.4}
    eq = {"type": "eq", "key": "a", "value": 1}
    cases: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
        (ranked, {}, {}),
        (ranked, {"alpha": "0.4"}, {"ranker": z_score}),
        (ranked, {"mmr": "on"}, {"rerank": {"type": "mmr", "lambda": 0.5}}),
        (ranked, {"filter": json.dumps(eq)}, {"filters": eq}),
        (words, {}, {}),
        (words, {"alpha": "0.3"}, {}),  # keyword search fuses nothing
        (
            words,
            {"alpha": "0.3", "mode": "hybrid"},
            {"mode": "hybrid", "ranker": {**weighted, "alpha": 0.3}},
        ),
        (words, {"lambda": "0.7"}, {"rerank": {**mmr, "lambda": 0.7}}),
        (words, {"mmr": "off"}, {"rerank": {"type": "none"}}),
    ]
    with live_server(run_config(), tmp_path) as url:
        browser.open(f"{url}/ui/health", 1440)
        for db, settings, options in cases:
            assert config_of(browser, ask_path("db", "q", **settings), db) == options, settings
        store(url, "db", "The owl sleeps.", ranker={"type": "rrf"})
        browser.open(url + ask_path("db", "owl", "why", "options"), 1440)
        hits(browser)
        assert browser.evaluate("document.querySelector('output[for=alpha]').textContent") == "rrf"
        fill(browser, "#alpha", "0.4")
        wait(browser, "location.search.includes('alpha=0.4')")
        hits(browser)
        assert browser.evaluate("document.querySelector('output[for=alpha]').textContent") == "0.4"
        click(browser, "As registered")
        wait(browser, "!location.search.includes('alpha')")


@pytest.mark.parametrize("form", ["curl", "Python", "JSON"])
@pytest.mark.parametrize("host", ["127.0.0.1", "corral.test"])
def test_the_buttons_copy(tmp_path: Path, host: str, form: str) -> None:
    """A button puts the request into the clipboard, under a name without TLS too; the focus stays.

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
        path = ask_path("db", "who 'sleeps'?", "copies")
        browser.open(url.replace("127.0.0.1", host) + path, 1440)
        assert browser.evaluate("window.isSecureContext") == (host == "127.0.0.1")
        copies = "[...document.querySelectorAll('[data-copies] button')]"
        button = f"{copies}.find((one) => one.textContent === 'Copy as {form}')"
        wait(browser, f"{button} !== undefined")
        browser.evaluate(f"{button}.focus()")
        browser.press("Enter")
        wait(browser, f"{MESSAGE} === 'Copied as {form}.'")
        assert browser.evaluate("document.activeElement.textContent") == f"Copy as {form}"
        browser.evaluate("(document.getElementById('question').value = '', 0)")
        browser.evaluate("document.getElementById('question').focus()")
        browser.paste()
        copied = browser.evaluate("document.getElementById('question').value")
        assert "sleeps" in copied
        assert {"curl": "curl -sS", "Python": "import json", "JSON": "{"}[form] in copied


def test_on_a_phone_question_and_answer_are_on_the_first_screen(
    tmp_path: Path, browser: Browser
) -> None:
    """With 50 files and 50 vector DBs, the field and the first words need no scrolling.

    If this fails: a person on a phone asks, and sees nothing change.
    """
    with live_server(run_config(), tmp_path) as url:
        store(url, "birds")
        files = [
            {"document_id": f"owl{n}.md", "content": f"The owl sleeps in tree {n}."}
            for n in range(50)
        ]
        with httpx.Client(base_url=url, timeout=60) as http:
            body = {"vector_db_id": "birds", "documents": files, "chunk_size_in_tokens": 64}
            http.post("/v1/tool-runtime/rag-tool/insert", json=body).raise_for_status()
        for n in range(50):
            store(url, f"other{n}", "x")
        browser.open(url + address("dbs", "birds", "ask"), 390, 664)
        ask(browser, "who sleeps?")
        wait(browser, "document.getElementById('answer')?.textContent.includes('owl')")
        for name in ("question", "answer"):
            box = f"document.getElementById('{name}').getBoundingClientRect()"
            assert browser.evaluate(f"{box}.top >= 0 && {box}.top + 24 < innerHeight"), name
        assert browser.evaluate("scrollY") == 0


def test_the_keyboard_alone_asks_and_opens_a_source(tmp_path: Path, browser: Browser) -> None:
    """Tab and Enter reach the content, the question, a citation, its document and the way back.

    If this fails: somebody without a mouse cannot use the console.
    """
    with live_server(run_config(), tmp_path) as url:
        store(url, "birds", "The owl sleeps in a tree.")
        browser.open(url + address("dbs", "birds", "ask"), 1440)
        wait(browser, "document.getElementById('question') !== null")
        tab_to(browser, "one.className === 'skip'")
        browser.press("Enter")
        assert browser.evaluate("document.activeElement.id") == "main"
        tab_to(browser, "one.id === 'question'")
        fill(browser, "#question", "where does the owl sleep?")
        browser.press("Enter")
        wait(browser, "document.querySelector('.answered[aria-busy=false] sup a') !== null")
        tab_to(browser, "one.matches('#answer sup a')")
        browser.press("Enter")
        wait(browser, "document.querySelector('.chunk.cited') !== null")
        tab_to(browser, "one.textContent.startsWith('Documents of')")
        browser.press("Enter")
        wait(browser, "document.getElementById('no-documents') !== null")
        assert browser.errors == []
