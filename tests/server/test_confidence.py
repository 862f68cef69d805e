"""Confidence on the wire: with every answer, and a least one in registrations and requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import InProcess, Json, run_config

TEXTS = ["the red barn stands on the hill", "a red fence around the barn", "the river bank floods"]
KNOWN, UNKNOWN = "where does the red barn stand", "who tunes the violin"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[InProcess]:
    """Return the app with a vector DB of three chunks on SQLite."""
    with InProcess(tmp_path, run_config()) as started:
        started.register("db", min_confidence=0.5)
        chunks = [{"content": text, "chunk_id": f"c{n}"} for n, text in enumerate(TEXTS)]
        started.ok("POST", "/v1/vector-io/insert", {"vector_db_id": "db", "chunks": chunks})
        yield started


def query(app: InProcess, text: str, **params: object) -> Json:
    """Ask the chunk route."""
    body = {"vector_db_id": "db", "query": text, "params": params}
    reply: Json = app.ok("POST", "/v1/vector-io/query", body)
    return reply


def rag(app: InProcess, text: str, **config: object) -> Json:
    """Ask the RAG tool."""
    body = {"content": text, "vector_db_ids": ["db"], "query_config": config}
    reply: Json = app.ok("POST", "/v1/tool-runtime/rag-tool/query", body)
    return reply


@pytest.mark.parametrize("mode", ["vector", "keyword", "hybrid"])
def test_every_answer_has_a_confidence(app: InProcess, mode: str) -> None:
    """Both routes tell it, in each mode, and they agree.

    If this fails: a caller cannot tell an answer from the nearest text.
    """
    found = query(app, KNOWN, mode=mode, min_confidence=0)
    assert 0 <= found["confidence"] <= 1
    assert rag(app, KNOWN, mode=mode, min_confidence=0)["metadata"]["confidence"] == pytest.approx(
        found["confidence"]
    )
    assert "reason" not in found


def test_nothing_relevant_is_said(app: InProcess) -> None:
    """The registration's least confidence empties both answers, and both say why."""
    found, context = query(app, UNKNOWN), rag(app, UNKNOWN)
    assert (found["chunks"], found["scores"], found["reason"]) == ([], [], "nothing_relevant")
    assert context["content"] in (None, [])
    assert context["metadata"]["reason"] == "nothing_relevant"
    assert query(app, UNKNOWN, min_confidence=0)["chunks"]


def test_explained_it_says_what_it_is_made_of(app: InProcess) -> None:
    """`explain` brings the cosine and the share of the best keyword score."""
    told = query(app, KNOWN, explain=True)["evidence"]
    assert 0 < told["keyword_share"] < 1
    assert 0 < told["cosine"] <= 1


def test_a_registration_shows_its_settings(app: InProcess) -> None:
    """The least confidence and the cosine from which it counts are in the registration."""
    stored = app.ok("GET", "/v1/vector-dbs/db")
    assert (stored["min_confidence"], stored["unrelated_cosine"]) == (0.5, 0.0)
    mine = app.register("mine", unrelated_cosine=0.7)
    assert mine["unrelated_cosine"] == 0.7
