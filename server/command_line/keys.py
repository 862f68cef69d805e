"""`corral keys`: options and dispatch. Imports nothing heavier than click."""

from __future__ import annotations

import click

from corral.server.command_line.options import ROLES, Target, json_option


@click.group()
def keys() -> None:
    """Create, list and revoke API keys.

    The first key switches authentication on: from then on every request needs a key. Keys are in
    the data folder, so these commands work only on the server's machine.
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
    from corral.server.command_line import key_commands  # noqa: PLC0415 - start-up time

    key_commands.create(
        target.home, user, tenant or target.tenant, groups, role, days, limits, as_json=as_json
    )


@keys.command("list")
@json_option
@click.pass_obj
def list_keys(target: Target, as_json: bool) -> None:
    """List API keys: their owners, rights and last use."""
    target.local_only("keys list")
    from corral.server.command_line import key_commands  # noqa: PLC0415 - start-up time

    key_commands.show(target.home, as_json=as_json)


@keys.command("revoke")
@click.argument("key_id")
@click.pass_obj
def revoke(target: Target, key_id: str) -> None:
    """Revoke the API key KEY_ID, with immediate effect."""
    target.local_only("keys revoke")
    from corral.server.command_line import key_commands  # noqa: PLC0415 - start-up time

    key_commands.revoke(target.home, key_id)
