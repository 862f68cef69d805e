"""The collection of one vector DB: its fields, its indexes and what kinds of rows it holds.

Everything of a vector DB is in one collection, so that one request, which Milvus applies whole or
not at all, can write chunks, remove others and announce the change.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from pymilvus import CollectionSchema, DataType, MilvusClient
from pymilvus.milvus_client.index import IndexParams

from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.ranking.exact import effective_metric

LAYOUT = 1
"""Raise it when what is stored changes its form."""

MOST_ELEMENTS = 4096
"""Most elements of an array in Milvus."""

WIDEST_WALK = 32_768
"""Most candidates of an HNSW search."""

SEARCHED_METRIC = {Metric.COSINE: "COSINE", Metric.L2: "L2", Metric.DOT: "IP"}


class Kind(IntEnum):
    """What a row is; searches look at chunks only."""

    CHUNK = 0
    PART = 1  # the rest of a chunk that is too long for one row
    DEAD = 2  # about to be deleted
    WRITER = 3  # how often a process has written
    ABOUT = 4  # how the collection was made


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows are stored, which differs between Milvus Lite and Milvus.

    Attributes:
        arrays: Whether attributes and term keys are arrays, which a Milvus server indexes. Milvus
            Lite reads whole rows to look into an array (measured: 670 ms for 20,000 rows), but
            searches text fast (15 ms), so there the attributes are words of one text, and the
            term keys are counted in memory.
        text_characters: Most characters of a text field.
        request_bytes: Most bytes of a request, about.
    """

    arrays: bool
    text_characters: int
    request_bytes: int


LITE = Layout(arrays=False, text_characters=100_000_000, request_bytes=192 * 2**20)
SERVER = Layout(arrays=True, text_characters=65_000, request_bytes=32 * 2**20)


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """Which index embeddings have: FLAT, or HNSW with these parameters."""

    kind: str = "FLAT"
    build: tuple[tuple[str, int], ...] = ()
    ef_search: int = 0

    def efforts(self, limit: int, *, filtered: bool) -> list[dict[str, Any]]:
        """Return the parameters of a search for so many rows, and of further attempts.

        A walk through a graph may miss, or not even meet, rows that pass a filter, and is wider for
        one. At 20,000 rows, of which half pass and none near the query, Milvus Lite finds 0.935 of
        the true ten at `ef_search`, and all of them at eight times that.
        """
        if self.kind != "HNSW":
            return [{}]
        first = max(self.ef_search, limit)
        efforts = [8 * first, WIDEST_WALK] if filtered else [first]
        return [{"ef": min(effort, WIDEST_WALK)} for effort in efforts]


def collection_name(prefix: str, vector_db: VectorDB) -> str:
    """Return the name of a vector DB's collection: letters and digits, another for every id.

    The time of registration is hashed with the id, so that one registered anew starts empty.
    """
    key = f"{vector_db.created_at!r}\0{vector_db.identifier}".encode("utf-8", "surrogatepass")
    return f"{prefix}{hashlib.sha256(key).hexdigest()[:40]}"


def stored_dimension(vector_db: VectorDB) -> int:
    """Return the number of components stored; Milvus has no vectors of one, so a 0 follows."""
    return max(2, vector_db.embedding_dimension)


def fields(vector_db: VectorDB, layout: Layout) -> CollectionSchema:
    """Return the collection's fields. Dynamic ones hold the bounds that range filters compare."""
    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=True)
    text = min(layout.text_characters + 500, 2**30) if not layout.arrays else 65_535
    schema.add_field("pk", DataType.VARCHAR, is_primary=True, max_length=96)
    schema.add_field("kind", DataType.INT8)
    schema.add_field("chunk_id", DataType.VARCHAR, max_length=2048)
    schema.add_field("document", DataType.VARCHAR, max_length=32)
    schema.add_field("payload", DataType.VARCHAR, max_length=text)
    schema.add_field("parts", DataType.VARCHAR, max_length=64)
    schema.add_field("lexemes", DataType.VARCHAR, max_length=text)
    schema.add_field("length", DataType.INT64)
    schema.add_field("reference", DataType.INT64)
    if layout.arrays:
        array = {"datatype": DataType.ARRAY, "max_capacity": MOST_ELEMENTS}
        schema.add_field("attributes", element_type=DataType.VARCHAR, max_length=32, **array)
        schema.add_field("keys", element_type=DataType.INT64, **array)
    else:
        schema.add_field("attributes", DataType.VARCHAR, max_length=text)
    schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=stored_dimension(vector_db))
    schema.add_field("terms", DataType.SPARSE_FLOAT_VECTOR)
    return schema


def indexes(vector_db: VectorDB, layout: Layout, vectors: VectorIndex) -> dict[str, IndexParams]:
    """Return the parameters of each index by field."""
    wanted: dict[str, dict[str, Any]] = {
        "embedding": {
            "index_type": vectors.kind,
            "metric_type": SEARCHED_METRIC[effective_metric(vector_db)],
            "params": dict(vectors.build),
        },
        "terms": {"index_type": "SPARSE_INVERTED_INDEX", "metric_type": "IP", "params": {}},
    }
    if layout.arrays:
        scalars = ("kind", "document", "reference", "attributes", "keys")
        wanted |= {field: {"index_type": "INVERTED"} for field in scalars}
    found = {}
    for field, options in wanted.items():
        found[field] = MilvusClient.prepare_index_params()
        found[field].add_index(field_name=field, index_name=field, **options)
    return found
