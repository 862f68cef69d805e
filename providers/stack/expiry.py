"""Store chunks with an expiry time, and schedule the sweep that deletes them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.vector_dbs import VectorDB
from corral.providers.ingestion.storing import store
from corral.providers.stack.stack import Stack


async def store_expiring(
    stack: Stack, vector_db_id: str, chunks: Sequence[Chunk], ttl_seconds: int | None
) -> None:
    """Store chunks, all or none; the sweep deletes them after they expire.

    The expiry is scheduled before the chunks are stored, and the sweep checks the chunk's record:
    even if a process is killed in between, no chunk outlives its expiry, and a chunk that is stored
    again without an expiry stays.

    Args:
        chunks: Not mutated. `expires_at` in a chunk's record wins over `ttl_seconds`.
        ttl_seconds: Lifetime of the chunks in seconds; None to keep them until they are deleted.

    Raises:
        CorralError: See `store`.
    """
    if ttl_seconds is not None:
        expires_at = math.ceil(stack.stores.clock() + ttl_seconds)
        chunks = [_expiring(chunk, expires_at) for chunk in chunks]
    await schedule(stack, await stack.vector_db(vector_db_id), chunks)
    await store(stack, vector_db_id, chunks)


async def schedule(stack: Stack, vector_db: VectorDB, chunks: Sequence[Chunk]) -> None:
    """Schedule the expiry of chunks that will be stored next."""
    due = {
        chunk.chunk_id: chunk.chunk_metadata.expires_at
        for chunk in chunks
        if chunk.chunk_metadata and chunk.chunk_metadata.expires_at is not None
    }
    if due:
        await stack.stores.schedule(vector_db, due)


def _expiring(chunk: Chunk, expires_at: int) -> Chunk:
    record = chunk.chunk_metadata or ChunkMetadata()
    if record.expires_at is not None:
        return chunk
    timed = record.model_copy(update={"expires_at": expires_at})
    return chunk.model_copy(update={"chunk_metadata": timed})
