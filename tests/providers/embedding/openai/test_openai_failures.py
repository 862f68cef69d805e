"""remote::openai when the service fails: retries, pauses, time, garbage, secrets."""

from __future__ import annotations

import base64
import json
import logging
import socket
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import numpy as np
import pytest

from corral.api.errors import Overloaded, ProviderError, ProviderTimeout, Refused, Unavailable
from corral.providers.embedding.openai.config import OpenAIConfig

from ...json_service import Reply
from .embedding_service import Service, configured, embed, response


def refused(config: OpenAIConfig, kind: type[ProviderError]) -> str:
    """Embed one text, which must fail in that very way, and return the message."""
    with pytest.raises(ProviderError) as caught:
        embed(config, ["1"])
    assert type(caught.value) is kind
    assert "tei" in str(caught.value)
    return str(caught.value)


def recorded_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let pauses pass at once, and return the list in which they are written down."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("corral.providers.models.http_service.asyncio.sleep", sleep)
    return pauses


# --- retries ---------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [Reply(status=429), Reply(status=503), Reply(hang_up=True)])
def test_passing_failures_are_retried(service: Service, failure: Reply) -> None:
    """429, 5xx and broken connections are retried until the service answers."""
    service.replies = [failure, failure]
    np.testing.assert_array_equal(embed(configured(service.url), ["4"]), [[4, 1, 0]])
    assert len(service.requests) == 3


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(status=429), Overloaded),
        (Reply(status=503), Unavailable),
        (Reply(status=500), ProviderError),
        (Reply(hang_up=True), Unavailable),
    ],
)
def test_attempts_are_counted(service: Service, reply: Reply, kind: type[ProviderError]) -> None:
    """After `max_retries` more attempts the failure is reported; what may pass is retryable."""
    service.always = reply
    refused(configured(service.url, max_retries=2), kind)
    assert len(service.requests) == 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, Refused) for status in (400, 413, 422)),
        *((status, ProviderError) for status in (401, 403, 404, 307)),
    ],
)
def test_refusals_are_not_retried(service: Service, status: int, kind: type[ProviderError]) -> None:
    """A request that is wrong is sent once, and a redirect is not followed."""
    service.always = Reply(status=status, headers={"location": f"{service.url}/elsewhere"})
    assert str(status) in refused(configured(service.url), kind)
    assert len(service.requests) == 1


