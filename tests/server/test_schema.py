"""schemathesis over the OpenAPI document: what the schema allows is served as the schema says.

Bounded: a few seeded examples of every operation, more with CORRAL_SCHEMA_EXAMPLES.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from .harness import live_server, run_config

EXAMPLES = int(os.environ.get("CORRAL_SCHEMA_EXAMPLES", "8"))
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


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a real server on a real socket, which holds a little."""
    with live_server(run_config(), tmp_path_factory.mktemp("home")) as url:
        with httpx.Client(base_url=url, timeout=60) as http:
            registration = {"vector_db_id": "db", "embedding_model": "hashing"}
            http.post("/v1/vector-dbs", json=registration).raise_for_status()
            body = {"vector_db_id": "db", "chunks": [{"content": "the fox"}]}
            http.post("/v1/vector-io/insert", json=body).raise_for_status()
        yield url


def test_every_operation_keeps_its_schema(address: str) -> None:
    """No 5xx, no undocumented status, no body or header that the document does not allow.

    If this fails: the printed request is a bug report, as a curl command.
    """
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    operations: list[Any] = [result.ok() for result in schema.get_all_operations()]  # type: ignore[union-attr]  # an Err fails here
    operations = [each for each in operations if each.path not in TUPLES]
    assert len(operations) > 30
    with requests.Session() as session:
        for operation in operations:
            names = {parameter.name for parameter in operation.path_parameters}
            known = {name: value for name, value in KNOWN.items() if name in names}
            try_operation(operation, None, session)
            if known and operation.method != "delete":
                try_operation(operation, known, session)


def try_operation(operation: Any, known: dict[str, str] | None, session: requests.Session) -> None:
    """Send `EXAMPLES` requests that the schema of an operation allows."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(path_parameters=known))
    def request(case: Any) -> None:
        response = case.call(session=session, timeout=60)
        case.validate_response(response, checks=CHECKS)

    request()
