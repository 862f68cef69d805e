"""Copying over HTTP: step by step, verified, and refused where it cannot work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .harness import InProcess, Json, id_path, message_of, run_config

PROVIDERS = {
    "vector_io": [
        {"provider_id": "sqlite", "provider_type": "inline::sqlite"},
        {"provider_id": "memory", "provider_type": "inline::memory"},
    ],
    "embedding": [
        {
            "provider_id": "hashing",
            "provider_type": "inline::hashing",
            "config": {"dimension": 64},
        }
    ],
}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[InProcess]:
    """Yield the app on two providers, with a vector DB `db` of seven chunks on SQLite."""
    with InProcess(tmp_path, run_config(providers=PROVIDERS)) as started:
        started.register(search_mode="keyword", language="nb")
        started.insert(*[{"content": f"hundene number{n}", "chunk_id": f"c{n}"} for n in range(7)])
        yield started


def step(app: InProcess, db: str = "db", **body: Any) -> Json:
    """Take a step of a copy to `copy` on memory."""
    asked = {"target_id": "copy", "provider_id": "memory", **body}
    taken: Json = app.ok("POST", f"{id_path(db)}/copy", asked)
    return taken


def test_steps_lead_from_one_to_the_next(app: InProcess) -> None:
    """`last_id` is the next step's `after`, until `done`; every step may be repeated."""
    first = step(app, limit=3)
    assert first == {"seen": 3, "copied": 3, "last_id": "c2", "done": False, "total": 7}
    assert step(app, limit=3)["copied"] == 0
    second = step(app, limit=3, after=first["last_id"])
    assert (second["copied"], second["last_id"], second["done"]) == (3, "c5", False)
    third = step(app, limit=3, after=second["last_id"])
    assert (third["copied"], third["last_id"], third["done"]) == (1, "c6", True)
    after_the_end = step(app, after="c6")
    assert (after_the_end["seen"], after_the_end["last_id"]) == (0, "c6")


def test_a_copy_answers_as_its_source(app: InProcess) -> None:
    """Settings, chunks and scores are the same; the provider is the one that was named."""
    step(app)
    source, target = (app.ok("GET", id_path(db)) for db in ("db", "copy"))
    assert target["provider_id"] == "memory"
    own = {"identifier", "provider_id", "provider_resource_id", "created_at"}
    assert {k: v for k, v in target.items() if k not in own} == {
        k: v for k, v in source.items() if k not in own
    }
    for mode in ("vector", "keyword", "hybrid"):
        found = [app.query("hund number3", db=db, mode=mode, max_chunks=7) for db in ("db", "copy")]
        assert found[0]["chunks"] == found[1]["chunks"]
        assert found[0]["scores"] == pytest.approx(found[1]["scores"], abs=1e-6)


def test_a_good_copy_is_verified(app: InProcess) -> None:
    """The reply says what was compared."""
    step(app)
    assert app.ok("POST", f"{id_path('db')}/copy/verify", {"target_id": "copy"}) == {
        "source_count": 7,
        "target_count": 7,
        "sampled": 7,
        "exact": True,
        "vector_overlap": 1.0,
        "keyword_overlap": 1.0,
    }


def test_a_copy_that_differs_is_a_conflict(app: InProcess) -> None:
    """409, and the message says what differs."""
    step(app, limit=5)
    response = app.send("POST", f"{id_path('db')}/copy/verify", {"target_id": "copy"})
    assert response.status_code == 409
    assert "The target lacks 2 chunks, the first 'c5'." in message_of(response)
    assert response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("db", ["a/copy", "copy", "../copy/verify", "🙂 %2F", "copy/verify"])
def test_any_id_can_be_copied(app: InProcess, db: str) -> None:
    """An id that ends as the route does is still an id."""
    app.register(db)
    app.insert({"content": "the owl", "chunk_id": "c"}, db=db)
    target = f"{db}/copy"
    assert step(app, db, target_id=target, provider_id=None)["copied"] == 1
    app.ok("POST", f"{id_path(db)}/copy/verify", {"target_id": target})
    assert app.ok("GET", id_path(target))["provider_id"] == "sqlite"


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"target_id": "db"}, 400, "Source and target are the same"),
        ({"provider_id": "memroy"}, 400, "Did you mean 'memory'"),
        ({"limit": 0}, 400, "limit"),
        ({"limit": -1}, 400, "limit"),
        ({"limit": 10_001}, 400, "limit"),
        ({"limit": None}, 400, "limit"),
        ({"after": "x" * 256}, 400, "after"),
        ({"after": "c3"}, 400, "There is no vector DB 'copy'"),
        ({"after": None}, 400, "after"),
        ({"target_id": ""}, 400, "target_id"),
        ({"batch": 5}, 400, "batch"),
        ({"target_id": "other"}, 409, "another search_mode, language"),
    ],
)
def test_a_bad_step_is_refused(app: InProcess, body: Json, status: int, said: str) -> None:
    """Each refusal names the field or the vector DB, and registers nothing."""
    app.register("other")
    asked = {"target_id": "copy", **body}
    response = app.send("POST", f"{id_path('db')}/copy", asked)
    assert response.status_code == status, response.text
    assert said in message_of(response)
    assert {db["identifier"] for db in app.ok("GET", "/v1/vector-dbs")["data"]} == {"db", "other"}


@pytest.mark.parametrize("path", ["/copy", "/copy/verify"])
def test_an_unknown_source_is_refused(app: InProcess, path: str) -> None:
    """400, as for every unknown vector DB on these routes."""
    response = app.send("POST", f"{id_path('nobody')}{path}", {"target_id": "copy"})
    assert response.status_code == 400
    assert "There is no vector DB 'nobody'" in message_of(response)
    response = app.send("POST", f"{id_path('db')}/copy/verify", {"target_id": "nobody"})
    assert response.status_code == 400
