"""Tuning a vector DB of a running server: a job, its report, one click there and one back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.api.principal import Role
from corral.bench.tuning.judged import MAX_QUESTIONS, questions_of
from corral.providers.stack.judged_sets import JudgedQuestion

from ...server.harness import InProcess, Json, Requests, run_config
from ...server.secured import Holder, holder

WORDS = [f"word{number}" for number in range(60)]
WAIT_SECONDS = 300
PATH = "/v1/tunings"
OF = "vector_db_id=db"


def text_of(number: int) -> str:
    """Return a text of 24 words, different for each number."""
    return " ".join(WORDS[(number * 7 + place * (1 + number % 5)) % 60] for place in range(24))


@pytest.fixture
def app(tmp_path: Path) -> Iterator[InProcess]:
    """Yield a server with embeddings of eight dimensions, which find little."""
    with InProcess(tmp_path, run_config(dimension=8)) as app:
        yield app


def fill(server: Requests, count: int, **settings: str) -> None:
    """Register a vector DB, store 60 chunks, and judge questions that name one each."""
    server.register(**settings)
    server.insert(*({"chunk_id": f"c{n}", "content": f"item{n} {text_of(n)}"} for n in range(60)))
    server.ok("POST", "/v1/judgments", {"vector_db_id": "db", "name": "main"})
    for n in range(count):
        judge(server, f"item{n}", f"c{n}")


def judge(server: Requests, question: str, chunk_id: str, *, suggested: bool = False) -> None:
    """Judge a chunk as an answer."""
    body = {"vector_db_id": "db", "name": "main", "question": question, "grades": {chunk_id: 1}}
    server.ok("POST", "/v1/judgments/questions", {**body, "suggested": suggested})


def started(server: Requests) -> Json:
    """Start a tuning."""
    made: Json = server.ok("POST", PATH, {"vector_db_id": "db", "name": "main"})
    return made


def ended(server: Requests, tuning: Json) -> Json:
    """Return a tuning once it has ended."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        now: Json = server.ok("GET", f"{PATH}/{tuning['tuning_id']}?{OF}")
        if now["status"] not in ("queued", "running"):
            return now
        assert time.monotonic() < deadline, now


def act(server: Requests, tuning: Json, name: str) -> Json:
    """Cancel, apply or take back a tuning."""
    path = f"{PATH}/{tuning['tuning_id']}/{name}"
    changed: Json = server.ok("POST", path, {"vector_db_id": "db"})
    return changed


def registered(server: Requests) -> Json:
    """Return the registration."""
    found: Json = server.ok("GET", "/v1/vector-dbs/db")
    return found


def test_a_recommendation_is_applied_and_taken_back(app: InProcess) -> None:
    """Vector search that finds little gives way to a better one; undo restores it exactly.

    If this fails: a click changes a registration for good.
    """
    fill(app, 40, search_mode="vector")
    before = registered(app)
    tuning = ended(app, started(app))
    assert (tuning["status"], tuning["error"]) == ("completed", "")
    assert tuning["done"] == tuning["total"] > 100
    report = tuning["report"]
    assert (report["registered"], report["n_train"], report["n_held_out"]) == ("vector", 20, 20)
    assert report["chosen"].startswith(("keyword", "hybrid"))
    assert "Change from vector" in report["statement"]
    assert registered(app) == before
    changed = act(app, tuning, "apply")
    assert changed["tuning"]["applied"] is True
    assert changed["vector_db"] == registered(app) != before
    assert registered(app)["search_mode"] == report["recommended"]["search_mode"] != "vector"
    assert act(app, tuning, "apply")["vector_db"] == registered(app)
    restored = act(app, tuning, "undo")
    assert restored["tuning"]["applied"] is False
    assert registered(app) == before == restored["vector_db"]
    again = app.send("POST", f"{PATH}/{tuning['tuning_id']}/undo", {"vector_db_id": "db"})
    assert again.status_code == 409


def test_undo_does_not_overwrite_a_later_change(app: InProcess) -> None:
    """A second tuning that was applied has to be taken back first.

    If this fails: undo brings back settings over those that somebody has chosen since.
    """
    fill(app, 40, search_mode="vector")
    tuning = ended(app, started(app))
    act(app, tuning, "apply")
    stack = app.app.state.stack
    later = app.run(lambda: stack.change_search("db", {"search_mode": "vector", "cutoff": "gap"}))
    refused = app.send("POST", f"{PATH}/{tuning['tuning_id']}/undo", {"vector_db_id": "db"})
    assert refused.status_code == 409
    assert registered(app) == later.model_dump(mode="json")


