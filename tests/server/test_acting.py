"""Questions on behalf of another user: an admin sees what the user may read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.api.principal import Role

from .harness import InProcess, Json
from .secured import Holder, holder

QUERY, RAG = "/v1/vector-io/query", "/v1/tool-runtime/rag-tool/query"
ANSWER = "/v1/responses"
SALES: Json = {"user": "sam", "groups": ["sales"]}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[InProcess]:
    """Yield a server with a chunk for everyone, one for sales, and one of a user."""
    with InProcess(tmp_path) as app:
        app.register(search_mode="keyword")
        app.insert(
            {"chunk_id": "all", "content": "plan for everyone"},
            {"chunk_id": "sales", "content": "plan for sales", "acl": ["group:sales"]},
            {"chunk_id": "ann", "content": "plan for ann", "acl": ["user:ann"]},
        )
        yield app


def hits(who: Holder | InProcess, as_user: Json | None = None) -> set[str]:
    """Return the ids of the chunks that a question finds, after both routes agree."""
    body = {"vector_db_id": "db", "query": "plan", "as_user": as_user}
    chunks = who.ok("POST", QUERY, body)["chunks"]
    content: Json = {"content": "plan", "vector_db_ids": ["db"], "as_user": as_user}
    content["query_config"] = {"citations": True}
    cited = who.ok("POST", RAG, content)["metadata"]["citations"]
    found = {chunk["chunk_id"] for chunk in chunks}
    assert found == {name for each in cited for name in each["chunk_ids"]}
    return found


def answering(as_user: Json | None, **more: object) -> Json:
    """Return the body of a question that the vector DB answers."""
    results = ["file_search_call.results"]
    return {"model": "corral/db", "input": "plan", "include": results, "as_user": as_user, **more}


def test_an_admin_finds_what_a_user_may_read(app: InProcess) -> None:
    """Name and groups decide, as for a key with them; without `as_user` an admin finds all.

    If this fails: whoever checks permissions is shown other chunks than the user finds.
    """
    admin = holder(app, "ada", Role.ADMIN)
    sam = holder(app, "sam", groups=frozenset({"sales"}))
    assert hits(admin) == {"all", "sales", "ann"}
    assert hits(admin, SALES) == hits(sam) == {"all", "sales"}
    assert hits(admin, {"user": "ann"}) == {"all", "ann"}
    assert hits(admin, {}) == {"all"}


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_made_of_what_the_user_may_read(app: InProcess, stream: bool) -> None:
    """Text, results and citations, whole or streamed, have no chunk that the user may not read.

    Answer and confidence equal what the user gets. If this fails: a check of permissions shows
    another answer than the user's.
    """
    admin = holder(app, "ada", Role.ADMIN)
    for as_user, hidden in ((SALES, ["ann"]), ({"user": "ann"}, ["sales"]), (None, [])):
        body = answering(as_user, stream=stream, input="Which plan is there?")
        answer = admin.send("POST", ANSWER, body)
        assert answer.status_code == 200
        shown = {name for name in ("everyone", "sales", "ann") if f"plan for {name}" in answer.text}
        assert shown == {"everyone", "sales", "ann"} - set(hidden)
    sam = holder(app, "sam", groups=frozenset({"sales"}))
    own, other = (
        who.ok("POST", ANSWER, answering(as_user, input="Which plan is there?"))
        for who, as_user in ((sam, None), (admin, SALES))
    )
    assert own["output"][1]["content"][0]["text"] == other["output"][1]["content"][0]["text"]
    assert own["corral"]["confidence"] == other["corral"]["confidence"]


def test_an_answer_as_another_continues_no_conversation(app: InProcess) -> None:
    """The admin's earlier questions and answers may hold what the user may not read."""
    admin = holder(app, "ada", Role.ADMIN)
    before = admin.ok("POST", ANSWER, answering(None))["id"]
    conversation = admin.ok("POST", "/v1/conversations", {})["id"]
    for more in ({"previous_response_id": before}, {"conversation": conversation}):
        refused = admin.send("POST", ANSWER, answering(SALES, **more))
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "as_user")
        assert admin.status("POST", ANSWER, answering(None, **more)) == 200


def test_a_server_without_keys_asks_as_anybody(app: InProcess) -> None:
    """Everyone is its operator."""
    assert hits(app, SALES) == {"all", "sales"}


@pytest.mark.parametrize("role", [Role.READER, Role.WRITER])
def test_only_an_admin_asks_as_another(app: InProcess, role: Role) -> None:
    """Others get a 403, even for themselves.

    If this fails: a reader takes the groups that it likes.
    """
    other = holder(app, "sam", role)
    bodies: list[tuple[str, Json]] = [
        (QUERY, {"vector_db_id": "db", "query": "plan", "as_user": SALES}),
        (RAG, {"content": "plan", "vector_db_ids": ["db"], "as_user": SALES}),
        (ANSWER, answering(SALES)),
    ]
    for path, body in bodies:
        refused = other.send("POST", path, body)
        assert refused.status_code == 403
        assert "plan" not in refused.text


def test_the_tenant_stays(app: InProcess) -> None:
    """An admin of another tenant finds nothing here, whoever it asks as."""
    stranger = holder(app, "gil", Role.ADMIN, tenant="globex")
    body = {"vector_db_id": "db", "query": "plan", "as_user": SALES}
    assert stranger.status("POST", QUERY, body) == 400


@pytest.mark.parametrize("as_user", [{"user": " sam"}, {"groups": [""]}, {"role": "admin"}, "sam"])
def test_a_bad_user_is_refused(app: InProcess, as_user: object) -> None:
    """A name that no key can have, or another field, is named in a 400."""
    body = {"vector_db_id": "db", "query": "plan", "as_user": as_user}
    refused = app.send("POST", QUERY, body)
    assert (refused.status_code, "as_user" in refused.text) == (400, True)
