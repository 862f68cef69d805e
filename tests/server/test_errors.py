"""Refusals: the table of statuses, the one form of all bodies, the last resort."""

from __future__ import annotations

import inspect
import json
import logging
import re
from typing import Any

import pytest
from fastapi import APIRouter
from starlette.types import Message

from corral.api import errors
from corral.server.errors import (
    MAX_MESSAGE_CHARACTERS,
    STATUSES,
    error_response,
    shorten,
    status_of,
)
from corral.server.routing import ContractRoute

from .harness import InProcess, Json, message_of


def error_classes() -> list[type[errors.CorralError]]:
    """Return every error of the contract but the base."""
    found = [c for _, c in inspect.getmembers(errors, inspect.isclass)]
    return [c for c in found if issubclass(c, errors.CorralError) and c is not errors.CorralError]


def test_the_table_is_the_one_that_the_contract_draws() -> None:
    """Every error class has a row, with the status that the tree in its module shows."""
    drawn = {
        name: int(status)
        for name, status in re.findall(r"── (\w+) .*?(\d{3})$", errors.__doc__ or "", re.MULTILINE)
    }
    assert {kind.__name__: status for kind, (status, _) in STATUSES.items()} == drawn
    assert set(STATUSES) == set(error_classes())


def test_a_class_without_a_row_takes_its_ancestors() -> None:
    """A provider's own error class is answered as the class that it extends."""

    class Full(errors.Conflict):
        pass

    assert status_of(Full("full")) == (409, "conflict")
    assert status_of(errors.CorralError("?")) == (500, "internal_error")


def raising(app: InProcess, error: Exception, route_class: type[ContractRoute]) -> Any:
    """Add a route that raises an error and return what it answers."""
    router = APIRouter(route_class=route_class)

    async def fail() -> None:
        raise error

    router.add_api_route("/fail", fail)
    app.app.include_router(router)
    return app.send("GET", "/fail")


def test_what_is_not_found_is_400_here_and_404_where_a_route_says_so(app: InProcess) -> None:
    """Llama Stack's routes answer 400 for an unknown id; other wires can have their 404."""
    error = errors.NotFound("There is no such thing.", field="id")
    assert raising(app, error, ContractRoute).status_code == 400


def test_a_route_may_answer_404(app: InProcess) -> None:
    """The status of NotFound belongs to the route's class."""

    class OtherWire(ContractRoute):
        not_found_status = 404

    response = raising(app, errors.NotFound("There is no such thing."), OtherWire)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("error", "status", "retried"),
    [
        (errors.Conflict("taken"), 409, "false"),
        (errors.MissingDependency("x", "y", "pip install y"), 424, None),
        (errors.ProviderError("the backend said no"), 502, "false"),
        (errors.Unavailable("down"), 503, None),
        (errors.ProviderTimeout("slow"), 504, None),
        (errors.ContractViolation("defect with data"), 500, "false"),
    ],
)
def test_clients_retry_only_what_may_succeed(
    app: InProcess, error: errors.CorralError, status: int, retried: str | None
) -> None:
    """`x-should-retry: false` stands on every status that clients repeat, but for passing ones."""
    response = raising(app, error, ContractRoute)
    assert response.status_code == status
    assert response.headers.get("x-should-retry") == retried
    message = message_of(response)
    assert ("defect" in message) is False
    assert response.json()["error"]["type"] == (
        "server_error" if status >= 500 else "invalid_request_error"
    )


