"""`corral copy`, `reembed`, `export` and `import`, which read all chunks of a vector DB."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from corral.server.cli import display
from corral.server.cli.failures import JSON, CommandError
from corral.server.cli.options import INPUT, OUTPUT, Target, batch_option, json_option, on_client
from corral.server.cli.paths import vector_db_path

if TYPE_CHECKING:
    from rich.console import RenderableType

    from corral.providers.copying.snapshot_file import Snapshot
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
    from corral.server.cli.progress import resumable, through

    started, path = time.monotonic(), f"{vector_db_path(source)}/copy"
    into: JSON = {"target_id": target, "provider_id": provider_id}

    def step(page: JSON) -> Awaitable[JSON]:
        return client.call("POST", path, into | page)

    with resumable():
        seen, copied = await through(step, batch, "Copying")
    try:
        checks = await client.call("POST", f"{path}/verify", {"target_id": target})
    except CommandError as error:  # the copy failed, not the command
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
    during the rebuild. Run the same command to resume an interrupted rebuild.
    """
    if abandon:
        if model is not None or batch is not None:
            raise click.UsageError("--abandon cannot be combined with --model or --batch.")
        target.run(_abandon, db, as_json)
    else:
        target.run(change, db, {"embedding_model": model}, batch, as_json)


async def change(client: Client, db: str, settings: JSON, batch: int | None, as_json: bool) -> None:
    """Change settings of a vector DB by a rebuild, and print a summary.

    An `embedding_model` of None keeps the vector DB's model.
    """
    from corral.server.cli.progress import resumable, through

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


@click.command("export")
@click.argument("db")
@click.argument("file", type=OUTPUT)
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@json_option
@click.pass_obj
def export_db(target: Target, db: str, file: Path, force: bool, as_json: bool) -> None:
    """Write a vector DB to one file.

    The file contains settings, chunks, metadata and embeddings, and can be imported into any
    provider. FILE appears only when it is complete.
    """
    # Renaming would replace the target, even if it is a device.
    if file.exists() and not file.is_file():
        raise click.UsageError(f"{file} is not a regular file.")
    if file.exists() and not force:
        raise click.UsageError(f"{file} exists; pass --force to overwrite it.")
    target.run(_export, db, file, as_json)


async def _export(client: Client, db: str, file: Path, as_json: bool) -> None:
    """Write a snapshot, check it, and rename it to its final name."""
    import asyncio

    from corral.server.cli.progress import progress

    started = time.monotonic()
    counted = await client.vector_db(db, counts=True)
    total = int(counted.get("chunk_count") or 0)
    with _written(file) as (part, out):
        with progress(total, total, work="Exporting", things="chunks") as advance:
            size = 0
            # The size of a chunk is unknown until it is written; most of it is the embedding.
            about = 4 * int(counted.get("embedding_dimension") or 1) + 1200
            async for piece in client.export(db):
                out.write(piece)
                chunks = min(len(piece) // about, total)
                advance(chunks, chunks)
                size += len(piece)
        manifest = (await asyncio.to_thread(_checked, out)).manifest
        out.close()
        part.replace(file)
    report = {
        "file": str(file),
        "chunks": manifest.chunks,
        "bytes": size,
        "seconds": time.monotonic() - started,
        "changed_meanwhile": manifest.changed_meanwhile,
    }
    chunk_count = display.counted(manifest.chunks, "chunk")
    sentence = f"{file}: {chunk_count}, {display.size(size)}, {report['seconds']:.1f} s"
    display.answer(report, display.clean(sentence), as_json=as_json)
    if manifest.changed_meanwhile and not as_json:
        display.note(
            "Note: chunks were added or removed meanwhile: documents that were replaced may be in "
            "the file in part. Export again when nothing is written."
        )


@click.command("import")
@click.argument("file", type=INPUT)
@click.option("--as", "db", metavar="DB", help="Id of the vector DB. [default: the snapshot's]")
@click.option(
    "--provider",
    "provider_id",
    help="Provider id. [default: the snapshot's if configured here, else the first one]",
)
@json_option
@on_client
async def import_db(
    client: Client, file: Path, db: str | None, provider_id: str | None, as_json: bool
) -> None:
    """Create a vector DB from a file written by `corral export`.

    All or nothing: checks the whole file first. Embeds nothing again.
    """
    from corral.server.cli.progress import progress

    started = time.monotonic()
    with file.open("rb") as content:
        size = os.fstat(content.fileno()).st_size
        with progress(1, size, work="Importing", things="files") as advance:
            reply = await client.restore(content, db, provider_id, advance)
    if as_json:
        display.show_json(reply)
        return
    took = f"{display.counted(reply['chunks'], 'chunk')} in {time.monotonic() - started:.1f} s"
    click.echo(f"{took}. {display.describe(reply['vector_db'])}")
    for note in reply["notes"]:
        display.note(f"Note: {note}")


@contextmanager
def _written(file: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Yield a temporary file beside the target; delete it if it was not renamed."""
    part = file.with_name(f"{file.name}.part")
    with part.open("w+b") as out:
        try:
            yield part, out
        finally:
            out.close()
            part.unlink(missing_ok=True)


def _checked(file: BinaryIO) -> Snapshot:
    """Return a snapshot that has just been written, after reading all of it."""
    from corral.providers.copying.snapshot_file import Snapshot

    file.flush()
    snapshot = Snapshot(file)
    for _ in snapshot.batches():
        pass
    return snapshot
