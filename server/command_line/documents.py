"""`corral documents`: options and dispatch. What its commands do is in `document_commands`.

Nothing heavier than click is imported here, since `corral --help` loads it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from corral.server.command_line.options import as_json_option

if TYPE_CHECKING:
    from corral.server.command_line.cli import Target


@click.group()
def documents() -> None:
    """List, show and delete the documents of a vector DB."""


@documents.command("list")
@click.argument("db")
@click.option("--after", default="", metavar="ID", help="Begin behind this document id.")
@click.option("--limit", type=click.IntRange(1), help="Most documents. [default: all]")
@as_json_option
@click.pass_obj
def list_documents(target: Target, db: str, after: str, limit: int | None, as_json: bool) -> None:
    """List the documents of DB by id, with their chunks."""
    _run(target, "list_documents", db, after=after, limit=limit, as_json=as_json)


@documents.command("show")
@click.argument("db")
@click.argument("document_id")
@as_json_option
@click.pass_obj
def show_document(target: Target, db: str, document_id: str, as_json: bool) -> None:
    """Show a document's metadata and its chunks."""
    _run(target, "show_document", db, document_id, as_json=as_json)


@documents.command("delete")
@click.argument("db")
@click.argument("document_ids", metavar="DOCUMENT_ID...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json_option
@click.pass_obj
def delete_documents(
    target: Target, db: str, document_ids: tuple[str, ...], yes: bool, as_json: bool
) -> None:
    """Delete documents of DB with all their chunks, each in one write."""
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("Nobody can be asked here; give --yes to delete.")
    _run(target, "delete_documents", db, document_ids, ask=not yes, as_json=as_json)


def _run(target: Target, name: str, *arguments: Any, **options: Any) -> None:
    from corral.server.command_line import (  # noqa: PLC0415 - start-up time
        commands,
        document_commands,
    )

    command = getattr(document_commands, name)
    commands.run(target.url, target.config, target.home, command, *arguments, **options)
