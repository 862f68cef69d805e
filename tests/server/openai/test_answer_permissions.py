"""Answers, responses and conversations exist for their callers only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.api.principal import Role

from ..harness import InProcess, Json
from ..secured import Holder, holder, nobody

QUESTION = "Who sells the hill?"


def asking(**fields: Any) -> Json:
    """Return the body of a response that quotes the vector DB `farm`."""
    return {
        "model": "corral/farm",
        "input": QUESTION,
        "include": ["file_search_call.results"],
        **fields,
    }


@pytest.fixture
def app(tmp_path: Path) -> Iterator[InProcess]:
    """The app in process."""
    with InProcess(tmp_path) as started:
        yield started


@pytest.fixture
def ann(app: InProcess) -> Holder:
    """A reader who may read the secret; another tenant has a vector DB of the same name."""
    admin = holder(app, "root", Role.ADMIN)
    other = holder(app, "zoe", Role.ADMIN, tenant="zoo")
    for each, text in ((admin, "Dora sells the hill."), (other, "Otto sells the hill.")):
        each.register("farm")
        documents = [
            {"document_id": "plan", "content": text, "acl": ["user:ann"]},
            {"document_id": "open", "content": "The hill is green."},
        ]
        body = {"vector_db_id": "farm", "documents": documents, "chunk_size_in_tokens": 64}
        each.ok("POST", "/v1/tool-runtime/rag-tool/insert", body)
    return holder(app, "ann")


def test_an_answer_has_only_what_its_caller_may_read(app: InProcess, ann: Holder) -> None:
    """No text, result or citation of an answer is from a chunk that an acl hides, or a tenant.

    If this fails: a language model tells what its user may not read.
    """
    assert "Dora" in ann.send("POST", "/v1/responses", asking()).text
    for each in (holder(app, "bob"), holder(app, "ann", tenant="zoo2")):
        assert "Dora" not in each.send("POST", "/v1/responses", asking()).text
        chat = {"model": "corral/farm", "messages": [{"role": "user", "content": QUESTION}]}
        assert "Dora" not in each.send("POST", "/v1/chat/completions", chat).text
    zoo = holder(app, "ann", tenant="zoo").send("POST", "/v1/responses", asking()).text
    assert "Otto" in zoo
    assert "Dora" not in zoo


def test_models_are_those_of_the_tenant(app: InProcess, ann: Holder) -> None:
    """A vector DB of another tenant is no model: not listed, and unknown like any other name."""
    stranger = holder(app, "eve", tenant="else")
    assert "corral/farm" in ann.send("GET", "/v1/models").text
    assert "corral/farm" not in stranger.send("GET", "/v1/models").text
    there = stranger.send("POST", "/v1/responses", asking()).json()["error"]
    nowhere = stranger.send("POST", "/v1/responses", asking(model="corral/mine")).json()["error"]
    assert there["message"].replace("farm", "mine") == nowhere["message"]
    assert stranger.status("GET", "/v1/models/corral/farm") == 404


def test_stored_things_of_others_do_not_exist(app: InProcess, ann: Holder) -> None:
    """Every route answers for them as for an id that was never made; the owner still has them.

    If this fails: with an id, another key reads a conversation, or learns that there is one.
    """
    response = ann.ok("POST", "/v1/responses", asking())["id"]
    conversation = ann.ok(
        "POST", "/v1/conversations", {"items": [{"role": "user", "content": "x"}]}
    )
    made = conversation["id"]
    item = ann.ok("GET", f"/v1/conversations/{made}/items")["data"][0]["id"]
    routes: list[tuple[str, str, Any]] = [
        ("GET", "/v1/responses?after={r}", None),
        ("GET", "/v1/responses/{r}", None),
        ("GET", "/v1/responses/{r}/input_items", None),
        ("POST", "/v1/responses/{r}/cancel", {}),
        ("DELETE", "/v1/responses/{r}", None),
        ("POST", "/v1/responses", asking(previous_response_id="{r}")),
        ("POST", "/v1/responses", asking(conversation="{c}")),
        ("POST", "/v1/responses", asking(input=[{"type": "item_reference", "id": "{i}"}])),
        ("GET", "/v1/conversations/{c}", None),
        ("POST", "/v1/conversations/{c}", {"metadata": {}}),
        ("DELETE", "/v1/conversations/{c}", None),
        ("GET", "/v1/conversations/{c}/items", None),
        ("POST", "/v1/conversations/{c}/items", {"items": [{"role": "user", "content": "y"}]}),
        ("GET", "/v1/conversations/{c}/items/{i}", None),
        ("DELETE", "/v1/conversations/{c}/items/{i}", None),
    ]
    theirs = {"r": response, "c": made, "i": item}
    none = {"r": "resp_" + "0" * 48, "c": "conv_" + "0" * 48, "i": "msg_" + "0" * 48}
    others = [holder(app, "bob"), holder(app, "ann", tenant="zoo"), holder(app, "ann")]
    for method, path, body in routes:
        for other in others:
            answers = []
            for names in (theirs, none):
                sent = None if body is None else _filled(body, names)
                got = other.send(method, path.format(**names), sent)
                text = got.text
                for value in names.values():
                    text = text.replace(value, "ID")
                answers.append((got.status_code, text.partition("request_id")[0]))
            assert answers[0] == answers[1], (method, path)
            assert answers[0][0] in (400, 404), (method, path, answers)
    assert ann.ok("GET", f"/v1/responses/{response}")["id"] == response
    assert len(ann.ok("GET", f"/v1/conversations/{made}/items")["data"]) == 1
    assert nobody(app).status("GET", f"/v1/responses/{response}") == 401


def _filled(body: Any, names: dict[str, str]) -> Any:
    """Return a body with ids in the place of their marks."""
    if isinstance(body, dict):
        return {name: _filled(value, names) for name, value in body.items()}
    if isinstance(body, list):
        return [_filled(each, names) for each in body]
    if isinstance(body, str) and body.startswith("{") and body.endswith("}"):
        return names[body[1:-1]]
    return body
