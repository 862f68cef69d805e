"""Routes that other servers have, and this one does not: a 404 that says what to use instead."""

from __future__ import annotations

import re

import openai
import pytest

from corral.server.absent import INSTEAD

from .harness import InProcess, message_of

ROUTE = re.compile(r"(GET|POST) (/[\w/{}-]+(?:\.json)?)")


def test_an_expected_route_that_is_absent_names_what_to_use(app: InProcess) -> None:
    """Each is a 404 with a sentence, and each route in the sentence is served.

    If this fails: look at `INSTEAD` in `server/absent.py`. A client's author learns nothing, or is
    sent to a route that is absent, too.
    """
    for path, instead in INSTEAD.items():
        for method, asked in (("GET", path), ("POST", f"{path}/more")):
            response = app.send(method, asked, None if method == "GET" else {})
            assert response.status_code == 404, asked
            assert message_of(response) == f"There is no route {method} {asked}. {instead}"
            assert response.json()["error"]["code"] == "no_such_route"
            assert response.json()["error"]["type"] == "invalid_request_error"
        for method, route in ROUTE.findall(instead):
            sent = re.sub(r"\{\w+\}", "db", route)
            answered = app.send(method, sent, None if method == "GET" else {})
            assert "There is no route" not in answered.text, (path, route)
            assert answered.status_code != 405, (path, route)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/openai/v1/threads", "A conversation is at POST /v1/conversations"),
        ("/v1alpha/agents", "A conversation is at POST /v1/conversations."),
        ("/v1/completions", "use POST /v1/responses or POST /v1/chat/completions"),
        ("/v1/inference/embeddings", "To embed texts, use POST /v1/embeddings."),
        ("/vector_stores", "Did you mean /v1/vector_stores? A client of OpenAI needs a base_url"),
        ("/v1/v1/embeddings", "Did you mean /v1/embeddings?"),
        ("/v1/vector_dbs", "Did you mean /v1/vector-dbs?"),
        ("/v1/vector-stores/db/search", "Did you mean /v1/vector_stores/db/search?"),
        ("/v1/vector_io/query", "Did you mean /v1/vector-io/query?"),
        ("/v1/rerank/", "Did you mean /v1/rerank?"),
        ("/v1/responsesx", "See /docs."),
        ("/nothing/like/it", "See /docs."),
    ],
)
def test_a_route_that_is_nearly_right_names_the_right_one(
    app: InProcess, path: str, said: str
) -> None:
    """Other versions, a forgotten /v1, and dashes for underscores are recognized.

    If this fails: look at `instead_of` in `server/absent.py`.
    """
    response = app.send("POST", path, {})
    assert response.status_code == 404
    assert said in message_of(response)


def test_openais_client_shows_what_to_use(url: str) -> None:
    """The unmodified client raises NotFoundError with our sentence.

    If this fails: its user reads "404" and nothing else.
    """
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.NotFoundError, match="POST /v1/chat/completions"):
            client.completions.create(model="m", prompt="x")
        with pytest.raises(openai.NotFoundError, match="POST /v1/jobs"):
            client.batches.list()
