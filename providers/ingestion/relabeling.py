"""Other attributes for a stored document, its texts and embeddings as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corral.api.documents import READ_AT_ONCE
from corral.api.embedding_index import EmbeddingIndex

KEPT = frozenset(
    {"document_id", "file_id", "filename", "title", "token_count", "metadata_token_count"}
)
"""What ingestion itself writes into the metadata."""


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
            reserved = {k: v for k, v in kept.items() if k in KEPT - {"title"}}
            chunks.append(chunk.model_copy(update={"metadata": {**kept, **new, **reserved}}))
    if chunks:
        await index.add_chunks(chunks, replace_documents=[document_id])
    return len(chunks)