def test_it_recommends_to_stay_where_nothing_is_resolvable(app: InProcess) -> None:
    """Ten questions that every search answers change nothing, and apply is refused."""
    fill(app, 10, search_mode="keyword")
    tuning = ended(app, started(app))
    report = tuning["report"]
    assert report["chosen"] == report["registered"] == "keyword"
    assert report["statement"].startswith("Stay with keyword")
    assert report["recommended"] == {}
    before = registered(app)
    refused = app.send("POST", f"{PATH}/{tuning['tuning_id']}/apply", {"vector_db_id": "db"})
    assert refused.status_code == 409
    assert registered(app) == before


def test_too_few_questions_are_refused_before_it_starts(app: InProcess) -> None:
    """Nine questions, or an unknown set, start nothing."""
    fill(app, 9)
    body = {"vector_db_id": "db", "name": "main"}
    refused = app.send("POST", PATH, body)
    assert (refused.status_code, "10 questions are needed" in refused.text) == (400, True)
    assert app.send("POST", PATH, {**body, "name": "absent"}).status_code == 400
    assert app.send("POST", PATH, {**body, "vector_db_id": "absent"}).status_code == 404
    assert app.ok("GET", f"{PATH}?{OF}")["data"] == []


def test_a_tuning_is_cancelled(app: InProcess) -> None:
    """It ends, and has no report; the server answers other requests in the meantime."""
    fill(app, 60)
    tuning = started(app)
    assert app.send("POST", PATH, {"vector_db_id": "db", "name": "main"}).status_code == 409
    act(app, tuning, "cancel")
    assert app.ok("POST", "/v1/vector-io/query", {"vector_db_id": "db", "query": "item3"})["chunks"]
    found = ended(app, tuning)
    assert (found["status"], found["report"]) == ("cancelled", None)


def test_who_may_tune(app: InProcess) -> None:
    """A writer starts and cancels, an admin applies, and another tenant finds nothing."""
    fill(app, 10)
    admin = holder(app, "ada", Role.ADMIN)
    writer = holder(app, "will", Role.WRITER)
    reader = holder(app, "rea", Role.READER)
    stranger = holder(app, "gil", Role.ADMIN, tenant="globex")
    body = {"vector_db_id": "db", "name": "main"}
    assert reader.status("POST", PATH, body) == reader.status("GET", f"{PATH}?{OF}") == 403
    tuning = ended(writer, started(writer))
    assert (tuning["user"], tuning["status"]) == ("will", "completed")
    path = f"{PATH}/{tuning['tuning_id']}"
    of: Json = {"vector_db_id": "db"}
    for name in ("apply", "undo"):
        assert writer.status("POST", f"{path}/{name}", of) == 403
        assert admin.status("POST", f"{path}/{name}", of) == 409
    for each in (stranger.send("POST", PATH, body), stranger.send("GET", f"{PATH}?{OF}")):
        assert each.status_code == 404
    for name in ("cancel", "apply", "undo"):
        assert stranger.status("POST", f"{path}/{name}", of) == 404
    assert stranger.status("GET", f"{path}?{OF}") == 404


def test_a_writer_tunes_with_the_judgments_that_it_sees(app: InProcess) -> None:
    """Questions about hidden chunks do not count for it.

    If this fails: figures and notes tell of documents that the writer may not read.
    """
    fill(app, 9)
    admin: Holder = holder(app, "ada", Role.ADMIN)
    admin.insert({"chunk_id": "pay", "content": "The pay is high.", "acl": ["group:hr"]})
    judge(admin, "how high is the pay?", "pay")
    writer = holder(app, "will", Role.WRITER)
    assert writer.status("POST", PATH, {"vector_db_id": "db", "name": "main"}) == 400
    assert ended(admin, started(admin))["status"] == "completed"


def test_a_report_says_that_questions_were_suggested(app: InProcess) -> None:
    """They favor keyword search, and a note says so."""
    fill(app, 9)
    judge(app, "item9", "c9", suggested=True)
    notes = ended(app, started(app))["report"]["notes"]
    assert any(note.startswith("1 of the questions were suggested") for note in notes)


def test_at_most_three_hundred_questions_are_tuned_with() -> None:
    """A seeded sample of the answered ones."""
    judged = [JudgedQuestion(n, f"q{n}", f"text {n}", {"c": n % 10}) for n in range(1000)]
    first, second = (questions_of(judged, "main", seed) for seed in (1, 2))
    assert len(first.texts) == MAX_QUESTIONS
    assert first != second
    assert first == questions_of(judged, "main", 1)
    assert all(not key.endswith("0") for key in first.texts)
