"""`corral copy` and `corral reembed`: what goes through all chunks of a vector DB, step by step."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import click

from corral.server.cli import display
from corral.server.cli.failures import JSON, CommandError
from corral.server.cli.options import Target, batch_option, json_option, on_client, vector_db_path

if TYPE_CHECKING:
    from rich.console import RenderableType

    from corral.server.cli.client import Client


@click.command()
@click.argument("source", metavar="SRC_DB")
@click.argument("target", metavar="DST_DB")
@click.option(
    "--provider", "--to", "provider_id", help="Provider of DST_DB. [default: SRC_DB's provider]"
)
@batch_option
@json_option
@on_client
async def copy(
    client: Client,
    source: str,
    target: str,
    provider_id: str | None,
    batch: int | None,
    as_json: bool,
) -> None:
    """Copy a vector DB, embeddings and all, to any provider.

    Embeds nothing again. Run the same command to resume an interrupted copy. At the end, it
    compares the chunks on both sides and their answers to sample queries.
    """
    from corral.server.cli.progress import resumable, through  # noqa: PLC0415 - start-up time

    started, path = time.monotonic(), f"{vector_db_path(source)}/copy"
    into: JSON = {"target_id": target, "provider_id": provider_id}

    def step(page: JSON) -> Awaitable[JSON]:
        return client.call("POST", path, into | page)

    with resumable():
        seen, copied = await through(step, batch, "Copying")
    try:
        checks = await client.call("POST", f"{path}/verify", {"target_id": target})
    except CommandError as error:  # the copy is to blame and not the command
        raise CommandError(error.message, hint=error.hint, status=error.status) from None
    report = {**checks, "seen": seen, "copied": copied, "seconds": time.monotonic() - started}
    display.answer(report, copy_table(report), as_json=as_json)


@click.command()
@click.argument("db")
@click.option("--model", help="Embedding model. [default: DB's own, as it is configured now]")
@click.option("--abandon", is_flag=True, help="Discard an unfinished rebuild.")
@batch_option
@json_option
@click.pass_obj
def reembed(
    target: Target, db: str, model: str | None, abandon: bool, batch: int | None, as_json: bool
) -> None:
    """Embed a vector DB again, with the same or another model.

    Builds a second index and switches to it when it is complete; queries and inserts continue
    meanwhile. Run the same command to resume an interrupted rebuild.
    """
    if abandon:
        if model is not None or batch is not None:
            raise click.UsageError("--abandon cannot be combined with --model or --batch.")
        target.run(_abandon, db, as_json)
    else:
        target.run(change, db, {"embedding_model": model}, batch, as_json)


async def change(client: Client, db: str, settings: JSON, batch: int | None, as_json: bool) -> None:
    """Change settings of a vector DB by a rebuild, and say what was done.

    An `embedding_model` of None is the vector DB's own.
    """
    from corral.server.cli.progress import resumable, through  # noqa: PLC0415 - start-up time

    started, path = time.monotonic(), f"{vector_db_path(db)}/rebuild"
    if settings.get("embedding_model", "") is None:
        settings = {"embedding_model": (await client.vector_db(db))["embedding_model"]}
    begun = await client.call("POST", path, settings)
    seen, built, note = 0, 0, ""

    def step(page: JSON) -> Awaitable[JSON]:
        return client.call("POST", f"{path}/step", page)

    if begun["needed"]:
        with resumable():
            work = "Embedding" if begun["embeds"] else "Rebuilding"
            seen, built = await through(step, batch, work)
            note = (await client.call("POST", f"{path}/switch"))["note"]
    changed = await client.vector_db(db)
    seconds = time.monotonic() - started
    report = {
        "vector_db": changed, "changed": begun["needed"], "seen": seen, "built": built,
        "seconds": seconds, "note": note,
    }  # fmt: skip
    took = f"{display.counted(seen, 'chunk')} in {seconds:.1f} s"
    sentence = f"{took if begun['needed'] else 'Nothing to do'}. {display.describe(changed)}"
    if as_json:
        display.show_json(report)
        return
    click.echo(sentence)
    if note:
        display.note(f"Note: {note}")


async def _abandon(client: Client, db: str, as_json: bool) -> None:
    await client.call("POST", f"{vector_db_path(db)}/rebuild/abandon")
    sentence = display.clean(f"{db}: the rebuild is given up, the old index serves on.")
    display.answer(await client.vector_db(db) if as_json else {}, sentence, as_json=as_json)


def copy_table(report: JSON) -> RenderableType:
    """Return the table of a finished copy: chunks, seconds, and what was verified."""
    overlaps = [report[f"{leg}_overlap"] for leg in display.LEGS]
    hits = ["-" if o is None else "same" if o == 1 else f"{o:.1%} same" for o in overlaps]
    row = [f"{report['seen']:,}", f"{report['copied']:,}", f"{report['seconds']:.1f}"]
    headers = ("chunks>", "copied>", "seconds>", "compared>", "vector hits>", "keyword hits>")
    return display.table(headers, [[*row, report["sampled"], *hits]])
