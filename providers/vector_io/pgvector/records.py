"""Chunks as rows of the table, and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from psycopg.types.json import Json

from corral.api.chunks import Chunk, ChunkMetadata
from corral.providers.ranking.fields import field_texts
from corral.providers.vector_io.pgvector.filters import attributes

_dumps = partial(json.dumps, ensure_ascii=False)

COLUMNS = (
    "row", "chunk_id", "document_id", "content", "title", "categories", "metadata", "attributes",
    "chunk_metadata", "length", "terms", "embedding",
)  # fmt: skip
"""The columns that a write fills, in its order."""
TYPES = (*("int8", *["text"] * 5), "json", "jsonb", "json", "int4", "int4[]", "vector")
"""Their types in PostgreSQL."""

TEXTS = "c.content, c.metadata, c.chunk_metadata"
"""What `chunk_of` wants of a table `c` between the id and the embedding."""


def record(chunk: Chunk) -> tuple[Any, ...]:
    """Return a chunk's values for the columns from chunk_id to chunk_metadata."""
    recorded = chunk.chunk_metadata
    return (
        chunk.chunk_id,
        chunk.document_id,
        chunk.content,
        *field_texts(chunk, ("title", "categories")),
        Json(chunk.metadata, _dumps),
        Json(attributes(chunk.metadata), _dumps),
        Json(recorded.model_dump(exclude_none=True), _dumps) if recorded else None,
    )


def chunk_of(row: Sequence[Any]) -> Chunk:
    """Return the chunk of a row of chunk_id, `TEXTS` and the embedding or None."""
    chunk_id, content, metadata, recorded, embedding = row
    return Chunk.model_construct(
        chunk_id=chunk_id,
        content=content,
        metadata=metadata,
        chunk_metadata=ChunkMetadata.model_validate(recorded) if recorded is not None else None,
        embedding=None if embedding is None else embedding.to_list(),
    )