def test_pauses_grow(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses double from `retry_delay_seconds` up to 8 s, each between its half and its whole."""
    pauses = recorded_pauses(monkeypatch)
    service.always = Reply(status=500)
    config = configured(service.url, retry_delay_seconds=1, max_retries=5, timeout_seconds=600)
    refused(config, ProviderError)
    assert len(pauses) == 5
    for pause, whole in zip(pauses, [1, 2, 4, 8, 8], strict=True):
        assert whole / 2 <= pause <= whole


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after-ms": "250", "retry-after": "3"}, 0.25),
        ({"retry-after": "-1"}, 0.0),
    ],
)
def test_retry_after_is_obeyed(
    service: Service, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], seconds: float
) -> None:
    """A pause that the service asks for replaces ours."""
    pauses = recorded_pauses(monkeypatch)
    service.replies = [Reply(status=429, headers=headers)]
    embed(configured(service.url), ["1"])
    assert pauses == [seconds]


def test_retry_after_as_a_date(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """`retry-after` may be a date."""
    pauses = recorded_pauses(monkeypatch)
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    service.replies = [Reply(status=503, headers={"retry-after": date})]
    embed(configured(service.url), ["1"])
    assert 15 < pauses[0] <= 20


@pytest.mark.parametrize("value", ["soon", "", "nan", "inf"])
def test_unreadable_retry_after_is_passed_over(service: Service, value: str) -> None:
    """A `retry-after` that says nothing leaves our own pause."""
    service.replies = [Reply(status=429, headers={"retry-after": value})]
    np.testing.assert_array_equal(embed(configured(service.url), ["1"]), [[1, 1, 0]])


def test_a_pause_beyond_the_timeout_is_not_begun(service: Service) -> None:
    """Asked to wait longer than the time that is left, the call fails at once."""
    service.always = Reply(status=429, headers={"retry-after": "3600"})
    began = time.monotonic()
    refused(configured(service.url, timeout_seconds=30), Overloaded)
    assert time.monotonic() - began < 10
    assert len(service.requests) == 1


# --- a service that is dead, slow or wrong ----------------------------------------------------


def test_dead_service_is_unavailable() -> None:
    """Nothing listening gives Unavailable, retryable, that names the provider."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
        message = refused(configured(url, max_retries=1), Unavailable)
    assert "cannot be reached" in message


def test_slow_service_times_out(service: Service) -> None:
    """A service that does not answer within `timeout_seconds` gives ProviderTimeout."""
    service.delay_seconds = 30
    began = time.monotonic()
    assert "0.2 seconds" in refused(configured(service.url, timeout_seconds=0.2), ProviderTimeout)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>gateway</html>",
        b"\xff\xfe",
        b"[" * 100_000,
        b"null",
        b"[]",
        b'{"data": null}',
        b'{"data": {"index": 0}}',
        b'{"data": [{"embedding": [1, 2, 3]}]}',
        b'{"data": [{"index": 1, "embedding": [1, 2, 3]}]}',
        b'{"data": [{"index": [], "embedding": [1, 2, 3]}]}',
        b'{"data": [{"index": 0}]}',
        response([]),
        response([[1, 2, 3], [1, 2, 3]]),
        response([[1]]),
        response([[1, 2]]),
        response([7]),
        response([[1, 2, 3, 4]]),
        response([[[1], [2], [3]]]),
        response([[1, [2], 3]]),
        response([None]),
        response([[1, None, 3]]),
        response([["a", "b", "c"]]),
        response([[1, 10**400, 3]]),
        response([[1, 1e39, 3]]),
        response([[1, float("nan"), 3]]),
        response([[1, float("inf"), 3]]),
        response(["not base64!"]),
        response(["AAAA"]),
        response([base64.b64encode(np.array([1, np.nan, 3], "<f4").tobytes()).decode()]),
    ],
)
def test_garbage_is_a_provider_error(service: Service, body: bytes) -> None:
    """Whatever is no full set of finite embeddings of the right size is refused, not retried.

    If this fails: a wrong embedding would be stored, or an error without a name would escape.
    """
    service.always = Reply(body=body)
    refused(configured(service.url), ProviderError)
    assert len(service.requests) == 1


def test_broken_compression_is_a_provider_error(service: Service) -> None:
    """An answer that cannot be decompressed is refused like any garbage."""
    service.always = Reply(body=b"no gzip", headers={"content-encoding": "gzip"})
    refused(configured(service.url), ProviderError)


def test_neither_text_nor_key_leaks(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """Errors and logs show the service's error code, but never its message, the text or the key."""
    caplog.set_level(logging.DEBUG)
    quote = {"error": {"message": "bad input: my secret text", "code": "context_length_exceeded"}}
    service.always = Reply(status=400, body=json.dumps(quote).encode())
    with pytest.raises(ProviderError) as caught:
        embed(configured(service.url), ["my secret text"])
    assert "(context_length_exceeded)" in str(caught.value)
    assert "secret" not in str(caught.value)
    corral = [record for record in caplog.records if record.name.startswith("corral")]
    assert not [record for record in corral if "secret" in record.getMessage()]


@pytest.mark.parametrize("error", ["text", {"code": "my text\n"}, {"code": 7}, {"type": "x" * 99}])
def test_odd_error_bodies_are_not_quoted(service: Service, error: Any) -> None:
    """An error code that is no short name is left out."""
    service.always = Reply(status=400, body=json.dumps({"error": error}).encode())
    assert "answered 400." in refused(configured(service.url), Refused)
