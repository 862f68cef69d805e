"""The Weaviate object of a chunk.

An object's id is a UUID derived from the chunk_id, because Weaviate accepts no other strings. Its
vector is `dense`; its properties:

    chunk_id, content, metadata (JSON text), chunk_metadata (JSON text, if there is one)
                 the chunk as it was added; not indexed
    embedding    base64 of float32, only under cosine without `normalize`: Weaviate may scale
                 vectors to length 1, and `dense` is the direction
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
from weaviate.classes.config import (
    Configure,
    DataType,
    Property,
    ReplicationDeletionStrategy,
    StopwordsPreset,
    Tokenization,
    VectorDistances,
)

from corral.api.chunks import Chunk
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.text.bm25 import K1, B
from corral.providers.text.fields import ChunkTerms
from corral.providers.vector_io.kit.engine_bm25 import engine_terms
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
from corral.providers.vector_io.weaviate.config import WeaviateConfig

LAYOUT = 1
"""Version of the stored objects; increase it when their form changes. A newer one is refused."""

_PLAIN = ("chunk_id", "content", "metadata", "chunk_metadata", "embedding", "frequencies")
ALL_PROPERTIES = (
    *CHUNK_FIELDS, "embedding", "attributes", "terms", "frequencies", "length"
)  # fmt: skip

VECTOR = "dense"
"""The name of the vector."""

_DISTANCES = {
    Metric.COSINE: VectorDistances.COSINE,
    Metric.L2: VectorDistances.L2_SQUARED,
    Metric.DOT: VectorDistances.DOT,
}

_NAMESPACE = uuid.UUID("3d0b5b0e-52b5-5b43-9a52-6f4c9f6e2a11")


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Maximum sizes of requests and answers.

    Attributes:
        results: Objects per response: the default of Weaviate's QUERY_MAXIMUM_RESULTS.
        write_objects, write_bytes: Size of a write request; a single object may be larger.
        read_objects: Objects fetched by id per request.
        read_bytes: Bytes of vectors per response.
    """

    results: int = 10_000
    write_objects: int = 200
    write_bytes: int = 4 * 2**20
    read_objects: int = 500
    read_bytes: int = 32 * 2**20


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object to write, or an object that was read.

    Attributes:
        id: The object's UUID.
        properties: All properties, or the requested ones that exist.
        dense: The vector; empty if it was not requested.
        score: Weaviate's BM25 score or vector distance; 0 if the object was not searched.
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
        chunk: Not mutated.
        embedding: Shape (dimension,).
        terms: The terms of the chunk's fields.
        version: Version of the analyzer that made the terms.
    """
    properties: dict[str, Any] = {
        **chunk_fields(chunk),
        "attributes": chunk_tokens(chunk, version),
        "terms": " ".join(engine_terms(terms)),
        "frequencies": json.dumps(dict(terms.frequencies), ensure_ascii=False),
        "length": terms.length,
    }
    dense = embedding
    if stores_direction(vector_db):
        properties["embedding"] = pack_embedding(embedding)
        dense = direction(embedding)
    return StoredObject(object_id(chunk.chunk_id), properties, dense.tolist())


def read_object(found: Any) -> StoredObject:
    """Convert an object that the client read."""
    vector = found.vector.get(VECTOR, []) if found.vector else []
    known = found.metadata
    score = (known.score if known.distance is None else known.distance) if known else None
    properties = {name: value for name, value in found.properties.items() if value is not None}
    return StoredObject(str(found.uuid), properties, vector, score or 0.0)


def bytes_of(one: StoredObject) -> int:
    """Return the approximate size of an object in a request, in bytes."""
    return 4 * len(one.dense) + sum(
        26 * len(value) if isinstance(value, list) else 4 * len(str(value))
        for value in one.properties.values()
    )


def settings(vector_db: VectorDB, config: WeaviateConfig) -> dict[str, Any]:
    """Return the arguments of the client's `collections.create`, except name and description."""
    if vector_db.normalize or stores_direction(vector_db):
        distance = VectorDistances.COSINE
    else:
        distance = _DISTANCES[vector_db.metric]
    kinds = Configure.VectorIndex
    whole = kinds.Quantizer.none()  # servers may compress by default
    index: Any
    if config.index == "flat":
        index = kinds.flat(distance_metric=distance, quantizer=whole)
    else:
        index = kinds.hnsw(
            distance_metric=distance,
            quantizer=whole,
            max_connections=config.hnsw_max_connections,
            ef_construction=config.hnsw_ef_construction,
            ef=config.hnsw_ef,
        )
    # While a node is down, writes go only to the others; the node receives them when it is back.
    replication = Configure.replication(
        factor=config.replicas,
        async_enabled=True,
        deletion_strategy=ReplicationDeletionStrategy.TIME_BASED_RESOLUTION,
    )
    return {
        "vector_config": Configure.Vectors.self_provided(name=VECTOR, vector_index_config=index),
        "inverted_index_config": Configure.inverted_index(
            bm25_k1=K1, bm25_b=B, stopwords_preset=StopwordsPreset.NONE
        ),
        "replication_config": replication,
        "properties": _properties(),
    }


def _properties() -> list[Property]:
    """Return the properties of a new collection."""
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
