"""Whatever the schema allows, and much that it does not, is never a failure of the server."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from .harness import JSON, InProcess, Json, has_own_errors, message_of

SETTINGS = settings(max_examples=250, suppress_health_check=list(HealthCheck))

ANY_TEXT = st.text(max_size=20) | st.sampled_from(
    ["db", "hashing", "sqlite", "fox", "", "..", "\0"]
)
ANY_NUMBER = (
    st.integers(-(10**20), 10**20) | st.integers(-1, 12) | st.floats() | st.sampled_from([1e308])
)
ANY_JSON: SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | ANY_NUMBER | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=8,
)


def from_schema(schema: Json, defs: Json, depth: int = 0) -> SearchStrategy[Any]:
    """Return values of a JSON schema, about one in eight of them something else."""
    value = _values(schema, defs, depth)
    odd = st.integers(0, 7)
    return odd.flatmap(lambda n: ANY_JSON if n == 0 and depth > 0 else value)


def _values(schema: Json, defs: Json, depth: int) -> SearchStrategy[Any]:
    if "$ref" in schema:
        return _values(defs[schema["$ref"].rsplit("/", 1)[-1]], defs, depth)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return st.one_of([from_schema(part, defs, depth + 1) for part in schema[several]])
    if "const" in schema or "enum" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    if schema.get("type") == "object" and "properties" in schema and depth < 6:
        return _objects(schema, defs, depth)
    if schema.get("type") == "array" and depth < 6:
        return st.lists(from_schema(schema.get("items", {}), defs, depth + 1), max_size=3)
    simple: dict[str, SearchStrategy[Any]] = {
        "string": ANY_TEXT,
        "integer": st.integers(-1, 12),
        "number": ANY_NUMBER,
        "boolean": st.booleans(),
        "null": st.none(),
        "object": st.dictionaries(ANY_TEXT, ANY_JSON, max_size=3),
    }
    return simple.get(str(schema.get("type")), ANY_JSON)


def _objects(schema: Json, defs: Json, depth: int) -> SearchStrategy[Any]:
    parts = {
        name: from_schema(part, defs, depth + 1) for name, part in schema["properties"].items()
    }
    required = {name: parts.pop(name) for name in schema.get("required", ())}
    return st.fixed_dictionaries(required, optional=parts)


def json_bodies(document: Json) -> Iterator[tuple[str, Json]]:
    """Yield the paths that take JSON by POST, with its schema."""
    for path, methods in document["paths"].items():
        contents = methods.get("post", {}).get("requestBody", {}).get("content", {})
        if "application/json" in contents:
            yield path, contents["application/json"]["schema"]


def check(app: InProcess, method: str, path: str, content: bytes) -> None:
    """Send a body and see that the answer is no 5xx, and in the common form if it is a refusal."""
    response = app.send(method, path, content=content, headers=JSON)
    assert response.status_code < 500, (method, path, content, response.text)
    if response.status_code >= 400 and has_own_errors(path):
        assert len(response.content) <= 5000  # in the application's own form
        response.json()
    elif response.status_code >= 400:
        assert len(message_of(response)) <= 1000
    else:
        response.json()


def test_no_body_of_the_schema_makes_the_server_fail(tmp_path: Path) -> None:
    """Bodies drawn from the OpenAPI document, with odd values mixed in: never a 5xx.

    If this fails: the printed body is a bug report.
    """
    with InProcess(tmp_path) as app:
        app.register()
        app.insert("the fox", {"content": "the owl", "metadata": {"a": [1, "b"]}})
        document = app.app.openapi()
        defs = document["components"]["schemas"]
        bodies = {
            re.sub(r"{(vector_(db|store)_id|collection)}", "db", path): from_schema(schema, defs)
            for path, schema in json_bodies(document)
        }
        assert len(bodies) >= 13

        @SETTINGS
        @given(st.data())
        def fuzz(data: st.DataObject) -> None:
            path = data.draw(st.sampled_from(sorted(bodies)))
            body = json.dumps(data.draw(bodies[path])).encode()
            check(app, "POST", path, body)

        fuzz()
        assert app.ok("GET", "/v1/health") == {"status": "OK"}


def test_no_bytes_make_the_server_fail(tmp_path: Path) -> None:
    """Random bytes and damaged JSON as a body: always a 4xx."""
    with InProcess(tmp_path) as app:
        app.register()
        good = json.dumps({"vector_db_id": "db", "query": "fox", "params": {"max_chunks": 2}})

        @SETTINGS
        @given(st.binary(max_size=40), st.integers(0, len(good)), st.integers(0, 5))
        def fuzz(noise: bytes, position: int, cut: int) -> None:
            damaged = good[:position].encode() + noise + good[position + cut :].encode()
            check(app, "POST", "/v1/vector-io/query", damaged)
            check(app, "POST", "/v1/vector-io/query", noise)

        fuzz()


def test_no_path_makes_the_server_fail(tmp_path: Path) -> None:
    """Any id in a path, encoded or not, with any method: never a 5xx."""
    with InProcess(tmp_path) as app:
        raw = st.text(string.ascii_letters + string.digits + "%/.~-_", max_size=12)

        @SETTINGS
        @given(
            st.sampled_from(["GET", "DELETE", "PUT", "HEAD", "OPTIONS"]),
            st.sampled_from(["/v1/vector-dbs/", "/v1/models/", "/v1/providers/", "/"]),
            raw | st.text(max_size=12).map(lambda text: quote(text, safe="", errors="replace")),
        )
        def fuzz(method: str, prefix: str, tail: str) -> None:
            assert app.send(method, prefix + tail).status_code < 500

        fuzz()
