"""What a Weaviate object holds of a chunk.

An object's id is a UUID made of the chunk_id, since Weaviate takes no other strings. Its vector is
`dense`; its properties:

    chunk_id, content, metadata (JSON text), chunk_metadata (JSON text, where there is one)
                 the chunk as it came; none is indexed
    embedding    base64 of float32, only under cosine without `normalize`: Weaviate may bring
                 vectors to length 1 there, and `dense` is the direction from the start
    attributes   tokens for filters (kit/tokens.py)
    terms        the analyzed words, joined by spaces, for Weaviate's BM25
    frequencies  the same words with their exact frequencies (JSON text), and
    length       the number of terms, for Corral's BM25
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from weaviate.classes.config import DataType, Property, Tokenization

from corral.api.chunks import Chunk
from corral.api.vector_dbs import VectorDB
from corral.providers.text.fields import ChunkTerms
from corral.providers.vector_io.kit.records import (
    CHUNK_FIELDS,
    chunk_fields,
    direction,
    pack_embedding,
    record_id,
    stores_direction,
    unpack_embedding,
)
from corral.providers.vector_io.kit.tokens import chunk_tokens

LAYOUT = 1
"""Raise it when what an object holds changes its form; a newer one is refused."""

_PLAIN = ("chunk_id", "content", "metadata", "chunk_metadata", "embedding", "frequencies")
ALL_PROPERTIES = (
    *CHUNK_FIELDS, "embedding", "attributes", "terms", "frequencies", "length"
)  # fmt: skip

MOST_REPEATS = 8
"""Most times that a word is repeated in `terms`; BM25 at k1 1.2 gives a ninth next to nothing."""

_NAMESPACE = uuid.UUID("3d0b5b0e-52b5-5b43-9a52-6f4c9f6e2a11")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object, to be written or as it was read.

    Attributes:
        id: Its UUID.
        properties: All of them, or those that were asked for, as far as it has them.
        dense: Its vector; empty where it was not asked for.
        score: Weaviate's BM25 or its distance to the vector; 0 where nothing was searched.
    """

    id: str
    properties: dict[str, Any]
    dense: list[float]
    score: float = 0.0

    @property
    def embedding(self) -> list[float]:
        """The embedding as it was added."""
        stored = self.properties.get("embedding")
        return unpack_embedding(stored) if stored else self.dense


def object_id(chunk_id: str) -> str:
    """Return the UUID of a chunk's object."""
    return record_id(_NAMESPACE, chunk_id)


def make_object(
    vector_db: VectorDB,
    chunk: Chunk,
    embedding: NDArray[np.float32],
    terms: ChunkTerms,
    version: int,
) -> StoredObject:
    """Return the object of a chunk.

    Args:
        chunk: It is not changed.
        embedding: Shape (dimension,).
        terms: Of its fields.
        version: The analyzer's version that found them.
    """
    properties: dict[str, Any] = {
        **chunk_fields(chunk),
        "attributes": chunk_tokens(chunk, version),
        "terms": _terms_text(terms),
        "frequencies": json.dumps(dict(terms.frequencies), ensure_ascii=False),
        "length": terms.length,
    }
    dense = embedding
    if stores_direction(vector_db):
        properties["embedding"] = pack_embedding(embedding)
        dense = direction(embedding)
    return StoredObject(object_id(chunk.chunk_id), properties, dense.tolist())


def _terms_text(terms: ChunkTerms) -> str:
    return " ".join(
        term for term, frequency in terms.frequencies.items() for _ in range(repeats(frequency))
    )


def repeats(frequency: float) -> int:
    """Return how often `terms` holds a term of this frequency."""
    return min(MOST_REPEATS, max(1, round(frequency)))


def schema_properties() -> list[Property]:
    """Return the properties that a collection is made with."""
    plain = [
        Property(name=name, data_type=DataType.TEXT, index_filterable=False, index_searchable=False)
        for name in _PLAIN
    ]
    return [
        *plain,
        Property(
            name="attributes",
            data_type=DataType.TEXT_ARRAY,
            tokenization=Tokenization.FIELD,
            index_filterable=True,
            index_searchable=False,
        ),
        Property(
            name="terms",
            data_type=DataType.TEXT,
            tokenization=Tokenization.WHITESPACE,
            index_filterable=True,
            index_searchable=True,
        ),
        Property(name="length", data_type=DataType.INT, index_filterable=True),
    ]
