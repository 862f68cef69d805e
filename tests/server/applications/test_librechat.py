"""LibreChat's file service: requests as its published sources send them, replayed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from corral.server.applications.librechat import PAGE

from ..harness import InProcess, run_config

SECRET = "a secret that LibreChat shares with its file service"
TEXT = b"# Fences\n\nA fence keeps the cattle in.\n"


def token(user: str = "ann", *, secret: str = SECRET, expires_in: float = 300) -> str:
    """Return the token that LibreChat signs for a user, which lives five minutes."""
    claims = {"id": user, "iat": int(time.time()), "exp": int(time.time() + expires_in)}
    parts = [
        _encoded(json.dumps(each).encode()) for each in ({"alg": "HS256", "typ": "JWT"}, claims)
    ]
    signed = ".".join(parts)
    made = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{_encoded(made)}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def send(
    app: InProcess, method: str, path: str, body: Any = None, user: str = "", **more: Any
) -> httpx.Response:
    """Send a request as LibreChat does, with a user's token if one is named."""
    headers = {"authorization": f"Bearer {token(user)}"} if user else {}
    if body is not None:
        headers["content-type"] = "application/json"
        more["content"] = json.dumps(body).encode()
    return app.send(method, f"/librechat{path}", headers=headers, **more)


def embed(
    app: InProcess,
    file_id: str,
    name: str,
    data: bytes,
    user: str = "",
    kind: str = "text/markdown",
) -> httpx.Response:
    """Upload a file as LibreChat does."""
    form = {"data": {"file_id": file_id}, "files": {"file": (name, data, kind)}}
    return send(app, "POST", "/embed", user=user, **form)


def test_the_life_of_a_file(app: InProcess) -> None:
    """Embedded, listed, asked alone and with others, shown and deleted."""
    assert send(app, "GET", "/health").json() == {"status": "UP"}
    assert send(app, "GET", "/ids").json() == []
    stored = embed(app, "file-1", "fences.md", TEXT).json()
    assert (stored["status"], stored["known_type"], stored["file_id"]) == (True, True, "file-1")
    embed(app, "file-2", "barns.md", b"Hay is stored in the barn.")
    assert send(app, "GET", "/ids").json() == ["file-1", "file-2"]
    question = {"query": "what keeps cattle in?", "file_id": "file-1", "k": 5}
    [[document, distance]] = send(app, "POST", "/query", question).json()
    assert "A fence keeps" in document["page_content"]
    assert document["metadata"]["source"] == "fences.md"
    assert 0 <= distance <= 1
    several = {"query": "hay", "file_ids": ["file-1", "file-2"], "k": 2}
    answers = send(app, "POST", "/query_multiple", several).json()
    assert answers[0][0]["metadata"]["file_id"] == "file-2"
    assert answers[0][1] < answers[1][1]
    shown = send(app, "GET", "/documents?ids=file-1&ids=file-2").json()
    assert len(shown) == 2
    assert send(app, "DELETE", "/documents", ["file-1"]).status_code == 200
    assert send(app, "GET", "/ids").json() == ["file-2"]


def test_the_charset_that_a_sender_names_decodes(app: InProcess) -> None:
    """Also where the name of the file says its type."""
    data = "Schäfer hüten.".encode("latin-1")
    assert embed(app, "file-1", "a.txt", data, kind="text/plain; charset=latin-1").is_success
    [[document, _]] = send(app, "POST", "/query", {"query": "x", "file_id": "file-1"}).json()
    assert "Schäfer hüten." in document["page_content"]


def test_long_files_are_shown_whole(app: InProcess) -> None:
    """All chunks of a file are shown, and all files listed, however many are read at once."""
    text = " ".join(f"w{number}" for number in range(1500))
    embed(app, "file-1", "long.md", text.encode())
    embed(app, "file-2", "fences.md", TEXT)
    more = [{"document_id": f"more-{n:04}", "content": "Hay."} for n in range(PAGE)]
    body = {"vector_db_id": "librechat", "documents": more, "chunk_size_in_tokens": 64}
    app.ok("POST", "/v1/tool-runtime/rag-tool/insert", body)
    ids = [each["document_id"] for each in more]
    assert send(app, "GET", "/ids").json() == ["file-1", "file-2", *ids]
    shown = send(app, "GET", "/documents?ids=file-1").json()
    words = {word for each in shown for word in each["page_content"].split()}
    assert len(shown) > 2
    assert words == set(text.split())


