"""`corral documents`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from corral.server.cli import display
from corral.server.cli.failures import JSON
from corral.server.cli.options import Target, json_option, on_client, yes_option
from corral.server.cli.paths import document_path

if TYPE_CHECKING:
    from rich.console import RenderableType

    from corral.server.cli.client import Client

DOCUMENTS_LIMIT = 10_000
NAMED_LIMIT = 100
CHUNKS_LIMIT = 1000


@click.group()
def documents() -> None:
    """List, show and delete documents, and set who may read them."""


@documents.command("list")
@click.argument("db")
@click.option("--after", default="", metavar="ID", help="List documents after this id.")
@click.option("--limit", type=click.IntRange(1), help="Maximum number of documents. [default: all]")
@click.option("--names", is_flag=True, help="Also show what each document is called; slower.")
@json_option
@on_client
async def list_documents(
    client: Client, db: str, after: str, limit: int | None, names: bool, as_json: bool
) -> None:
    """List documents by id with their chunk counts."""
    rows: list[JSON] = []
    most = NAMED_LIMIT if names else DOCUMENTS_LIMIT
    while True:
        wanted = most if limit is None else min(most, limit - len(rows))
        page = await client.documents(db, after, wanted, names=names)
        rows += page["data"]
        if not page["has_more"] or len(rows) == limit:
            break
        after = page["last_id"]
    table = documents_table(rows, names=names) if rows else "There are no documents."
    display.answer(rows, table, as_json=as_json)


@documents.command("show")
@click.argument("db")
@click.argument("document_id")
@json_option
@on_client
async def show_document(client: Client, db: str, document_id: str, as_json: bool) -> None:
    """Show a document's metadata and its chunks."""
    shown = await client.document(db, document_id, 0, CHUNKS_LIMIT)
    chunks = shown["chunks"]
    while len(chunks) < shown["chunk_count"]:
        page = await client.document(db, document_id, len(chunks), CHUNKS_LIMIT)
        if not page["chunks"]:  # a shorter version has replaced it since
            break
        chunks += page["chunks"]
    if as_json:
        display.show_json(shown)
        return
    settings = {name: shown[name] for name in ("document_id", "chunk_count", "metadata")}
    display.show(display.settings_table(settings), chunks_table(chunks))


@documents.command("delete")
@click.argument("db")
@click.argument("document_ids", metavar="DOCUMENT_ID...", nargs=-1, required=True)
@yes_option
@json_option
@on_client
async def delete_documents(
    client: Client, db: str, document_ids: tuple[str, ...], yes: bool, as_json: bool
) -> None:
    """Delete documents and all their chunks, each in one write."""
    if not yes:
        names = display.clean(", ".join(document_ids))
        click.confirm(f"Delete {names} from vector DB {db!r}?", abort=True)
    deleted = []
    for document_id in document_ids:
        report = await client.delete_document(db, document_id)
        deleted.append(report)
        if not as_json:
            chunks = display.counted(report["chunk_count"], "chunk")
            display.show(display.clean(f"{document_id} is deleted ({chunks})."))
    if as_json:
        display.show_json(deleted)


@documents.command("acl")
@click.argument("db")
@click.argument("document_id")
@click.argument("tokens", metavar="[TOKEN...]", nargs=-1)
@click.option("--default", "by_default", is_flag=True, help="Use the vector DB's default_acl.")
@click.option("--nobody", is_flag=True, help="Let only admins read it.")
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
    """Set who may read a document, without embedding it again.

    TOKEN is user:NAME, group:NAME, tenant:NAME or tenant:* (everybody).
    """
    if [bool(tokens), by_default, nobody].count(True) != 1:
        raise click.UsageError("Pass tokens, --default or --nobody.")
    target.run(_change_acl, db, document_id, None if by_default else tokens, as_json)


async def _change_acl(
    client: Client, db: str, document_id: str, acl: tuple[str, ...] | None, as_json: bool
) -> None:
    changed = await client.call("PATCH", document_path(db, document_id), {"acl": acl})
    who = "whom default_acl names" if acl is None else ", ".join(changed["acl"]) or "admins only"
    chunks = display.counted(changed["chunk_count"], "chunk")
    sentence = display.clean(f"{document_id} is open to {who} ({chunks}).")
    display.answer(changed, sentence, as_json=as_json)


def documents_table(documents: Sequence[JSON], *, names: bool = False) -> RenderableType:
    """Return the table of documents, with their names if `names` is true."""
    rows = [[d.get("document_id", ""), display.count(d.get("chunk_count"))] for d in documents]
    if not names:
        return display.table(("document#", "chunks>"), rows)
    named = ([*row, d.get("name") or ""] for row, d in zip(rows, documents, strict=True))
    return display.table(("document#", "chunks>", "name"), named)


def chunks_table(chunks: Sequence[JSON]) -> RenderableType:
    """Return the table of a document's chunks: number, tokens, page and first words."""
    made = display.new_table_with_texts("#>", "tokens>", "page>")
    for number, chunk in enumerate(chunks, 1):
        more = chunk.get("chunk_metadata") or {}
        cells = [more.get("content_token_count") or "-", more.get("page") or "-"]
        display.add_row(made, number, *cells, display.first_words(str(chunk.get("content", ""))))
    return made