def test_an_unforeseen_exception_is_a_500_that_gives_nothing_away(
    app: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """It is answered in the common form; the log says where it arose, not what the user sent.

    If this fails: a defect shows users our internals, or shows us their texts.
    """
    caplog.set_level(logging.INFO)
    text = "-".join(["user", "text"])  # so that it is in no source line of the traceback
    try:
        raise KeyError(text)
    except KeyError as cause:
        error = ValueError(text)
        error.__cause__ = cause
    response = raising(app, error, ContractRoute)
    assert response.status_code == 500
    assert message_of(response) == "The server failed on this request."
    assert text not in response.text
    assert text not in caplog.text
    assert "builtins.ValueError" in caplog.text
    assert "caused by builtins.KeyError" in caplog.text
    assert "in fail" in caplog.text


def test_the_message_of_an_unforeseen_exception_is_there_for_debugging(
    app: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """At DEBUG the whole exception is logged."""
    caplog.set_level(logging.DEBUG, logger="corral.server")
    raising(app, ValueError("what exactly"), ContractRoute)
    assert "what exactly" in caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/nowhere", 404, "no route GET /nowhere"),
        ("GET", "/v1/vector-dbs/", 404, "no route"),
        ("GET", "/index.html", 404, "/docs"),
        ("PUT", "/v1/vector-dbs", 405, "Use GET"),
        ("PATCH", "/v1/vector-dbs/a/b", 405, "PATCH is not allowed"),
        ("GET", "/v1/vector-io/query", 405, "POST"),
        ("GET", "/v1/providers/nope", 400, "'nope'"),
        ("GET", "/v1/models/org/nope", 404, "'org/nope'"),
    ],
)
def test_what_the_framework_refuses_has_the_same_form(
    app: InProcess, method: str, path: str, status: int, said: str
) -> None:
    """404 and 405 are refused in the form of all others."""
    response = app.send(method, path)
    assert response.status_code == status
    assert said in message_of(response)
    if status == 405:
        assert response.headers["allow"]


def test_a_bad_query_parameter_has_the_same_form(app: InProcess) -> None:
    """FastAPI's own validation is a 400 that names the parameter."""
    router = APIRouter(route_class=ContractRoute)

    async def paged(limit: int) -> int:
        return limit

    router.add_api_route("/paged", paged)
    app.app.include_router(router)
    response = app.send("GET", "/paged?limit=many")
    assert response.status_code == 400
    assert message_of(response).startswith("limit must be an integer")
    assert app.send("GET", "/paged").json()["error"]["param"] == "limit"


@pytest.mark.parametrize(
    ("given", "kept"),
    [("abc-123", True), ("", False), ("a b", False), ("x" * 129, False), ("<script>", False)],
)
def test_every_response_has_a_request_id(app: InProcess, given: str, kept: bool) -> None:
    """The caller's x-request-id comes back where it is harmless, else a new one, on errors too."""
    seen = set()
    for method, path in (("GET", "/v1/health"), ("GET", "/nowhere"), ("POST", "/v1/vector-dbs")):
        response = app.send(method, path, headers={"x-request-id": given})
        seen.add(response.headers["x-request-id"])
    assert (seen == {given}) is kept
    assert all(seen)


@pytest.mark.parametrize(
    ("host", "served"),
    [("evil.example", False), ("localhost:1", True), ("127.0.0.1", True), ("a" * 300, False)],
)
def test_the_host_header_decides_no_route(app: InProcess, host: str, served: bool) -> None:
    """A foreign one is refused, else the path alone is looked at; no redirect repeats it."""
    app.register()
    response = app.send("GET", "/v1/vector-dbs/db", headers={"host": host})
    assert response.status_code == (200 if served else 421)
    for path in ("/v1/vector-dbs/", "/v1/health/"):
        response = app.send("GET", path, headers={"host": host})
        assert response.status_code == (404 if served else 421)
        assert host not in str(response.headers)


def test_a_long_message_keeps_its_beginning_and_its_hint() -> None:
    """Shortening cuts the middle out."""
    text = shorten("Found " + "x" * 10_000 + ". Valid modes: vector.")
    assert len(text) == MAX_MESSAGE_CHARACTERS
    assert text.startswith("Found x")
    assert text.endswith("Valid modes: vector.")
    assert shorten("short") == "short"


def test_a_refusal_can_quote_what_is_no_character() -> None:
    """A lone surrogate in a message does not turn the refusal into a failure."""
    response = error_response(400, "invalid_request", "found \ud800")
    assert json.loads(bytes(response.body))["detail"] == "found ?"


