"""What `corral reembed` and `corral dbs change` do, on an open client."""

from __future__ import annotations

import time

import click

from corral.providers.copying.steps import WRITTEN_AT_ONCE, batch_size
from corral.server.command_line import display
from corral.server.command_line.client import Client
from corral.server.command_line.db_commands import describe, resumable
from corral.server.command_line.progress import progress
from corral.server.command_line.transport import JSON


async def reembed(
    client: Client, db: str, model: str | None, *, batch: int | None, as_json: bool
) -> None:
    """Embed all chunks of a vector DB again, and say what was done."""
    if model is None:
        model = str((await client.vector_db(db))["embedding_model"])
    await change(client, db, {"embedding_model": model}, batch=batch, as_json=as_json)


async def change(
    client: Client, db: str, settings: JSON, *, batch: int | None, as_json: bool
) -> None:
    """Change settings by a rebuild, and say what was done."""
    started = time.monotonic()
    begun = await client.begin_rebuild(db, settings)
    seen = built = 0
    note = ""
    if begun["needed"]:
        work = "Embedding" if begun["embeds"] else "Rebuilding"
        with resumable():
            seen, built = await _build(client, db, batch, work)
            note = (await client.switch_rebuild(db))["note"]
    report = {
        "vector_db": await client.vector_db(db),
        "changed": begun["needed"],
        "seen": seen,
        "built": built,
        "seconds": time.monotonic() - started,
        "note": note,
    }
    if as_json:
        display.show_json(report)
    elif not begun["needed"]:
        click.echo(f"Nothing to do. {describe(report['vector_db'])}")
    else:
        took = f"{display.counted(seen, 'chunk')} in {report['seconds']:.1f} s"
        click.echo(f"{took}. {describe(report['vector_db'])}")
        if note:
            display.note(f"Note: {note}")


async def _build(client: Client, db: str, batch: int | None, work: str) -> tuple[int, int]:
    """Take all steps of a rebuild; return how many chunks there were, and how many were built."""
    step = await client.step_rebuild(db, "", batch or WRITTEN_AT_ONCE)
    limit = batch or batch_size(step["total"])
    seen = built = 0
    with progress(step["total"], step["total"], work=work, things="chunks") as advance:
        while True:
            seen, built = seen + step["seen"], built + step["copied"]
            advance(step["seen"], step["seen"])
            if step["done"]:
                return seen, built
            step = await client.step_rebuild(db, step["last_id"], limit)


async def abandon(client: Client, db: str, *, as_json: bool) -> None:
    """Give a rebuild up."""
    await client.abandon_rebuild(db)
    if as_json:
        display.show_json(await client.vector_db(db))
        return
    display.show(display.clean(f"{db}: the rebuild is given up, the old index serves on."))
