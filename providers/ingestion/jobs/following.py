"""Keep the ACLs of jobs equal to those of their documents, even when a document changes."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from corral.api.documents import READ_CHUNKS
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import NotFound
from corral.api.principal import Principal, Role
from corral.api.vector_dbs import VectorDB
from corral.api.writes import Write
from corral.providers.base.documents import acls_of, stored_acl
from corral.providers.ingestion.jobs.reader import followed
from corral.providers.ingestion.jobs.runner import FileLibrary, Workers


async def follow_write(library: FileLibrary, workers: Workers, write: Write) -> None:
    """Record the ACLs of a write's documents, because their jobs have the same readers.

    The ACL of a document is the union over its chunks. For a document that the write stored as a
    whole, the write itself gives the ACL. For other documents all chunks are read, one document at
    a time. They are read again after recording, since another process may have written in between,
    and the last record must be correct.
    """
    vector_db, default = write.vector_db, write.vector_db.default_acl
    if len(write.chunks) <= READ_CHUNKS:
        written = acls_of(write.chunks, default)
    else:
        written = await asyncio.to_thread(acls_of, write.chunks, default)
    index: EmbeddingIndex | None = None
    named = {*written, *write.replaced}
    if write.opened:
        index = await _whole(library, vector_db)
        named |= set(acls_of(await index.get_chunks(write.opened), default)) if index else set()
    rows = await workers.queue.reader.recorded(vector_db, named)
    whole = {name: acl for name, acl in written.items() if name in write.replaced}
    if all(row.document_id in whole for row in rows) and not followed(rows, whole):
        return
    index = index or await _whole(library, vector_db)
    if index is None:
        return
    for document_id in {row.document_id for row in rows}:
        recorded = None
        async with workers.following:
            while (acl := await stored_acl(index, document_id)) not in (None, recorded):
                await workers.queue.follow(vector_db, {document_id: acl})
                recorded = acl


async def _whole(library: FileLibrary, vector_db: VectorDB) -> EmbeddingIndex | None:
    """Return an admin's view of a vector DB's index; None if it is no longer registered."""
    whole = library.for_principal(Principal.stored(vector_db.tenant, role=Role.ADMIN))
    with suppress(NotFound):
        index = await whole.index(vector_db.identifier)
        return index if index.vector_db.created_at == vector_db.created_at else None
    return None
