"""`recency` over HTTP: newer chunks first among equals, explained, registered or requested."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from .harness import InProcess, Json

YEAR = {"field": "date", "half_life": 365}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """Serve two vector DBs of the same notes; `fresh` registers a `recency`."""
    with InProcess(tmp_path_factory.mktemp("recency")) as app:
        app.register("plain")
        app.register("fresh", recency=YEAR)
        for db in ("plain", "fresh"):
            chunks = [note("new", 1), note("old", 2000), note("undated", None), note("other", 1)]
            chunks[3]["content"] = "The goats are on the hill and eat thistles."
            app.ok("POST", "/v1/vector-io/insert", {"vector_db_id": db, "chunks": chunks})
        yield app


def note(chunk_id: str, days: int | None) -> Json:
    """Return a chunk of this many days; the chunk ids decide ties against the newest."""
    day = datetime.now(UTC) - timedelta(days=days or 0)
    metadata = {} if days is None else {"date": day.isoformat()}
    name = {"new": "z-new", "old": "a-old"}.get(chunk_id, chunk_id)
    return {"content": "The gate opens at eight.", "chunk_id": name, "metadata": metadata}


def ids(reply: Json) -> list[str]:
    """Return the chunk ids of an answer, best first."""
    return [chunk["chunk_id"] for chunk in reply["chunks"]]


@pytest.mark.parametrize("mode", ["vector", "keyword", "hybrid"])
def test_the_newest_of_equals_is_first(app: InProcess, mode: str) -> None:
    """Equal texts are ordered by age in each mode; what is undated counts as old; others stay."""
    plain = app.query("when does the gate open", "plain", mode=mode)
    assert ids(plain)[:3] == ["a-old", "undated", "z-new"]
    found = app.query("when does the gate open", "plain", mode=mode, recency=YEAR)
    assert ids(found)[:3] == ["z-new", "a-old", "undated"]
    assert found["scores"] == sorted(found["scores"], reverse=True)


def test_a_registered_recency_counts_and_a_request_turns_it_off(app: InProcess) -> None:
    """The registration's `recency` holds for requests without one; weight 0 switches it off."""
    assert ids(app.query("gate", "fresh"))[0] == "z-new"
    off = {**YEAR, "weight": 0}
    assert ids(app.query("gate", "fresh", recency=off)) == ids(app.query("gate", "plain"))


def test_k_is_applied_after_recency(app: InProcess) -> None:
    """With k = 1 the newest is the hit, though others were before it."""
    assert ids(app.query("gate", "fresh", max_chunks=1)) == ["z-new"]


def test_two_vector_dbs_are_ranked_as_one(app: InProcess) -> None:
    """A context over both has the newest chunk of each before the older ones."""
    body = {
        "content": "gate",
        "vector_db_ids": ["plain", "fresh"],
        "query_config": {"recency": YEAR, "max_chunks": 4, "deduplicate": False},
    }
    found = app.ok("POST", "/v1/tool-runtime/rag-tool/query", body)["metadata"]["included_chunks"]
    assert [each["chunk_id"] for each in found][:2] == ["z-new", "z-new"]


def test_a_score_is_explained(app: InProcess) -> None:
    """An explanation has the age, and the numbers that the score is made of."""
    reply = app.query("gate", "fresh", explain=True)
    for why, score in zip(reply["explanations"], reply["scores"], strict=True):
        parts = why["recency"]
        above = parts["score_before"] - parts["floor"]
        assert score == pytest.approx(parts["floor"] + above * parts["factor"])
    by_id = dict(zip(ids(reply), reply["explanations"], strict=True))
    assert by_id["z-new"]["recency"]["age_days"] == pytest.approx(1, abs=0.5)
    assert "age_days" not in by_id["undated"]["recency"]


@pytest.mark.parametrize(
    "recency",
    [{"field": "date"}, {**YEAR, "half_life": 0}, {**YEAR, "weight": 1.5}, {**YEAR, "field": ""}],
)
def test_a_malformed_recency_is_refused(app: InProcess, recency: dict[str, Any]) -> None:
    """Without a half-life, or out of range, it is a 400 that names the field."""
    body = {"vector_db_id": "plain", "query": "gate", "params": {"recency": recency}}
    reply = app.send("POST", "/v1/vector-io/query", body)
    assert reply.status_code == 400
    assert "recency" in reply.text
