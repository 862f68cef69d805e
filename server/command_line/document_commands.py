"""What `corral documents` does, each command on an open client."""

from __future__ import annotations

from collections.abc import Sequence

import click

from corral.server.command_line import display
from corral.server.command_line.client import Client
from corral.server.command_line.transport import JSON

DOCUMENTS_AT_ONCE = 10_000
CHUNKS_AT_ONCE = 1000


async def list_documents(
    client: Client, db: str, *, after: str, limit: int | None, as_json: bool
) -> None:
    """Print the documents of a vector DB, all of them or the first `limit` after an id."""
    found: list[JSON] = []
    while True:
        wanted = DOCUMENTS_AT_ONCE if limit is None else min(DOCUMENTS_AT_ONCE, limit - len(found))
        page = await client.documents(db, after, wanted)
        found += page["data"]
        if not page["has_more"] or len(found) == limit:
            break
        after = page["last_id"]
    if as_json:
        display.show_json(found)
    elif found:
        display.show(display.documents_table(found))
    else:
        click.echo("There are no documents.")


async def show_document(client: Client, db: str, document_id: str, *, as_json: bool) -> None:
    """Print a document: its metadata and its chunks in their order."""
    shown = await client.document(db, document_id, 0, CHUNKS_AT_ONCE)
    chunks = shown["chunks"]
    while len(chunks) < shown["chunk_count"]:
        page = await client.document(db, document_id, len(chunks), CHUNKS_AT_ONCE)
        if not page["chunks"]:  # it was replaced by a shorter version meanwhile
            break
        chunks += page["chunks"]
    if as_json:
        display.show_json(shown)
        return
    settings = {name: shown[name] for name in ("document_id", "chunk_count", "metadata")}
    display.show(display.settings_table(settings), display.chunks_table(chunks))


async def delete_documents(
    client: Client, db: str, document_ids: Sequence[str], *, ask: bool, as_json: bool
) -> None:
    """Delete documents one after the other, after asking; the first unknown one ends it."""
    if ask:
        names = display.clean(", ".join(document_ids))
        click.confirm(f"Delete {names} from vector DB {db!r}?", abort=True)
    deleted = []
    for document_id in document_ids:
        gone = await client.delete_document(db, document_id)
        deleted.append(gone)
        if not as_json:
            chunks = display.counted(gone["chunk_count"], "chunk")
            said = f"{document_id} is deleted ({chunks})."
            display.show(display.clean(said))
    if as_json:
        display.show_json(deleted)


async def change_acl(
    client: Client, db: str, document_id: str, acl: Sequence[str] | None, *, as_json: bool
) -> None:
    """Change who may read a document, and print what was changed."""
    changed = await client.change_acl(db, document_id, acl)
    if as_json:
        display.show_json(changed)
        return
    who = "whom default_acl names" if acl is None else ", ".join(changed["acl"]) or "admins only"
    chunks = display.counted(changed["chunk_count"], "chunk")
    said = f"{document_id} is open to {who} ({chunks})."
    display.show(display.clean(said))
