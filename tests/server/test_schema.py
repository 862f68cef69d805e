"""schemathesis over the OpenAPI document: what the schema allows is served as the schema says.

Bounded: a few seeded examples of every operation, more with CORRAL_SCHEMA_EXAMPLES.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from corral.api.principal import Role
from corral.providers.state.keys import KeyStore
from corral.providers.state.state import State

from .harness import live_server, run_config

EXAMPLES = int(os.environ.get("CORRAL_SCHEMA_EXAMPLES", "5"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


TUPLES = ("/librechat/query", "/librechat/query_multiple")
"""Their replies hold tuples, whose schema schemathesis 4.32 turns into a wrong one."""

BYTES = "application/zip"
"""A body that schemathesis has no way to make is any bytes."""

KNOWN = {"vector_db_id": "db", "vector_store_id": "db", "model_id": "hashing"}
"""Ids of a path that lead somewhere; all others are made up."""


@schemathesis.serializer(BYTES)
def any_bytes(_: Any, value: Any) -> bytes:
    """Return the bytes of a made-up value."""
    return value if isinstance(value, bytes) else str(value).encode()


def fill(http: httpx.Client) -> None:
    """Register a vector DB and insert a chunk."""
    registration = {"vector_db_id": "db", "embedding_model": "hashing"}
    http.post("/v1/vector-dbs", json=registration).raise_for_status()
    body = {"vector_db_id": "db", "chunks": [{"content": "the fox"}]}
    http.post("/v1/vector-io/insert", json=body).raise_for_status()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a real server on a real socket, which holds a little."""
    with live_server(run_config(), tmp_path_factory.mktemp("home")) as url:
        with httpx.Client(base_url=url, timeout=60) as http:
            fill(http)
        yield url


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the address of a server that asks for keys, and a key for each role."""
    home = tmp_path_factory.mktemp("secured")

    async def make() -> dict[str, str]:
        state = State(home)
        keys = KeyStore(state)
        made = {role.value: (await keys.create(role.value, role=role))[1] for role in Role}
        await state.close()
        return made

    secrets = asyncio.run(make())
    with live_server(run_config(), home) as url:
        headers = bearer(secrets["admin"])
        with httpx.Client(base_url=url, timeout=60, headers=headers) as http:
            fill(http)
        yield url, secrets


@pytest.fixture(scope="module")
def theirs(secured: tuple[str, dict[str, str]]) -> list[Any]:
    """Return the operations of the server that asks for keys, which are the same for each of them.

    Reading them and building what makes up requests takes as long as all requests.
    """
    url, secrets = secured
    headers = bearer(secrets["reader"])
    return operations(httpx.get(f"{url}/openapi.json", headers=headers, timeout=60).json(), url)


def bearer(secret: str | None) -> dict[str, str]:
    """Return the header that shows a key."""
    return {} if secret is None else {"authorization": f"Bearer {secret}"}


def test_every_operation_keeps_its_schema(address: str) -> None:
    """No 5xx, no undocumented status, no body or header that the document does not allow.

    If this fails: the printed request is a bug report, as a curl command.
    """
    with requests.Session() as session:
        try_all(operations(f"{address}/openapi.json"), session, EXAMPLES)


@pytest.mark.parametrize("who", ["reader", "nobody"])
def test_every_operation_keeps_it_with_and_without_keys(
    secured: tuple[str, dict[str, str]], theirs: list[Any], who: str
) -> None:
    """The same where keys are asked for: 401 and 403 are documented wherever they are sent.

    An admin's requests are those of the test above, and a writer's are refused as a reader's.

    If this fails: the printed request is a bug report, as a curl command.
    """
    url, secrets = secured
    with requests.Session() as session:
        session.headers.update(bearer(secrets.get(who)))
        allowed = session.get(f"{url}/v1/vector-dbs").status_code
        assert allowed == (401 if who == "nobody" else 200)
        try_all(theirs, session, -(-EXAMPLES // 4))


def operations(document: Any, url: str = "") -> list[Any]:
    """Return the operations of an OpenAPI document, or of its address."""
    if isinstance(document, str):
        schema = schemathesis.openapi.from_url(document)
    else:
        schema = schemathesis.openapi.from_dict(document)
        schema.config.update(base_url=url)
    results = list(schema.get_all_operations())
    operations = [result.ok() for result in results if isinstance(result, Ok)]
    assert len(operations) == len(results)
    found = [each for each in operations if each.path not in TUPLES]
    assert len(found) > 30
    return found


def try_all(found: list[Any], session: requests.Session, examples: int) -> None:
    """Send requests to each operation, with made-up ids and with those that lead somewhere."""
    for operation in found:
        names = {parameter.name for parameter in operation.path_parameters}
        known = {name: value for name, value in KNOWN.items() if name in names}
        try_operation(operation, None, session, examples)
        if known and operation.method != "delete":
            try_operation(operation, known, session, examples)
            try_operation(operation, known, session, examples)  # now that it was done once


def try_operation(
    operation: Any, known: dict[str, str] | None, session: requests.Session, examples: int
) -> None:
    """Send so many requests that the schema of an operation allows."""

    @settings(
        max_examples=examples,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(path_parameters=known))
    def request(case: Any) -> None:
        response = case.call(session=session, timeout=60)
        case.validate_response(response, checks=CHECKS)

    request()
