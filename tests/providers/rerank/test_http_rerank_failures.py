"""remote::rerank when the service fails: connections, statuses, garbage.

What `HttpService` does for every remote model is in embedding/openai/test_openai_failures.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from corral.api.errors import Overloaded, ProviderError, Refused, Unavailable
from corral.providers.rerank.http.config import HTTPRerankConfig

from ..json_service import Reply, Service
from .candidates import hit, ids
from .test_http_rerank import configured, rerank, three


async def refused(config: HTTPRerankConfig, kind: type[ProviderError]) -> str:
    """Re-rank two texts, which must fail in that very way, and return the message."""
    with pytest.raises(ProviderError) as caught:
        await rerank(config, three()[:2])
    assert type(caught.value) is kind
    assert "judges (remote::rerank)" in str(caught.value)
    return str(caught.value)


def answer(*pairs: tuple[Any, Any]) -> bytes:
    """Return an answer in Cohere's form."""
    results = [{"index": index, "relevance_score": score} for index, score in pairs]
    return json.dumps({"results": results}).encode()


# --- connections and statuses ----------------------------------------------------------------


async def test_a_broken_connection_is_tried_again(service: Service) -> None:
    """A connection that fails is tried `max_retries` times more."""
    service.replies = [Reply(hang_up=True)]
    assert ids(await rerank(configured(service.url), three())) == ["b", "c", "a"]
    assert len(service.requests) == 2


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, Overloaded),
        (503, Unavailable),
        (500, ProviderError),
        (400, Refused),
    ],
)
async def test_an_answer_is_not_asked_for_twice(
    service: Service, status: int, kind: type[ProviderError]
) -> None:
    """Somebody waits: an error of the service is reported at once, overload as Unavailable."""
    service.always = Reply(status=status, headers={"location": f"{service.url}/elsewhere"})
    assert str(status) in await refused(configured(service.url), kind)
    assert len(service.requests) == 1


async def test_one_batch_that_fails_fails_all(service: Service) -> None:
    """Half of the candidates are never ordered without the others; the error is the batch's own."""
    service.replies = [Reply(status=500)]
    await refused(configured(service.url, batch_size=1), ProviderError)


# --- garbage ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>gateway</html>",
        b"\xff\xfe",
        b"[" * 100_000,
        b"null",
        b"[]",
        b"7",
        b'{"results": null}',
        b'{"results": {"index": 0}}',
        b'{"results": ["a", "b"]}',
        b'{"results": [{"index": 0}, {"index": 1}]}',
        b'{"data": [{"index": 0, "relevance_score": 1}]}',
        b'[{"index": 0, "score": 1}, {"index": 1, "score": 1}]',  # TEI's
        answer(),
        answer((0, 0.5)),
        answer((0, 0.5), (0, 0.5)),
        answer((0, 0.5), (2, 0.5)),
        answer((-1, 0.5), (0, 0.5)),
        answer((0, 0.5), (1, 0.5), (1, 0.5)),
        answer((0, 0.5), (1, 0.5), (2, 0.5)),
        answer((0, 0.5), ("1", 0.5)),
        answer((0, 0.5), (1.0, 0.5)),
        answer((0, 0.5), (True, 0.5)),
        answer((0, 0.5), ([], 0.5)),
        answer((0, 0.5), (None, 0.5)),
        answer((0, 0.5), (1, None)),
        answer((0, 0.5), (1, "0.5")),
        answer((0, 0.5), (1, True)),
        answer((0, 0.5), (1, [0.5])),
        answer((0, 0.5), (1, float("nan"))),
        answer((0, 0.5), (1, float("inf"))),
        answer((0, 0.5), (1, 10**400)),
    ],
)
async def test_garbage_is_a_provider_error(service: Service, body: bytes) -> None:
    """Whatever is not one finite score for each text is refused.

    If this fails: a chunk would get another's score, or an error without a name would escape.
    """
    service.always = Reply(body=body)
    await refused(configured(service.url), ProviderError)
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"results": [{"index": 0, "relevance_score": 1}, {"index": 1, "relevance_score": 1}]}',
        b'{"error": "overloaded", "error_type": "Overloaded"}',
        b'[{"index": 0, "relevance_score": 1}, {"index": 1, "relevance_score": 1}]',
        b'[{"index": 0, "score": 1}]',
        b"[[0, 1], [1, 1]]",
    ],
)
async def test_garbage_from_tei(service: Service, body: bytes) -> None:
    """TEI's shape is held to the same rules: another dialect's answer is refused."""
    service.always = Reply(body=body)
    await refused(configured(service.url, "tei"), ProviderError)


async def test_messages_quote_nothing_of_an_answer(service: Service) -> None:
    """What a service answers is not shown: it may hold the texts."""
    service.always = Reply(body=b'{"results": "my secret text"}')
    with pytest.raises(ProviderError) as caught:
        await rerank(configured(service.url), [hit("a", "my secret text")])
    assert "secret" not in str(caught.value)
