"""`corral export` and `corral import`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from corral.server.cli import display
from corral.server.cli.options import OUTPUT, Target, json_option, on_client

if TYPE_CHECKING:
    from corral.providers.copying.snapshot_file import Snapshot
    from corral.server.cli.client import Client


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
    if file.exists() and not file.is_file():  # it would be replaced, even a device
        raise click.UsageError(f"{file} is not a regular file.")
    if file.exists() and not force:
        raise click.UsageError(f"{file} exists; pass --force to overwrite it.")
    target.run(_export, db, file, as_json)


async def _export(client: Client, db: str, file: Path, as_json: bool) -> None:
    """Write a snapshot, check it, and give it its name."""
    import asyncio  # noqa: PLC0415 - start-up time

    from corral.server.cli.progress import progress  # noqa: PLC0415 - start-up time

    started = time.monotonic()
    counted = await client.vector_db(db, counts=True)
    total = int(counted.get("chunk_count") or 0)
    with _written(file) as (part, out):
        with progress(total, total, work="Exporting", things="chunks") as advance:
            size = 0
            # The size of a chunk is not known before; that of its embedding is most of it.
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
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
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
    from corral.server.cli.progress import progress  # noqa: PLC0415 - start-up time

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
    """Yield a new file beside the one that is to be; it is gone where that does not come to be."""
    part = file.with_name(f"{file.name}.part")
    with part.open("w+b") as out:
        try:
            yield part, out
        finally:
            out.close()
            part.unlink(missing_ok=True)


def _checked(file: BinaryIO) -> Snapshot:
    """Return a snapshot that has just been written, after reading all of it."""
    from corral.providers.copying.snapshot_file import Snapshot  # noqa: PLC0415 - start-up time

    file.flush()
    snapshot = Snapshot(file)
    for _ in snapshot.batches():
        pass
    return snapshot
