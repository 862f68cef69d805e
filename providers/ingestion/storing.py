"""Store chunks: embed the chunks without an embedding, then write all or none."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corral.api.chunks import Chunk, embedded_text
from corral.api.embedder import Embedder
from corral.api.errors import (
    InvalidEmbedding,
    InvalidRequest,
    MissingDependency,
    ProviderError,
)
from corral.api.invisible import clean_text
from corral.api.library import Library
from corral.api.reranker import ModelRerank, Reranker
from corral.api.vector_dbs import VectorDB
from corral.providers.ingestion.cache import EmbeddingCache, made_by

EMBED_BATCH = 512
"""Maximum number of texts per call of an embedder.

Embedders make their own batches; this limit only lets other requests run in between."""


async def store(
    library: Library,
    vector_db_id: str,
    chunks: Sequence[Chunk],
    *,
    replace_documents: Collection[str] = (),
) -> None:
    """Store chunks, all or none; chunks without an embedding are embedded first.

    Args:
        vector_db_id: The target.
        chunks: The chunks; not mutated. Invisible characters are removed from the stored texts.
        replace_documents: Documents to remove all other chunks of, in the same step.

    Raises:
        NotFound: There is no such vector DB.
        InvalidRequest: A text has no visible character.
        InvalidEmbedding: An embedding has the wrong dimension, or is refused by the index.
        Conflict: The stored embeddings were made with another model.
        ProviderError: The embedder or the backend failed; nothing was stored.
    """
    index = await library.index(vector_db_id)  # Comes first, because it determines the model.
    vector_db = index.vector_db
    cleaned = await asyncio.to_thread(all_cleaned, chunks, vector_db.embedding_dimension)
    embeddings = await embeddings_of(library, vector_db, cleaned)
    if (reranker := await preparing(library, vector_db)) is not None:
        await prepare(reranker, vector_db, cleaned)
    await index.add_chunks(cleaned, embeddings, replace_documents=replace_documents)


async def embeddings_of(
    library: Library, vector_db: VectorDB, chunks: Sequence[Chunk]
) -> ArrayLike | None:
    """Return an embedding for each chunk, or None if all chunks have their own.

    Raises:
        ContractViolation, ProviderError: See `embed`.
    """
    missing = [embedded_text(chunk) for chunk in chunks if chunk.embedding is None]
    if not missing:
        return None
    made = await embed(await library.embedder_of(vector_db), vector_db.tenant, missing)
    if len(missing) == len(chunks):
        return made
    rows = iter(made)
    return [next(rows) if chunk.embedding is None else chunk.embedding for chunk in chunks]


async def preparing(library: Library, vector_db: VectorDB) -> Reranker | None:
    """Return the re-ranker that prepares chunks when they are stored; None if there is none.

    Raises:
        ProviderError, MissingDependency: The re-ranker cannot be loaded, and `on_error` is not
            `degrade`.
    """
    rerank = vector_db.rerank
    if not isinstance(rerank, ModelRerank) or not rerank.prepare:
        return None
    try:
        return await library.reranker(rerank.model)
    except (ProviderError, MissingDependency):
        if rerank.on_error != "degrade":
            raise
        return None


async def prepare(reranker: Reranker, vector_db: VectorDB, chunks: Sequence[Chunk]) -> None:
    """Let the re-ranker from `preparing` prepare chunks.

    If it fails and `on_error` is `degrade`, the chunks are prepared with the first question.

    Raises:
        ProviderError: The re-ranker failed, and `on_error` is not `degrade`.
    """
    try:
        await reranker.prepare([chunk.content for chunk in chunks], vector_db.tenant)
    except ProviderError:
        if not isinstance(vector_db.rerank, ModelRerank) or vector_db.rerank.on_error != "degrade":
            raise


async def embed(
    embedder: Embedder, tenant: str, texts: Sequence[str], cache: EmbeddingCache | None = None
) -> NDArray[np.float32]:
    """Return the embeddings of texts, shape (len(texts), dimension).

    Raises:
        ContractViolation: The embedder returned another shape.
        ProviderError: The embedder failed.
    """
    batches = [np.empty((0, embedder.info.dimension), dtype=np.float32)]
    for start in range(0, len(texts), EMBED_BATCH):
        batch = texts[start : start + EMBED_BATCH]
        made = cache.embed(embedder, tenant, batch) if cache else made_by(embedder, batch)
        batches.append(await made)
    return np.concatenate(batches)


def all_cleaned(chunks: Sequence[Chunk], dimension: int) -> list[Chunk]:
    """Check embeddings and return the chunks with cleaned texts. Blocking."""
    cleaned = [_cleaned(number, chunk) for number, chunk in enumerate(chunks)]
    _check_dimensions(cleaned, dimension)
    return cleaned


def _cleaned(number: int, chunk: Chunk) -> Chunk:
    text = clean_text(chunk.content)
    if not text.strip():
        raise InvalidRequest(
            f"Chunk {number} has no visible text.", field=f"chunks[{number}].content"
        )
    return chunk if text == chunk.content else chunk.model_copy(update={"content": text})


def _check_dimensions(chunks: Sequence[Chunk], dimension: int) -> None:
    for number, chunk in enumerate(chunks):
        if chunk.embedding is not None and len(chunk.embedding) != dimension:
            raise InvalidEmbedding(
                f"The embedding of chunk {number} has {len(chunk.embedding)} dimensions, the "
                f"vector DB has {dimension}.",
                hint="Use the embedding model of the vector DB, or leave the embedding out.",
                field=f"chunks[{number}].embedding",
            )
