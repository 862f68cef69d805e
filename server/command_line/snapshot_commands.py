"""What `corral export` and `corral import` do, each on an open client."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from corral.providers.copying.snapshot_file import Snapshot
from corral.server.command_line import display
from corral.server.command_line.client import Client
from corral.server.command_line.db_commands import describe
from corral.server.command_line.progress import progress


async def export_db(client: Client, db: str, file: Path, *, as_json: bool) -> None:
    """Write a snapshot, check it, and give it its name."""
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
        manifest = await asyncio.to_thread(_checked, out)
        out.close()
        part.replace(file)
    report = {
        "file": str(file),
        "chunks": manifest.manifest.chunks,
        "bytes": size,
        "seconds": time.monotonic() - started,
        "changed_meanwhile": manifest.manifest.changed_meanwhile,
    }
    if as_json:
        display.show_json(report)
        return
    display.show(
        display.clean(
            f"{file}: {display.counted(manifest.manifest.chunks, 'chunk')}, {display.size(size)}, "
            f"{report['seconds']:.1f} s"
        )
    )
    if manifest.manifest.changed_meanwhile:
        display.note(
            "Note: chunks were added or removed meanwhile: documents that were replaced may be in "
            "the file in part. Export again when nothing is written."
        )


async def import_db(
    client: Client, file: Path, db: str | None, provider_id: str | None, *, as_json: bool
) -> None:
    """Make a vector DB of a snapshot."""
    started = time.monotonic()
    with file.open("rb") as content:
        size = os.fstat(content.fileno()).st_size
        with progress(1, size, work="Importing", things="files") as advance:
            reply = await client.restore(content, db, provider_id, advance)
    if as_json:
        display.show_json(reply)
        return
    seconds = time.monotonic() - started
    took = f"{display.counted(reply['chunks'], 'chunk')} in {seconds:.1f} s"
    click.echo(f"{took}. {describe(reply['vector_db'])}")
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
    file.flush()
    snapshot = Snapshot(file)
    for _ in snapshot.batches():
        pass
    return snapshot
