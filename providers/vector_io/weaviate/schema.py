"""What a collection is made with; nothing that answers depend on is left to the server."""

from __future__ import annotations

from typing import Any

from weaviate.classes.config import (
    Configure,
    DataType,
    Property,
    StopwordsPreset,
    Tokenization,
    VectorDistances,
)

from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.ranking.bm25 import K1, B
from corral.providers.vector_io.weaviate.config import WeaviateConfig
from corral.providers.vector_io.weaviate.filters import TERMS, TOKENS
from corral.providers.vector_io.weaviate.objects import keeps_embedding

VECTOR = "dense"
"""The name of the vector."""

_PLAIN = ("chunk_id", "content", "metadata", "chunk_metadata", "embedding", "frequencies")
_DISTANCES = {
    Metric.COSINE: VectorDistances.COSINE,
    Metric.L2: VectorDistances.L2_SQUARED,
    Metric.DOT: VectorDistances.DOT,
}


def settings(vector_db: VectorDB, config: WeaviateConfig) -> dict[str, Any]:
    """Return the arguments of the client's `collections.create`, but for name and description."""
    if vector_db.normalize or keeps_embedding(vector_db):
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
    replicas = config.replicas
    return {
        "vector_config": Configure.Vectors.self_provided(name=VECTOR, vector_index_config=index),
        "inverted_index_config": Configure.inverted_index(
            bm25_k1=K1, bm25_b=B, stopwords_preset=StopwordsPreset.NONE
        ),
        "replication_config": Configure.replication(factor=replicas) if replicas else None,
        "properties": _properties(),
    }


def _properties() -> list[Property]:
    plain = [
        Property(name=name, data_type=DataType.TEXT, index_filterable=False, index_searchable=False)
        for name in _PLAIN
    ]
    return [
        *plain,
        Property(
            name=TOKENS,
            data_type=DataType.TEXT_ARRAY,
            tokenization=Tokenization.FIELD,
            index_filterable=True,
            index_searchable=False,
        ),
        Property(
            name=TERMS,
            data_type=DataType.TEXT,
            tokenization=Tokenization.WHITESPACE,
            index_filterable=True,
            index_searchable=True,
        ),
        Property(name="length", data_type=DataType.INT, index_filterable=True),
    ]
