"""docs/keyword-search.md is true: its registrations and queries run, and find what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import InProcess, Json, run_config

PAGE = (Path(__file__).parents[2] / "docs" / "keyword-search.md").read_text("utf-8")


def blocks(kind: str) -> list[Json]:
    """Return the JSON blocks of a kind."""
    return [json.loads(each) for each in re.findall(rf"```json {kind}\n(.+?)\n```", PAGE, re.S)]


QUERIES: list[tuple[Json, list[str]]] = [
    (json.loads(body), re.findall("`(.+?)`", found))
    for body, found in re.findall(r"```json query\n(.+?)\n```\n\nFinds (.+?)\.\n", PAGE, re.S)
]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[InProcess]:
    """Yield the app with every vector DB of the page and its chunks, on SQLite."""
    with InProcess(tmp_path, run_config()) as app:
        for registration in blocks("register"):
            body = {**registration, "embedding_model": "hashing"}
            app.ok("POST", "/v1/vector-dbs", body)
            stored = {"vector_db_id": body["vector_db_id"], "chunks": blocks("chunks")[0]}
            app.ok("POST", "/v1/vector-io/insert", stored)
        yield app


def test_every_query_finds_what_the_page_says(shop: InProcess) -> None:
    """Each query's chunks, in their order, and no others."""
    assert len(QUERIES) == len(blocks("query"))
    for body, expected in QUERIES:
        answer = shop.ok("POST", "/v1/vector-io/query", body)
        assert [chunk["chunk_id"] for chunk in answer["chunks"]] == expected, body


def test_the_options_are_what_finds_it(shop: InProcess) -> None:
    """Without its option a query finds something else: the examples show what they are for."""
    options = [(body, expected) for body, expected in QUERIES if "params" in body]
    assert {name for body, _ in options for name in body["params"]} == {"query_syntax", "fuzzy"}
    for body, expected in options:
        answer = shop.ok("POST", "/v1/vector-io/query", {**body, "params": {}})
        assert [chunk["chunk_id"] for chunk in answer["chunks"]] != expected, body
    shown = {name for registration in blocks("register") for name in registration}
    assert {"field_weights", "language"} <= shown
