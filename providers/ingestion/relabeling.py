"""The attributes and acls of stored documents, their texts and embeddings as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from corral.api.chunks import Chunk
from corral.api.documents import READ_AT_ONCE
from corral.api.embedding_index import EmbeddingIndex
from corral.api.principal import UNRESTRICTED
from corral.api.scope import Scope

KEPT = frozenset({"document_id", "file_id", "filename", "token_count", "metadata_token_count"})
"""What ingestion writes into the metadata of each chunk, whatever the attributes say."""


async def relabel(
    index: EmbeddingIndex, document_id: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> int:
    """Replace the attributes of a document's chunks, in one write; return how many chunks."""
    ids = await index.document_chunk_ids(document_id)
    chunks = []
    for start in range(0, len(ids), READ_AT_ONCE):
        page = ids[start : start + READ_AT_ONCE]
        for chunk in await index.get_chunks(page, include_embeddings=True):
            kept = {k: v for k, v in chunk.metadata.items() if k in KEPT or k not in old}
            reserved = {k: v for k, v in kept.items() if k in KEPT}
            chunks.append(chunk.model_copy(update={"metadata": {**kept, **new, **reserved}}))
    if chunks:
        await index.add_chunks(chunks, replace_documents=[document_id])
    return len(chunks)


def acls_of(chunks: Iterable[Chunk], default: Sequence[str]) -> dict[str, set[str]]:
    """Return who may read documents: the tokens of all of their chunks."""
    scope, found = Scope(UNRESTRICTED, default), dict[str, set[str]]()
    for chunk in chunks:
        acl = scope.shown(chunk).acl
        found.setdefault(chunk.document_id or "", set()).update(default if acl is None else acl)
    return found


async def stored_acl(index: EmbeddingIndex, document_id: str) -> set[str] | None:
    """Return who may read a document, as an index of an admin has it; None: it has no chunks."""
    ids, acl = await index.document_chunk_ids(document_id), set[str]()
    for start in range(0, len(ids), READ_AT_ONCE):
        page = await index.get_chunks(ids[start : start + READ_AT_ONCE])
        acl.update(*acls_of(page, index.vector_db.default_acl).values())
    return acl if ids else None
