"""Judged questions on the server: sets, who sees them, suggestions, and files of BEIR."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from corral.api.principal import Role
from corral.bench.data.readers import read_beir

from ..chat_service import running_chat, said
from .harness import InProcess, Json, Requests
from .openai.answers import with_model
from .secured import Holder, holder

QUESTIONS = "/v1/judgments/questions"
ANIMALS = ("fox", "owl", "hare")


@pytest.fixture
def app(tmp_path: Path) -> Iterator[InProcess]:
    """Yield a server with a vector DB of three chunks and an empty set `main`."""
    with InProcess(tmp_path) as app:
        prepare(app)
        yield app


def prepare(server: Requests) -> None:
    """Register a vector DB with three chunks, and create a set."""
    server.register()
    chunks = [
        {"chunk_id": name, "content": f"# Burrows\n\nThe {name} sleeps in burrow {n} until noon."}
        for n, name in enumerate(ANIMALS)
    ]
    server.insert(*chunks)
    server.ok("POST", "/v1/judgments", {"vector_db_id": "db", "name": "main"})


def judgment(question: str, name: str = "main", **grades: int | None) -> Json:
    """Return the body of a judgment."""
    return {"vector_db_id": "db", "name": name, "question": question, "grades": grades}


def judged(server: Requests, name: str = "main", **page: int) -> Json:
    """Return a page of judged questions."""
    found: Json = server.ok("GET", f"{QUESTIONS}?{of(name)}&{urlencode(page)}")
    return found


def of(name: str = "main") -> str:
    """Return the parameters that name a set."""
    return urlencode({"vector_db_id": "db", "name": name})


def grades(server: Requests, name: str = "main") -> dict[str, dict[str, int]]:
    """Return the grades by question."""
    return {each["question"]: each["grades"] for each in judged(server, name)["data"]}


def test_judgments_are_kept_changed_and_taken_back(app: InProcess) -> None:
    """A judgment adds its question, a second changes it, and null takes it back."""
    app.ok("POST", QUESTIONS, judgment("where is the fox?", fox=1, owl=0))
    app.ok("POST", QUESTIONS, judgment(" where is the owl? ", owl=2))
    changed = app.ok("POST", QUESTIONS, judgment("where is the fox?", fox=3, owl=None, hare=0))
    assert changed["question"]["grades"] == {"fox": 3, "hare": 0}
    assert grades(app) == {
        "where is the fox?": {"fox": 3, "hare": 0},
        "where is the owl?": {"owl": 2},
    }
    gone = app.ok("POST", QUESTIONS, judgment("where is the owl?", owl=None))
    assert gone == {"question": None}
    assert list(grades(app)) == ["where is the fox?"]


def test_a_judgment_creates_its_set(app: InProcess) -> None:
    """The first judgment of a set needs no other request; until then the set is empty."""
    shown = {"vector_db_id": "db", "name": "new", "question": "fox?"}
    assert app.ok("POST", f"{QUESTIONS}/show", shown) == {"question": None}
    assert judged(app, "new")["data"] == []
    app.ok("POST", QUESTIONS, judgment("fox?", "new", fox=1))
    assert grades(app, "new") == {"fox?": {"fox": 1}}
    absent = {"vector_db_id": "db", "name": "absent"}
    assert app.send("POST", "/v1/judgments/delete", absent).status_code == 404


def test_questions_come_page_by_page(app: InProcess) -> None:
    """Pages are in the order of the first judgment and have every question once."""
    asked = [f"question {n}" for n in range(7)]
    for question in asked:
        app.ok("POST", QUESTIONS, judgment(question, fox=1))
    found, after, more = [], 0, True
    while more:
        page = judged(app, after=after, limit=3)
        assert page["total"] == 7
        found += [each["question"] for each in page["data"]]
        after, more = page["last"], page["has_more"]
    assert found == asked


def test_sets_are_apart_and_end_with_their_vector_db(app: InProcess) -> None:
    """A set has its own questions; a vector DB of the same name later begins without any.

    If this fails: judgments name chunks of a vector DB that was deleted.
    """
    app.ok("POST", "/v1/judgments", {"vector_db_id": "db", "name": "other"})
    app.ok("POST", QUESTIONS, judgment("fox?", fox=1))
    app.ok("POST", QUESTIONS, judgment("fox?", "other", fox=0))
    assert (grades(app), grades(app, "other")) == ({"fox?": {"fox": 1}}, {"fox?": {"fox": 0}})
    app.ok("POST", "/v1/judgments/delete", {"vector_db_id": "db", "name": "other"})
    names = app.ok("GET", "/v1/judgments?vector_db_id=db")["data"]
    assert [each["name"] for each in names] == ["main"]
    assert app.send("DELETE", "/v1/vector-dbs/db").status_code in (200, 204)
    app.register()
    assert app.ok("GET", "/v1/judgments?vector_db_id=db")["data"] == []
    app.ok("POST", "/v1/judgments", {"vector_db_id": "db", "name": "main"})
    assert grades(app) == {}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (judgment("fox?", wolf=1), "grades"),
        (judgment("fox?", fox=11), "grades"),
        (judgment("fox?", fox=-1), "grades"),
        (judgment("fox?"), "grades"),
        (judgment("  ", fox=1), "question"),
        (judgment("x" * 2001, fox=1), "question"),
        (judgment("fox?", "a/b", fox=1), "name"),
        ({**judgment("fox?", fox=1), "grade": 1}, "grade"),
    ],
)
def test_a_bad_judgment_changes_nothing(app: InProcess, body: Json, field: str) -> None:
    """It gets a 4xx that names the field."""
    refused = app.send("POST", QUESTIONS, body)
    assert refused.status_code in (400, 404, 422)
    assert field in refused.text
    assert grades(app) == {}


def test_there_are_at_most_twenty_sets(app: InProcess) -> None:
    """A further set, or another of the same name, gets a 409."""
    for n in range(19):
        app.ok("POST", "/v1/judgments", {"vector_db_id": "db", "name": f"set {n}"})
    for name in ("set 3", "one more"):
        refused = app.send("POST", "/v1/judgments", {"vector_db_id": "db", "name": name})
        assert refused.status_code == 409
    assert app.send("POST", QUESTIONS, judgment("fox?", "one more", fox=1)).status_code == 409
    assert len(app.ok("GET", "/v1/judgments?vector_db_id=db")["data"]) == 20


def test_a_set_and_a_question_have_a_limit(app: InProcess) -> None:
    """A set has at most 1,000 questions; a question has at most 100 judged chunks.

    If this fails: a client fills the state without end.
    """
    chunks = [{"chunk_id": f"c{n}", "content": f"text {n}"} for n in range(101)]
    app.insert(*chunks)
    most = {f"c{n}": 1 for n in range(100)}
    app.ok("POST", QUESTIONS, {**judgment("all"), "grades": most})
    assert app.send("POST", QUESTIONS, judgment("all", c100=1)).status_code == 400
    for n in range(999):
        app.ok("POST", QUESTIONS, judgment(f"question {n}", fox=1))
    assert app.send("POST", QUESTIONS, judgment("another", fox=1)).status_code == 409
    app.ok("POST", QUESTIONS, judgment("question 3", fox=0))
    assert judged(app)["total"] == 1000


# --- who sees what --------------------------------------------------------------------------------


@pytest.fixture
def people(app: InProcess) -> dict[str, Holder]:
    """Return key holders of the default tenant, and the admin of another."""
    admin = holder(app, "ada", Role.ADMIN)
    return {
        "admin": admin,
        "writer": holder(app, "will", Role.WRITER, groups=frozenset({"sales"})),
        "reader": holder(app, "rea", Role.READER, groups=frozenset({"hr"})),
        "stranger": holder(app, "gil", Role.ADMIN, tenant="globex"),
    }


def test_a_reader_reads_and_a_writer_judges(people: dict[str, Holder]) -> None:
    """A reader may list and export; only an admin deletes a set; another tenant finds nothing."""
    body = judgment("where?", fox=1)
    main = {"vector_db_id": "db", "name": "main"}
    assert people["reader"].status("POST", QUESTIONS, body) == 403
    assert people["reader"].status("POST", "/v1/judgments", {**main, "name": "b"}) == 403
    assert people["writer"].status("POST", QUESTIONS, body) == 200
    assert people["writer"].status("POST", "/v1/judgments/delete", main) == 403
    assert grades(people["reader"]) == {"where?": {"fox": 1}}
    assert people["reader"].status("GET", f"/v1/judgments/export?{of()}") == 200
    for method, path, sent in [
        ("GET", "/v1/judgments?vector_db_id=db", None),
        ("GET", f"{QUESTIONS}?{of()}", None),
        ("GET", f"/v1/judgments/export?{of()}", None),
        ("POST", QUESTIONS, body),
        ("POST", "/v1/judgments/suggest", main),
        ("POST", "/v1/judgments/delete", main),
    ]:
        assert people["stranger"].status(method, path, sent) in (400, 404)


def test_a_question_shows_only_judgments_of_chunks_that_one_reads(
    people: dict[str, Holder],
) -> None:
    """Hidden chunks, their judgments and questions about them alone show nowhere.

    If this fails: a question that quotes a hidden document shows to who may not read it.
    """
    admin, reader, writer = (people[name] for name in ("admin", "reader", "writer"))
    hidden = {"chunk_id": "pay", "content": "The pay is high.", "acl": ["group:hr"]}
    admin.insert(hidden)
    admin.ok("POST", QUESTIONS, judgment("how high is the pay?", pay=1))
    admin.ok("POST", QUESTIONS, judgment("where is the fox?", fox=1, pay=0))
    assert grades(reader) == grades(admin)
    assert grades(writer) == {"where is the fox?": {"fox": 1}}
    assert judged(writer)["total"] is None
    for question, visible in (("where is the fox?", {"fox": 1}), ("how high is the pay?", None)):
        asked = {"vector_db_id": "db", "name": "main", "question": question}
        shown = writer.ok("POST", f"{QUESTIONS}/show", asked)["question"]
        assert (shown and shown["grades"]) == visible
    for sent in (judgment("pay?", pay=1), judgment("how high is the pay?", pay=None)):
        refused = writer.send("POST", QUESTIONS, sent)
        unknown = writer.send("POST", QUESTIONS, judgment("pay?", absent=1))
        assert refused.status_code == unknown.status_code == 400
        message = refused.json()["error"]["message"].replace("pay", "absent")
        assert message == unknown.json()["error"]["message"]
    files = zipfile.ZipFile(io.BytesIO(exported(writer)))
    assert all(b"pay" not in files.read(name) for name in files.namelist())
    body = {"vector_db_id": "db", "name": "main", "count": 20, "seed": 1}
    suggested = writer.ok("POST", "/v1/judgments/suggest", body)["data"]
    assert suggested
    assert all(each["chunk_id"] != "pay" for each in suggested)


def test_an_admin_sees_and_takes_back_judgments_of_deleted_chunks(
    people: dict[str, Holder],
) -> None:
    """They show to admins, and to nobody else, because no acl is left to check."""
    admin, reader = people["admin"], people["reader"]
    admin.ok("POST", QUESTIONS, judgment("where is the fox?", fox=1))
    admin.ok("POST", "/v1/vector-io/delete", {"vector_db_id": "db", "chunk_ids": ["fox"]})
    assert grades(reader) == {}
    assert grades(admin) == {"where is the fox?": {"fox": 1}}
    admin.ok("POST", QUESTIONS, judgment("where is the fox?", fox=None))
    assert grades(admin) == {}


# --- files and suggestions ------------------------------------------------------------------------


def exported(server: Requests) -> bytes:
    """Return the zip file of the set."""
    reply = server.send("GET", f"/v1/judgments/export?{of()}")
    assert reply.status_code == 200, reply.text
    return reply.content


def test_the_benchmark_reads_an_exported_set(app: InProcess, tmp_path: Path) -> None:
    """The unpacked folder is a judged set: its corpus, its questions and grades.

    If this fails: `corral bench tune --data FOLDER` refuses what the console exports.
    """
    app.ok("POST", QUESTIONS, judgment("where is the fox?", fox=2, owl=0))
    app.ok("POST", QUESTIONS, judgment("where is the owl?", owl=1))
    folder = tmp_path / "set"
    zipfile.ZipFile(io.BytesIO(exported(app))).extractall(folder)
    found = read_beir(folder)
    assert sorted(found.documents) == sorted(ANIMALS)
    assert sorted(found.queries.values()) == ["where is the fox?", "where is the owl?"]
    by_text = {found.queries[key]: each for key, each in found.qrels.items()}
    assert by_text["where is the fox?"] == {"fox": 2, "owl": 0}


def test_an_export_without_lines_or_with_broken_ones_is_refused(app: InProcess) -> None:
    """A 400 says what to do: an empty set, or a judged chunk with a tab in its id."""
    assert app.send("GET", f"/v1/judgments/export?{of()}").status_code == 400
    app.insert({"chunk_id": "a\tb", "content": "text"})
    app.ok("POST", QUESTIONS, {**judgment("q", fox=1), "grades": {"a\tb": 1}})
    refused = app.send("GET", f"/v1/judgments/export?{of()}")
    assert refused.status_code == 400
    assert "qrels" in refused.text


def test_suggested_questions_come_from_headings_and_sentences(app: InProcess) -> None:
    """Without a language model, each names its chunk; judged ones are not suggested again."""
    body = {"vector_db_id": "db", "name": "main", "count": 20, "seed": 1}
    first = app.ok("POST", "/v1/judgments/suggest", body)
    assert first["model"] is None
    asked = {each["chunk_id"]: each["question"] for each in first["data"]}
    assert asked["fox"] == "The fox sleeps in burrow 0 until noon."
    assert grades(app) == {}
    app.ok("POST", QUESTIONS, {**judgment(asked["fox"], fox=1), "suggested": True})
    again = app.ok("POST", "/v1/judgments/suggest", body)["data"]
    assert {each["chunk_id"] for each in again} == {"owl", "hare"}
    assert judged(app)["data"][0]["suggested"] is True


def test_a_language_model_writes_the_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the chunk, and its answer without quotation marks is the question."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_chat() as service, InProcess(tmp_path, with_model(service)) as app:
        prepare(app)
        service.scripts = [said('"Where does it sleep?"')]
        body = {"vector_db_id": "db", "name": "main", "count": 1, "seed": 1}
        found = app.ok("POST", "/v1/judgments/suggest", body)
        assert found["model"] == "tiny"
        [suggestion] = found["data"]
        assert suggestion["question"] == "Where does it sleep?"
        sent = service.requests[0]["messages"][-1]["content"]
        assert suggestion["content"] in sent
        plain = app.ok("POST", "/v1/judgments/suggest", {**body, "use_model": False})
        assert (plain["model"], len(service.requests)) == (None, 1)
