"""`corral export` and `corral import`: options and dispatch. Imports nothing heavier than click."""

from __future__ import annotations

from pathlib import Path

import click

from corral.server.command_line.options import OUTPUT, Target, json_option


@click.command("export")
@click.argument("db")
@click.argument("file", type=OUTPUT)
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@json_option
@click.pass_obj
def export_db(target: Target, db: str, file: Path, force: bool, as_json: bool) -> None:
    """Write a vector DB to one file.

    It holds settings, chunks, metadata and embeddings; any Corral imports it, to any provider. The
    file is checked before it gets its name.
    """
    if file.exists() and not file.is_file():  # it would be replaced, even a device
        raise click.UsageError(f"{file} is not a regular file.")
    if file.exists() and not force:
        raise click.UsageError(f"{file} exists; pass --force to overwrite it.")
    target.run("snapshot_commands.export_db", db, file, as_json=as_json)


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--as", "db", metavar="DB", help="Id of the vector DB. [default: the snapshot's]")
@click.option(
    "--provider",
    "provider_id",
    help="Provider id. [default: the snapshot's if configured here, else the first one]",
)
@json_option
@click.pass_obj
def import_db(
    target: Target, file: Path, db: str | None, provider_id: str | None, as_json: bool
) -> None:
    """Make a vector DB of a file that `corral export` wrote.

    All or nothing: the whole file is checked first. Nothing is embedded.
    """
    target.run("snapshot_commands.import_db", file, db, provider_id, as_json=as_json)
