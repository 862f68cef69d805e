"""What every remote model service shares: addresses, keys, TLS, and what is asked for twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from corral.api.errors import ProviderError, Unavailable
from corral.providers.models.http_service import HttpService, ServiceConfig

from ..json_service import KEY, Reply, Service, running_service


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service that says yes."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_service(lambda _: {"ok": True}) as found:
        yield found


async def post(config: ServiceConfig, *, retry_busy: bool = False) -> Any:
    """Send one request and return the answer's JSON."""

    async def work() -> bytes:
        client = HttpService("s (remote::s)", config, retry_busy=retry_busy)
        try:
            return await client.post("/do", {"x": 1})
        finally:
            await client.close()

    return json.loads(await work())


def configured(url: str, **settings: Any) -> ServiceConfig:
    """Return settings with quick retries."""
    return ServiceConfig.model_validate({"base_url": url, "retry_delay_seconds": 0.001, **settings})


async def test_a_request_and_its_key(service: Service) -> None:
    """The path is appended to base_url, whose last slash does not count; the key is a header."""
    assert await post(configured(service.url + "/", api_key=KEY + "\n")) == {"ok": True}
    assert service.paths == ["/v1/do"]
    assert service.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(("retry_busy", "requests"), [(True, 3), (False, 1)])
async def test_overload_is_asked_twice_only_where_nobody_waits(
    service: Service, retry_busy: bool, requests: int
) -> None:
    """An ingest tries an overloaded service again, a query does not."""
    service.always = Reply(status=503)
    with pytest.raises(Unavailable):
        await post(configured(service.url, max_retries=2), retry_busy=retry_busy)
    assert len(service.requests) == requests


async def test_a_redirect_is_not_followed(service: Service) -> None:
    """The operator's address is the one that is asked: keys and texts go nowhere else."""
    service.always = Reply(status=307, headers={"location": f"{service.url}/elsewhere"})
    with pytest.raises(ProviderError, match="307"):
        await post(configured(service.url, api_key=KEY))
    assert service.paths == ["/v1/do"]


@pytest.mark.parametrize("verify", [True, False])
async def test_certificates_are_checked_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, verify: bool
) -> None:
    """`verify_tls` reaches the client; the default is to check."""
    seen: list[object] = []
    made = httpx.AsyncClient

    def client(**options: Any) -> httpx.AsyncClient:
        seen.append(options["verify"])
        return made(**options)

    monkeypatch.setattr("corral.providers.models.http_service.httpx.AsyncClient", client)
    settings = {} if verify else {"verify_tls": False}
    await HttpService("s", configured("https://127.0.0.1:1", **settings)).close()
    assert seen == [verify]


@pytest.mark.parametrize("url", ["", "127.0.0.1", "ftp://a/", "http://u:p@a/", "http://a/?k=1"])
def test_bad_addresses_are_refused(url: str) -> None:
    """Only a plain http(s) URL is taken; secrets in it would show in the configuration."""
    with pytest.raises(ValidationError):
        configured(url)
