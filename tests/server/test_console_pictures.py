"""The pictures of the console in the documentation, and what is on its first screen."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from ..bench.report.headless import Browser
from .console import address, ask_path, hits, keep, wait
from .harness import live_server, run_config

FARM = {
    "fences.md": "# Fences\n\nA fence keeps the sheep in. It is checked each spring, before the "
    "lambs go out.\n\n| part | lasts |\n|---|---|\n| post | 15 years |\n| wire | 20 years |\n",
    "winter.md": "# Winter\n\nIn winter the ewes eat hay and oats. The hay is kept dry in the barn."
    "\n\n```python\nhay = ewes * 2.5\n```\n",
    "dogs.md": "# Dogs\n\nThe dog brings the sheep home in the evening. It obeys a whistle.\n",
    "shearing.md": "# Shearing\n\nSheep are shorn in June, when the wool rises from the skin.\n",
}
QUESTION = "What do the ewes eat in winter?"


def fill_farm(url: str) -> None:
    """Register `farm` and insert its documents."""
    with httpx.Client(base_url=url, timeout=60) as http:
        body = {"vector_db_id": "farm", "embedding_model": "hashing"}
        http.post("/v1/vector-dbs", json=body).raise_for_status()
        documents = [
            {"document_id": name, "content": text, "metadata": {"filename": name}}
            for name, text in FARM.items()
        ]
        insert = {"vector_db_id": "farm", "documents": documents, "chunk_size_in_tokens": 64}
        http.post("/v1/tool-runtime/rag-tool/insert", json=insert).raise_for_status()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 768, 390])
def test_question_answer_and_source_are_on_the_first_screen(
    tmp_path: Path, browser: Browser, width: int, scheme: str
) -> None:
    """In each size the field, the answer and its first source need no scrolling.

    The pictures of the documentation are made here. If this fails: look at them.
    """
    folder = os.environ.get("CORRAL_SCREENSHOTS") if scheme == "light" else None
    with live_server(run_config(), tmp_path) as url:
        fill_farm(url)
        browser.open(url + ask_path("farm", QUESTION), width, 800, scheme)
        wait(browser, "document.querySelector('.answered[aria-busy=false]') !== null")
        assert "hay and oats" in browser.evaluate("document.getElementById('answer').textContent")
        for one in ("#question", "#answer", "#sources .source"):
            box = f"document.querySelector('{one}').getBoundingClientRect()"
            assert browser.evaluate(f"{box}.top >= 0 && {box}.top + 24 < innerHeight"), one
        if width == 1440:
            keep(browser, folder, "console-answer.png")
            browser.open(url + ask_path("farm", QUESTION, "why"), width, 1000, scheme)
            hits(browser)
            keep(browser, folder, "console-why.png")
        cited = address("dbs", "farm", "documents", "winter.md")
        chunks = httpx.get(f"{url}/v1/vector-dbs/farm/documents/winter.md").json()["chunks"]
        browser.open(f"{url}{cited}?chunk={chunks[0]['chunk_id']}", width, 800, scheme)
        wait(browser, "document.querySelector('.chunk.cited') !== null")
        assert browser.evaluate("document.querySelector('.chunk.cited pre').textContent")
        if width == 390:
            keep(browser, folder, "console-phone.png")
        assert browser.errors == []
