"""remote::rerank when the service fails: connections, statuses, time, garbage."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from corral.api.errors import ProviderError, ProviderTimeout, Unavailable
from corral.providers.rerank.http.config import HTTPRerankConfig

from ..json_service import Reply, Service, closed_port
from .candidates import hit, ids
from .test_http_rerank import DIALECTS, configured, rerank, three


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


async def test_attempts_are_counted(service: Service) -> None:
    """After the last attempt the service is unavailable, which is retryable."""
    service.always = Reply(hang_up=True)
    assert "cannot be reached" in await refused(configured(service.url, max_retries=2), Unavailable)
    assert len(service.requests) == 3


async def test_a_dead_service_is_unavailable() -> None:
    """Nothing listening gives Unavailable."""
    assert "cannot be reached" in await refused(configured(closed_port()), Unavailable)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, Unavailable),
        (502, Unavailable),
        (503, Unavailable),
        (504, Unavailable),
        (500, ProviderError),
        (400, ProviderError),
        (401, ProviderError),
        (404, ProviderError),
        (413, ProviderError),
        (422, ProviderError),
        (307, ProviderError),
    ],
)
async def test_an_answer_is_not_asked_for_twice(
    service: Service, status: int, kind: type[ProviderError]
) -> None:
    """Somebody waits: an error of the service is reported at once, overload as Unavailable."""
    service.always = Reply(status=status, headers={"location": f"{service.url}/elsewhere"})
    assert str(status) in await refused(configured(service.url), kind)
    assert len(service.requests) == 1


async def test_a_slow_service_times_out(service: Service) -> None:
    """No answer within `timeout_seconds` gives ProviderTimeout."""
    service.always = Reply(delay_seconds=30)
    began = time.monotonic()
    assert "0.2 seconds" in await refused(
        configured(service.url, timeout_seconds=0.2), ProviderTimeout
    )
    assert time.monotonic() - began < 10


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
@pytest.mark.parametrize("score", ["as_is", "sigmoid"])
async def test_garbage_is_a_provider_error(service: Service, body: bytes, score: str) -> None:
    """Whatever is not one finite score for each text is refused.

    If this fails: a chunk would get another's score, or an error without a name would escape.
    """
    service.always = Reply(body=body)
    await refused(configured(service.url, score=score), ProviderError)
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


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_broken_compression_is_a_provider_error(service: Service, dialect: str) -> None:
    """An answer that cannot be decompressed is refused like any garbage."""
    service.always = Reply(body=b"no gzip", headers={"content-encoding": "gzip"})
    await refused(configured(service.url, dialect), ProviderError)


async def test_messages_quote_nothing_of_an_answer(service: Service) -> None:
    """What a service answers is not shown: it may hold the texts."""
    service.always = Reply(body=b'{"results": "my secret text"}')
    with pytest.raises(ProviderError) as caught:
        await rerank(configured(service.url), [hit("a", "my secret text")])
    assert "secret" not in str(caught.value)
