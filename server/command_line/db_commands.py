"""What `corral dbs` and `corral copy` do, each command on an open client."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from corral.providers.copying.steps import WRITTEN_AT_ONCE, batch_size
from corral.server.command_line import display
from corral.server.command_line.client import Client
from corral.server.command_line.progress import progress
from corral.server.command_line.transport import JSON, CommandError

_FIRST = (
    "identifier",
    "provider_id",
    "chunk_count",
    "document_count",
    "embedding_model",
    "embedding_dimension",
    "search_mode",
)
SHARED = (
    "Note: on a shared server, these may be vector DBs of another Corral. Remove them only if no "
    "other Corral uses that server."
)


async def list_dbs(client: Client, *, as_json: bool) -> None:
    """Print the table of vector DBs, with what is in them."""
    vector_dbs = await client.vector_dbs(counts=True)
    if as_json:
        display.show_json(vector_dbs)
    elif vector_dbs:
        display.show(display.vector_dbs_table(vector_dbs))
    else:
        click.echo("No vector DB is registered. Create one: corral dbs create NAME")


async def show_db(client: Client, db: str, *, as_json: bool) -> None:
    """Print one vector DB's settings, and what is in it."""
    settings = await client.vector_db(db, counts=True)
    if as_json:
        display.show_json(settings)
        return
    if settings.get("fingerprint"):
        parts = json.loads(settings["fingerprint"])
        settings["fingerprint"] = {name: _short(str(part)) for name, part in parts.items()}
    first = {name: settings.pop(name) for name in _FIRST if name in settings}
    display.show(display.settings_table({**first, **settings}))


def _short(part: str) -> str:
    """Return a part of a fingerprint for a table: twelve digits tell digests apart."""
    return part if len(part) <= 40 else f"{part[:12]}..."


async def create_db(client: Client, db: str, settings: JSON, *, as_json: bool) -> None:
    """Register a vector DB and print what the server made of it."""
    created = await client.register(db, settings)
    if as_json:
        display.show_json(created)
    else:
        display.show(describe(created))


def describe(vector_db: JSON) -> str:
    """Return one line about a vector DB."""
    return display.clean(
        f"{vector_db.get('identifier')}: {vector_db.get('search_mode')} search on "
        f"{vector_db.get('provider_id')}, embeddings {vector_db.get('embedding_model')} "
        f"({vector_db.get('embedding_dimension')} dimensions)"
    )


async def delete_db(client: Client, db: str, *, ask: bool) -> None:
    """Delete a vector DB, after asking."""
    await client.vector_db(db)
    if ask:
        click.confirm(f"Delete vector DB {db!r} with all its chunks?", abort=True)
    note = await client.unregister(db)
    display.show(display.clean(f"{db} is deleted. {note}".strip()))


async def list_orphans(client: Client, *, as_json: bool) -> None:
    """Print what no registration holds."""
    found = await client.orphans()
    if as_json:
        display.show_json(found)
    else:
        _show_orphans(found)


async def prune(client: Client, *, ask: bool, as_json: bool) -> None:
    """Delete what no registration holds, after showing it and asking."""
    found = await client.orphans()
    orphans: list[JSON] = found["data"]
    if ask or not as_json:
        _show_orphans(found)
    if orphans:
        if ask:
            click.confirm(f"Delete these for good ({len(orphans)})?", abort=True)
        names = [{key: one[key] for key in ("provider_id", "name")} for one in orphans]
        await client.remove_orphans(names)
    if as_json:
        display.show_json(orphans)
    elif orphans:
        click.echo(f"Deleted: {len(orphans)}.")


def _show_orphans(found: JSON) -> None:
    orphans, failures = found["data"], found["failures"]
    if orphans:
        table = display.new_table("provider", "name", "vector DB")
        for one in orphans:
            display.add_row(table, one["provider_id"], one["name"], one["vector_db_id"] or "?")
        display.show(table)
    else:
        click.echo("No orphans found.")
    if any(one["shared"] for one in orphans):
        click.echo(SHARED, err=True)
    for one in failures:
        line = f"{one['provider_id']} did not answer: {one['message']}"
        display.note(line)
    if failures and not orphans:
        raise CommandError(f"{display.counted(len(failures), 'provider')} did not answer.")


async def copy(
    client: Client,
    source: str,
    target: str,
    *,
    provider_id: str | None,
    batch: int | None,
    as_json: bool,
) -> None:
    """Copy a vector DB step by step, verify the copy and print what was done."""
    started = time.monotonic()
    step = await client.copy(source, target, provider_id, "", batch or WRITTEN_AT_ONCE)
    limit = batch or batch_size(step["total"])
    seen = copied = 0
    with (
        resumable(),
        progress(step["total"], step["total"], work="Copying", things="chunks") as advance,
    ):
        while True:
            seen, copied = seen + step["seen"], copied + step["copied"]
            advance(step["seen"], step["seen"])
            if step["done"]:
                break
            step = await client.copy(source, target, provider_id, step["last_id"], limit)
    try:
        checks = await client.verify_copy(source, target)
    except CommandError as error:  # the copy is to blame and not the command
        raise CommandError(error.message, hint=error.hint, status=error.status) from None
    report = {**checks, "seen": seen, "copied": copied, "seconds": time.monotonic() - started}
    if as_json:
        display.show_json(report)
    else:
        display.show(display.copy_table(report))


@contextmanager
def resumable() -> Iterator[None]:
    """Print how to resume if the work in this context is interrupted."""
    try:
        yield
    except (CommandError, asyncio.CancelledError):
        display.note("What is done stays: run the same command again to continue.")
        raise
