"""Addresses of servers in the settings of providers."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from pydantic import AfterValidator


def server_url(
    example: str,
    secrets: str,
    *,
    schemes: Collection[str] = ("http", "https"),
    without: Collection[str] = (),
) -> AfterValidator:
    """Return the check of a setting with a server's address.

    Args:
        example: An address, shown if the value is not one.
        secrets: Where to put a user and password instead, such as "put the key into api_key".
        schemes: The schemes that the provider knows.
        without: Parts that the address must not have: path, query, fragment.
    """

    def check(url: str) -> str:
        parts = urlsplit(url)
        is_one_word = url.isprintable() and " " not in url
        if parts.scheme not in schemes or not parts.hostname or parts.port == 0 or not is_one_word:
            raise ValueError(f"must look like {example}")
        if parts.username or parts.password:
            raise ValueError(f"must hold no user or password; {secrets}")
        for name in without:
            if getattr(parts, name).strip("/"):
                raise ValueError(f"must hold no {name}")
        return url

    return AfterValidator(check)
