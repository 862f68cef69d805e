"""What `corral dbs list --orphans` and `corral dbs prune` do, each on an open client."""

from __future__ import annotations

import click

from corral.server.command_line import display
from corral.server.command_line.client import JSON, Client, CommandError

SHARED = (
    "Note: those on a server may be vector DBs of another Corral that uses it with registrations "
    "of its own. Remove them only where there is none."
)


async def list_orphans(client: Client, *, as_json: bool) -> None:
    """Print what no registration holds."""
    found = await client.orphans()
    if as_json:
        display.show_json(found)
    else:
        _show(found)


async def prune(client: Client, *, ask: bool) -> None:
    """Delete what no registration holds, after showing it and asking."""
    found = await client.orphans()
    _show(found)
    orphans: list[JSON] = found["data"]
    if not orphans:
        return
    if ask:
        click.confirm(f"Delete these for good ({len(orphans)})?", abort=True)
    names = [{key: one[key] for key in ("provider_id", "name")} for one in orphans]
    await client.remove_orphans(names)
    click.echo(f"Deleted: {len(orphans)}.")


def _show(found: JSON) -> None:
    orphans, failures = found["data"], found["failures"]
    if orphans:
        table = display.new_table("provider", "name", "vector DB")
        for one in orphans:
            display.add_row(table, one["provider_id"], one["name"], one["vector_db_id"] or "?")
        display.show(table)
    else:
        click.echo("No data without a registration was found.")
    if any(one["shared"] for one in orphans):
        click.echo(SHARED, err=True)
    for one in failures:
        line = f"{one['provider_id']} could not be asked: {one['message']}"
        display.console(stderr=True).print(display.clean(line), soft_wrap=True)
    if failures and not orphans:
        raise CommandError(f"Providers that could not be asked: {len(failures)}.")
