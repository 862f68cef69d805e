"""`corral keys`, on the state that the configuration names."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from corral.server.cli import display
from corral.server.cli.failures import JSON
from corral.server.cli.options import ROLES, Target, json_option

if TYPE_CHECKING:
    from rich.table import Table

    from corral.providers.state.keys import ApiKey, KeyStore

T = TypeVar("T")

DAY_SECONDS = 86_400.0


@click.group()
def keys() -> None:
    """Create, list and revoke API keys.

    The first key switches authentication on: from then on every request needs a key. Keys are in
    the state, which these commands open directly.
    """


@keys.command("create")
@click.argument("user")
@click.option(
    "--tenant", default="", help="Tenant whose vector DBs the key can use. [default: none]"
)
@click.option("--group", "groups", multiple=True, help="Group that the user is in; repeatable.")
@click.option("--role", type=ROLES, default="reader", show_default=True, help="Role of the key.")
@click.option(
    "--expires-in-days", "days", type=click.FloatRange(min=0, max=36_500, min_open=True),
    help="Days until it expires. [default: never]",
)  # fmt: skip
@click.option(
    "--requests-per-minute", type=click.IntRange(1),
    help="Requests per minute. [default: server.rate_limits]",
)  # fmt: skip
@click.option(
    "--mib-per-minute", type=click.FloatRange(min=0, min_open=True),
    help="MiB of request bodies per minute. [default: server.rate_limits]",
)  # fmt: skip
@click.option(
    "--concurrent-requests", type=click.IntRange(1),
    help="Concurrent requests. [default: server.rate_limits]",
)  # fmt: skip
@json_option
@click.pass_obj
def create(
    target: Target,
    /,
    user: str,
    tenant: str,
    groups: tuple[str, ...],
    role: str,
    days: float | None,
    as_json: bool,
    **limits: float | None,
) -> None:
    """Create an API key for USER and print it, once.

    Roles: a reader can query; a writer can also register vector DBs, insert and delete documents;
    an admin can also read every document of its tenant and delete vector DBs. An admin without a
    tenant is the operator.
    """
    target.local_only("keys create", of_a_tenant=True)
    from corral.api.errors import InvalidRequest
    from corral.api.principal import Role
    from corral.providers.base.server_config import RateLimits

    async def made(store: KeyStore) -> tuple[ApiKey, str]:
        return await store.create(
            user,
            tenant=tenant or target.tenant,
            groups=frozenset(groups),
            role=Role(role),
            expires_in_seconds=None if days is None else days * DAY_SECONDS,
            limits=RateLimits.model_validate(limits),
        )

    try:
        key, secret = _with_store(target, made)
    except ValueError as error:
        raise InvalidRequest(f"Cannot create the key: {error}.") from None
    if as_json:
        display.show_json({**_row(key), "key": secret})
        return
    click.echo(f"Key {key.key_id} of {display.clean(user)}; it is shown only once:", err=True)
    click.echo(secret)


@keys.command("list")
@json_option
@click.pass_obj
def list_keys(target: Target, as_json: bool) -> None:
    """List API keys: their owners, rights and last use."""
    target.local_only("keys list")
    rows = [_row(key) for key in _with_store(target, lambda store: store.all())]
    none = display.as_run("No keys yet. Create one: corral keys create NAME --role admin")
    display.answer(rows, _table(rows) if rows else none, as_json=as_json)


@keys.command("revoke")
@click.argument("key_id")
@click.pass_obj
def revoke(target: Target, key_id: str) -> None:
    """Revoke the API key KEY_ID, with immediate effect."""
    target.local_only("keys revoke")
    key = _with_store(target, lambda store: store.revoke(key_id))
    click.echo(f"Key {key.key_id} of {display.clean(key.principal.user)} is revoked.")


def _with_store(target: Target, work: Callable[[KeyStore], Coroutine[Any, Any, T]]) -> T:
    import asyncio

    from corral.providers.base.config import data_home, load_config
    from corral.providers.state.keys import KeyStore
    from corral.providers.state.state import State
    from corral.server.cli.connecting import check_home

    async def run() -> T:
        folder = target.home or data_home()
        check_home(folder)
        state = State(folder, load_config(target.config, folder).state.get_secret_value())
        try:
            return await work(KeyStore(state))
        finally:
            await state.close()

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


def _table(rows: list[JSON]) -> Table:
    table = display.new_table(
        "key#", "user", "tenant", "groups", "role", "state", "expires", "last used"
    )
    for row in rows:
        names = (row["key_id"], row["user"], row["tenant"], ", ".join(row["groups"]))
        times = (row["expires"] or "never", row["last_used"] or "never")
        display.add_row(table, *names, row["role"], row["state"], *times)
    return table


def _time(seconds: float | None) -> str | None:
    """Return a time in UTC, in ISO 8601."""
    return None if seconds is None else display.time(seconds)
