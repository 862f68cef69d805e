"""Connect a command to a running server or to the app in this process."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from corral.providers.base.importing import no_collection
from corral.server.cli.client import Client
from corral.server.cli.failures import BAD_INPUT, CommandError

if TYPE_CHECKING:
    from corral.api.principal import Principal
    from corral.providers.base.config import RunConfig

TIMEOUT = httpx.Timeout(600.0, connect=5.0)
"""Seconds. An insert embeds all its chunks before it replies; a running server connects at once."""


@asynccontextmanager
async def connect(
    server: str | None, home: Path | None, config: Path | None, key: str | None, tenant: str
) -> AsyncIterator[Client]:
    """Yield a client of a `Target`: a server, or the same app in this process.

    Raises:
        CommandError: The URL or the key is malformed, or the data folder cannot be used.
        CorralError: In process: the configuration cannot work.
    """
    if server is None:
        from corral.providers.base.config import data_home, load_config

        folder = home or data_home()
        async with in_process(load_config(config, folder), folder, tenant) as client:
            yield client
        return
    headers = {} if key is None else {"authorization": f"Bearer {_checked(key)}"}
    url = _server_url(server)
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT) as http:
        yield Client(http)


@asynccontextmanager
async def in_process(config: RunConfig, home: Path, tenant: str = "") -> AsyncIterator[Client]:
    """Yield a client of an app in this process, which is started and shut down around the block.

    No key is needed: a user who can read the data folder can read everything in it.

    Raises:
        CommandError: The data folder cannot be created or written.
        CorralError: The configuration cannot work.
    """
    check_home(home)
    with no_collection():
        from corral.server.address import url_of
        from corral.server.app import create_app

        operator = operator_of(tenant)
        app = create_app(config, home, operator=operator)
    # The URL at which `corral serve` would listen, for links to the pages of documents.
    transport, url = httpx.ASGITransport(app=app), url_of(config.server.host, config.server.port)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=url, timeout=TIMEOUT) as http,
    ):
        yield Client(http, app.state.stack.for_principal(operator))


def operator_of(tenant: str) -> Principal:
    """Return the principal of commands in this process: an admin of the tenant.

    Raises:
        CommandError: The tenant's name is invalid.
    """
    from corral.api.principal import UNRESTRICTED

    try:
        return replace(UNRESTRICTED, tenant=tenant)
    except ValueError as error:
        raise CommandError(f"--tenant: {error}.", exit_code=BAD_INPUT) from None


def _server_url(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise CommandError(
            f"--url must be a server address (got {url!r}).",
            hint="Write it as http://127.0.0.1:8321",
            exit_code=BAD_INPUT,
        )
    return parsed


def _checked(key: str) -> str:
    if not key.isascii() or not key.isprintable() or " " in key or not key:
        raise CommandError(
            "The API key contains invalid characters.",
            hint="Set --key or CORRAL_API_KEY to exactly what `corral keys create` printed.",
            exit_code=BAD_INPUT,
        )
    return key


def check_home(home: Path) -> None:
    """Create the data folder.

    Raises:
        CommandError: The folder cannot be created or written.
    """
    hint = "Choose another with --home or CORRAL_HOME."
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"Cannot create the data folder {home}: {error.strerror}.", hint=hint
        ) from None
    if not os.access(home, os.W_OK):
        raise CommandError(f"Cannot write to the data folder {home}.", hint=hint)
