"""What a Weaviate object holds of a chunk.

An object's id is a UUID made of the chunk_id, since Weaviate takes no other strings. Its vector is
`dense`; its properties:

    chunk_id, content, metadata (JSON text), chunk_metadata (JSON text, where there is one)
                 the chunk as it came; none is indexed
    embedding    base64 of float32, only under cosine without `normalize`: Weaviate may bring
                 vectors to length 1 there, and `dense` is the direction from the start
    attributes   tokens for filters (value_tokens.py)
    terms        the analyzed words, joined by spaces, for Weaviate's BM25
    frequencies  the same words with their exact frequencies (JSON text), and
    length       the number of terms, for Corral's BM25
"""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.ranking.fields import ChunkTerms
from corral.providers.vector_io._shared.tokens import chunk_tokens

CHUNK_PROPERTIES = ("chunk_id", "content", "metadata", "chunk_metadata")
ALL_PROPERTIES = (
    *CHUNK_PROPERTIES, "embedding", "attributes", "terms", "frequencies", "length"
)  # fmt: skip

MOST_REPEATS = 8
"""Most times that a word is repeated in `terms`; BM25 at k1 1.2 gives a ninth next to nothing."""

_NAMESPACE = uuid.UUID("3d0b5b0e-52b5-5b43-9a52-6f4c9f6e2a11")


@dataclass(frozen=True, slots=True)
class Row:
    """An object, to be written or as it was read.

    Attributes:
        id: Its UUID.
        properties: All of them, or those that were asked for, as far as it has them.
        dense: Its vector; empty where it was not asked for.
        score: Weaviate's BM25; 0 where no words were searched.
    """

    id: str
    properties: dict[str, Any]
    dense: list[float]
    score: float = 0.0


def object_id(chunk_id: str) -> str:
    """Return the UUID of a chunk's object."""
    return str(uuid.uuid5(_NAMESPACE, chunk_id))


def keeps_embedding(vector_db: VectorDB) -> bool:
    """Say whether embeddings are kept beside `dense`, which then holds their directions."""
    return vector_db.metric is Metric.COSINE and not vector_db.normalize


def direction(embedding: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return an embedding at length 1."""
    exact = embedding.astype(np.float64)
    unit: NDArray[np.float32] = (exact / np.linalg.norm(exact)).astype(np.float32)
    return unit


def make_row(
    vector_db: VectorDB,
    chunk: Chunk,
    embedding: NDArray[np.float32],
    terms: ChunkTerms,
    version: int,
) -> Row:
    """Return the object of a chunk.

    Args:
        vector_db: Its registration.
        chunk: It is not changed.
        embedding: Shape (dimension,).
        terms: Of its fields.
        version: The analyzer's version that found them.
    """
    properties: dict[str, Any] = {
        "chunk_id": chunk.chunk_id,
        "content": chunk.content,
        "metadata": json.dumps(chunk.metadata, ensure_ascii=False),
        "attributes": chunk_tokens(chunk, version),
        "terms": _terms_text(terms),
        "frequencies": json.dumps(dict(terms.frequencies), ensure_ascii=False),
        "length": terms.length,
    }
    if chunk.chunk_metadata:
        properties["chunk_metadata"] = chunk.chunk_metadata.model_dump_json(exclude_none=True)
    dense = embedding
    if keeps_embedding(vector_db):
        data = embedding.astype("<f4").tobytes()
        properties["embedding"] = base64.b64encode(data).decode("ascii")
        dense = direction(embedding)
    return Row(object_id(chunk.chunk_id), properties, dense.tolist())


def read_chunk(row: Row, *, include_embedding: bool) -> Chunk:
    """Return the chunk of an object with `CHUNK_PROPERTIES`, and more for its embedding."""
    properties = row.properties
    recorded = properties.get("chunk_metadata")
    return Chunk.model_construct(
        chunk_id=properties["chunk_id"],
        content=properties["content"],
        metadata=json.loads(properties["metadata"]),
        chunk_metadata=ChunkMetadata.model_validate_json(recorded) if recorded else None,
        embedding=read_embedding(row) if include_embedding else None,
    )


def read_embedding(row: Row) -> list[float]:
    """Return the embedding as it was added."""
    kept = row.properties.get("embedding")
    if not kept:
        return row.dense
    return [float(number) for number in np.frombuffer(base64.b64decode(kept), dtype="<f4")]


def _terms_text(terms: ChunkTerms) -> str:
    return " ".join(
        term
        for term, frequency in terms.frequencies.items()
        for _ in range(min(MOST_REPEATS, max(1, round(frequency))))
    )
