"""`corral documents`: options and dispatch. Imports nothing heavier than click."""

from __future__ import annotations

import click

from corral.server.command_line.options import Target, json_option, yes_option


@click.group()
def documents() -> None:
    """List, show and delete documents, and set who reads them."""


@documents.command("list")
@click.argument("db")
@click.option("--after", default="", metavar="ID", help="List documents after this id.")
@click.option("--limit", type=click.IntRange(1), help="Maximum number of documents. [default: all]")
@json_option
@click.pass_obj
def list_documents(target: Target, db: str, after: str, limit: int | None, as_json: bool) -> None:
    """List documents by id with their numbers of chunks."""
    target.run("document_commands.list_documents", db, after=after, limit=limit, as_json=as_json)


@documents.command("show")
@click.argument("db")
@click.argument("document_id")
@json_option
@click.pass_obj
def show_document(target: Target, db: str, document_id: str, as_json: bool) -> None:
    """Show a document's metadata and its chunks."""
    target.run("document_commands.show_document", db, document_id, as_json=as_json)


@documents.command("delete")
@click.argument("db")
@click.argument("document_ids", metavar="DOCUMENT_ID...", nargs=-1, required=True)
@yes_option
@json_option
@click.pass_obj
def delete_documents(
    target: Target, db: str, document_ids: tuple[str, ...], yes: bool, as_json: bool
) -> None:
    """Delete documents and all their chunks, each in one write."""
    target.run("document_commands.delete_documents", db, document_ids, ask=not yes, as_json=as_json)


@documents.command("acl")
@click.argument("db")
@click.argument("document_id")
@click.argument("tokens", metavar="[TOKEN...]", nargs=-1)
@click.option("--default", "by_default", is_flag=True, help="Take the vector DB's default_acl.")
@click.option("--nobody", is_flag=True, help="Leave it to admins only.")
@json_option
@click.pass_obj
def change_acl(
    target: Target,
    db: str,
    document_id: str,
    tokens: tuple[str, ...],
    by_default: bool,
    nobody: bool,
    as_json: bool,
) -> None:
    """Change who may read a document; nothing is embedded again.

    TOKEN is user:NAME, group:NAME, tenant:NAME or tenant:* (everybody).
    """
    if [bool(tokens), by_default, nobody].count(True) != 1:
        raise click.UsageError("Pass tokens, --default or --nobody.")
    acl = None if by_default else tokens
    target.run("document_commands.change_acl", db, document_id, acl, as_json=as_json)
