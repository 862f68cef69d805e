"""What `corral keys` does, on the data folder of this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import RenderableType

from corral.api.errors import InvalidRequest
from corral.api.principal import Role
from corral.providers.access_config import RateLimits
from corral.providers.config import data_home
from corral.providers.keys import ApiKey, KeyStore
from corral.server.command_line import display
from corral.server.command_line.connecting import check_home
from corral.server.command_line.failures import JSON

T = TypeVar("T")

DAY_SECONDS = 86_400.0


def create(
    home: Path | None,
    user: str,
    tenant: str,
    groups: Sequence[str],
    role: str,
    days: float | None,
    limits: Mapping[str, float | None],
    *,
    as_json: bool,
) -> None:
    """Make a key and print it: the key alone on stdout, what it is for on stderr."""

    async def made(store: KeyStore) -> tuple[ApiKey, str]:
        return await store.create(
            user,
            tenant=tenant,
            groups=frozenset(groups),
            role=Role(role),
            expires_in_seconds=None if days is None else days * DAY_SECONDS,
            limits=RateLimits.model_validate(limits),
        )

    try:
        key, secret = _with_store(home, made, writing=True)
    except ValueError as error:
        raise InvalidRequest(f"Cannot create the key: {error}.") from None
    if as_json:
        display.show_json({**_row(key), "key": secret})
        return
    click.echo(f"Key {key.key_id} of {display.clean(user)}; it is shown only now:", err=True)
    click.echo(secret)


def show(home: Path | None, *, as_json: bool) -> None:
    """Print the table of keys."""
    rows = [_row(key) for key in _with_store(home, lambda store: store.all())]
    if as_json:
        display.show_json(rows)
    elif rows:
        display.show(_table(rows))
    else:
        click.echo("No keys yet. Create one: corral keys create NAME --role admin")


def revoke(home: Path | None, key_id: str) -> None:
    """Revoke a key and say so."""
    key = _with_store(home, lambda store: store.revoke(key_id))
    click.echo(f"Key {key.key_id} of {display.clean(key.principal.user)} is revoked.")


def _with_store(
    home: Path | None, work: Callable[[KeyStore], Coroutine[Any, Any, T]], *, writing: bool = False
) -> T:
    async def run() -> T:
        folder = home or data_home()
        if writing:
            check_home(folder)
        store = KeyStore(folder)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def _row(key: ApiKey) -> JSON:
    principal = key.principal
    return {
        "key_id": key.key_id,
        "user": principal.user,
        "tenant": principal.tenant,
        "groups": sorted(principal.groups),
        "role": principal.role.value,
        "state": key.state(time.time()),
        "created": _time(key.created_at),
        "expires": _time(key.expires_at),
        "last_used": _time(key.last_used_at),
        **key.limits.model_dump(exclude_none=True),
    }


def _table(rows: Sequence[JSON]) -> RenderableType:
    table = display.new_table(
        "key", "user", "tenant", "groups", "role", "state", "expires", "last used"
    )
    for row in rows:
        names = (row["key_id"], row["user"], row["tenant"], ", ".join(row["groups"]))
        times = (row["expires"] or "never", row["last_used"] or "never")
        display.add_row(table, *names, row["role"], row["state"], *times)
    return table


def _time(seconds: float | None) -> str | None:
    """Return a time in UTC, in ISO 8601."""
    return None if seconds is None else display.time(seconds)
