"""The address of a server is checked when the settings are read."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError

from corral.providers.vector_io.kit.urls import server_url

CHECK = server_url("http://127.0.0.1:1", "put them into token", without=("path", "query"))
URL: TypeAdapter[str] = TypeAdapter(Annotated[str, CHECK])


@pytest.mark.parametrize("url", ["http://a", "https://a.example:443/", "HTTPS://[::1]:80"])
def test_an_address_stays_as_it_is(url: str) -> None:
    """What is accepted is returned unchanged.

    If this fails: a provider connects to another address than the operator wrote.
    """
    assert URL.validate_python(url) == url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "must look like http://127.0.0.1:1"),
        ("ftp://a", "must look like"),
        ("http://a b", "must look like"),
        ("http://a\nb", "must look like"),
        ("http://a:port", "Port could not be cast"),
        ("http://me:secret@a", "must hold no user or password; put them into token"),
        ("http://a/path", "must hold no path"),
        ("http://a?x=1", "must hold no query"),
    ],
)
def test_another_address_is_refused_with_what_to_do(url: str, message: str) -> None:
    """The message shows an address, or names the part that is too much.

    If this fails: a wrong address is noticed at the first request only.
    """
    with pytest.raises(ValidationError, match=message):
        URL.validate_python(url)


def test_a_provider_may_know_other_schemes() -> None:
    """A scheme counts only where the provider names it.

    If this fails: Milvus refuses tcp://, or Qdrant accepts it.
    """
    tcp: TypeAdapter[str] = TypeAdapter(
        Annotated[str, server_url("tcp://a", "x", schemes=("tcp",))]
    )
    assert tcp.validate_python("tcp://a") == "tcp://a"
    with pytest.raises(ValidationError):
        tcp.validate_python("http://a")