def test_unknown_files_and_types(app: InProcess) -> None:
    """Unknown ids are 404 and delete nothing; a kind that cannot be read says known_type false."""
    assert send(app, "GET", "/documents?ids=none").json()["detail"].startswith("The specified")
    embed(app, "file-1", "fences.md", TEXT)
    gone = send(app, "DELETE", "/documents", ["file-1", "none"])
    assert gone.status_code == 404
    assert send(app, "GET", "/ids").json() == ["file-1"]
    question = {"query": "x", "file_id": "none"}
    assert send(app, "POST", "/query", question).json() == []
    assert (
        send(app, "POST", "/query_multiple", {"query": "x", "file_ids": ["n"]}).status_code == 404
    )
    odd = embed(app, "file-3", "film.mp4", b"\0\1").json()
    assert (odd["status"], odd["known_type"]) == (False, False)


@pytest.fixture
def signed(tmp_path: Path) -> Any:
    """Yield the app with LibreChat's secret configured."""
    config = run_config(server={"librechat": {"jwt_secret": SECRET}})
    with InProcess(tmp_path, config) as app:
        yield app


def test_users_find_only_their_own(signed: InProcess) -> None:
    """What ann sent, bob does not find; a file that names an agent is found through it."""
    embed(signed, "file-1", "fences.md", TEXT, user="ann")
    question = {"query": "fence", "file_id": "file-1"}
    assert len(send(signed, "POST", "/query", question, user="ann").json()) == 1
    assert send(signed, "POST", "/query", question, user="bob").json() == []
    assert send(signed, "GET", "/ids", user="bob").json() == []
    assert send(signed, "DELETE", "/documents", ["file-1"], user="bob").status_code == 404
    form = {
        "data": {"file_id": "file-2", "entity_id": "agent-7"},
        "files": {"file": ("a.txt", b"The agent knows fences.", "text/plain")},
    }
    send(signed, "POST", "/embed", user="ann", **form)
    question = {"query": "fence", "file_id": "file-2", "entity_id": "agent-7"}
    assert len(send(signed, "POST", "/query", question, user="bob").json()) == 1
    assert send(signed, "GET", "/ids", user="bob").json() == []
    assert send(signed, "GET", "/ids", user="ann").json() == ["file-1", "file-2"]


def test_a_user_is_no_agent(signed: InProcess) -> None:
    """Naming another user as `entity_id` finds nothing of theirs; their `file_id` is taken.

    If this fails: one user of LibreChat reads the files of another, or replaces them.
    """
    embed(signed, "file-1", "fences.md", TEXT, user="ann")
    question = {"query": "fence", "file_id": "file-1", "entity_id": "ann"}
    assert send(signed, "POST", "/query", question, user="bob").json() == []
    assert embed(signed, "file-1", "mine.md", b"Goats climb.", user="bob").status_code == 409
    del question["entity_id"]
    [found] = send(signed, "POST", "/query", question, user="ann").json()
    assert "fence" in found[0]["page_content"]
    assert embed(signed, "file-1", "fences.md", b"Hedges.", user="ann").status_code == 200


UNSIGNED = ".".join(map(_encoded, (b'{"alg": "none"}', b'{"id": "a", "exp": 9e9}')))


@pytest.mark.parametrize(
    "given",
    [
        "", "Basic x", "Bearer x.y.z", f"Bearer {token(secret='another')}",
        f"Bearer {token(expires_in=-1)}", "Bearer " + ".".join(["e30"] * 3),
        f"Bearer {UNSIGNED}.",
    ],
)  # fmt: skip
def test_wrong_tokens_are_refused(signed: InProcess, given: str) -> None:
    """No token, a malformed one, another secret's, an expired and an unsigned one: 401, detail."""
    headers = {"authorization": given} if given else {}
    answer = signed.send("GET", "/librechat/ids", headers=headers)
    assert answer.status_code == 401
    assert set(answer.json()) == {"detail"}
    assert signed.send("GET", "/librechat/health").status_code == 200


def test_a_page_of_another_site_sends_no_file(app: InProcess) -> None:
    """A browser says that a form comes from elsewhere; it is refused and stores nothing."""
    answer = app.send(
        "POST", "/librechat/embed", data={"file_id": "x"}, files={"file": ("a.txt", b"x")},
        headers={"sec-fetch-site": "cross-site"},
    )  # fmt: skip
    assert answer.status_code == 403
    assert send(app, "GET", "/ids").json() == []
