"""Rebuilding over HTTP: begun, built step by step, switched, and refused where it cannot work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .harness import InProcess, Json, id_path, message_of, run_config


@pytest.fixture
def app(tmp_path: Path) -> Iterator[InProcess]:
    """Yield the app with a vector DB `db` of seven chunks, whose model is another one by now."""
    with InProcess(tmp_path, run_config(dimension=32)) as started:
        started.register()
        started.insert(*[{"content": f"hundene number{n}", "chunk_id": f"c{n}"} for n in range(7)])
    with InProcess(tmp_path, run_config(dimension=64)) as started:
        yield started


def rebuild(app: InProcess, action: str = "", body: Json | None = None, db: str = "db") -> Any:
    """POST to a rebuild's route and return the reply."""
    return app.ok("POST", f"{id_path(db)}/rebuild{action}", body)


def test_a_changed_model_is_a_conflict_until_the_rebuild(app: InProcess) -> None:
    """A query and an insert that embed are a 409 that names the way out; that way works.

    If this fails: people with a changed model get wrong answers, or cannot get out.
    """
    refused = [
        app.send("POST", "/v1/vector-io/query", {"vector_db_id": "db", "query": "hundene"}),
        app.send(
            "POST", "/v1/vector-io/insert", {"vector_db_id": "db", "chunks": [{"content": "x"}]}
        ),
    ]
    for response in refused:
        assert response.status_code == 409
        assert "dimension was 32, is 64" in message_of(response)
        assert "corral reembed 'db'" in response.text
        assert response.headers["x-should-retry"] == "false"
    assert rebuild(app, "", {"embedding_model": "hashing"})["embeds"] is True
    first = rebuild(app, "/step", {"limit": 5})
    assert first == {"seen": 5, "copied": 5, "last_id": "c4", "done": False, "total": 7}
    second = rebuild(app, "/step", {"limit": 5, "after": first["last_id"]})
    assert (second["seen"], second["done"]) == (2, True)
    done = rebuild(app, "/switch")
    assert (done["vector_db"]["embedding_dimension"], done["note"]) == (64, "")
    assert app.contents("hundene number3", max_chunks=1, mode="vector") == ["hundene number3"]
    app.insert("one more")
    assert rebuild(app, "", {"embedding_model": "hashing"})["needed"] is False


def test_a_rebuild_is_given_up(app: InProcess) -> None:
    """The old index serves as before, and the next rebuild may be another one."""
    rebuild(app, "", {"language": "nb"})
    rebuild(app, "/step", {})
    assert rebuild(app, "/abandon") is None
    assert app.ok("GET", id_path("db"))["language"] == "english"
    assert app.ok("GET", "/v1/orphans")["data"] == []
    assert rebuild(app, "", {"language": "de"})["changes"]["language"] == "german"


@pytest.mark.parametrize(
    "db", ["a/rebuild", "rebuild", "../rebuild/step", "🙂 %2F", "rebuild/step"]
)
def test_any_id_can_be_rebuilt(app: InProcess, db: str) -> None:
    """An id that ends as the routes do is still an id."""
    app.register(db)
    app.insert({"content": "hundene", "chunk_id": "c"}, db=db)
    assert rebuild(app, "", {"language": "nb"}, db)["embeds"] is False
    assert rebuild(app, "/step", {}, db)["copied"] == 1
    assert rebuild(app, "/switch", None, db)["vector_db"]["language"] == "norwegian"
    assert app.contents("hund", db=db, mode="keyword") == ["hundene"]


@pytest.mark.parametrize(
    ("action", "body", "status", "said"),
    [
        ("", {"metric": "l2"}, 400, "metric"),
        ("", {"language": "klingon"}, 400, "klingon"),
        ("", {"field_weights": {"title": 2.0}}, 400, "content"),
        ("", {"embedding_model": "unknown"}, 400, "unknown"),
        ("/step", {"limit": 0}, 400, "limit"),
        ("/step", {"limit": 10_001}, 400, "limit"),
        ("/step", {}, 409, "is not being rebuilt"),
        ("/switch", None, 409, "is not being rebuilt"),
        ("/abandon", None, 409, "is not being rebuilt"),
    ],
)
def test_a_bad_request_is_refused(
    app: InProcess, action: str, body: Any, status: int, said: str
) -> None:
    """The message names what is wrong, and nothing is begun."""
    response = app.send("POST", f"{id_path('db')}/rebuild{action}", body)
    assert response.status_code == status, response.text
    assert said in message_of(response)
    assert app.send("POST", f"{id_path('db')}/rebuild/abandon").status_code == 409