def test_a_client_that_leaves_is_no_failure(
    app: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection that closes in the middle of a body is noted in the access log, no more."""
    caplog.set_level(logging.INFO)

    async def leave() -> Message:
        return {"type": "http.disconnect"}

    async def nobody(message: Message) -> None:
        raise AssertionError(message)

    path = "/v1/vector-io/insert"
    scope: Json = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
        "query_string": b"", "root_path": "", "scheme": "http",
        "headers": [(b"content-type", b"application/json"), (b"content-length", b"9")],
    }  # fmt: skip
    app.run(lambda: app.app(scope, leave, nobody))
    assert f"POST {path} 499" in caplog.text
    assert "ERROR" not in caplog.text


def test_every_finding_is_listed_up_to_a_bound(app: InProcess) -> None:
    """A thousand unknown keys are refused with the first and a list of at most 20."""
    app.register()
    body = {"vector_db_id": "db", "query": "x", **{f"key{n}": n for n in range(1000)}}
    response = app.send("POST", "/v1/vector-io/query", body)
    listed = response.json()["error"]["detail"]["errors"]
    assert len(listed) == 20
    assert listed[0] == {
        "loc": ["key0"],
        "msg": "key0 is not a known key. Known here: vector_db_id, query, params, as_user.",
        "type": "extra_forbidden",
    }
    assert message_of(response) == listed[0]["msg"] + " (999 more in error.detail.errors.)"


def test_very_many_findings_are_only_counted(app: InProcess) -> None:
    """Beyond 10,000 findings their number is all that a refusal says."""
    body = {f"key{n}": n for n in range(10_001)}
    response = app.send("POST", "/v1/vector-io/query", body)
    assert response.status_code == 400
    assert message_of(response) == "The body breaks its schema in 10003 places. See /docs."


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/vector-io/insert", {"vector_db_id": "db", "chunks": [[]] * 20_000}),
        (
            "/v1/vector-io/insert",
            {"vector_db_id": "db", "chunks": [{"content": "x", "embedding": [[]] * 20_000}]},
        ),
        ("/v1/tool-runtime/rag-tool/insert", {"vector_db_id": "db", "documents": [[]] * 20_000}),
        ("/v1/tool-runtime/rag-tool/query", {"content": "x", "vector_db_ids": [[]] * 20_000}),
    ],
)
def test_a_list_is_refused_at_its_first_bad_item(app: InProcess, path: str, body: Json) -> None:
    """Of a list of bad items the first one is named, and the others are not looked at.

    If this fails: a body of millions of them costs minutes and gigabytes.
    """
    app.register()
    response = app.send("POST", path, body)
    assert response.status_code == 400
    (listed,) = response.json()["error"]["detail"]["errors"]
    assert "[0]" in message_of(response)
    assert listed["loc"][-1] == 0


def sentence(app: InProcess, body: Any) -> str:
    """Return the refusal of a RAG query with this body."""
    app.register()
    return message_of(app.send("POST", "/v1/tool-runtime/rag-tool/query", body))


SENTENCES: list[tuple[Any, str]] = [
    ([], "The body must be an object (got a list)."),
    ({"content": "x"}, "vector_db_ids is missing. Send one of: db."),
    (
        {"content": "x", "vector_db_ids": "db"},
        "vector_db_ids must be a list (got a string).",
    ),
    (
        {"content": "x", "vector_db_ids": ["db", None]},
        "vector_db_ids[1] must be a string (got null).",
    ),
    (
        {"content": 1e300, "vector_db_ids": ["db"]},
        "content must be a string (got a number beyond 1e15).",
    ),
    (
        {"content": "x", "vector_db_ids": ["db"], "query_config": {"explain": "maybe"}},
        "query_config.explain must be true or false (got a string).",
    ),
    (
        {"content": "x", "vector_db_ids": ["db"], "query_config": {"max_chunks": True, "mode": 1}},
        "query_config.mode must be 'vector', 'keyword' or 'hybrid' (got 1). "
        "(1 more in error.detail.errors.)",
    ),
]


@pytest.mark.parametrize(("body", "wanted"), SENTENCES)
def test_refusals_read_as_sentences(app: InProcess, body: Any, wanted: str) -> None:
    """A refusal of the schema is one sentence about the field, without pydantic's jargon."""
    assert sentence(app, body) == wanted
