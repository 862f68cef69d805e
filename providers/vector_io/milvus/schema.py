"""The collection of one vector DB: its fields, its indexes, and a row for each writing process.

Everything of a vector DB is in one collection, so that one request, which Milvus applies whole or
not at all, can write chunks, remove others and announce the change. A writer's row counts the
writes of its process and goes into the request of each of them. A process that finds other rows
than before counts anew. An embedded Milvus, which one process uses, has none.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pymilvus import CollectionSchema, DataType, MilvusClient
from pymilvus.milvus_client.index import IndexParams

from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.exact import effective_metric
from corral.providers.vector_io.milvus.client import MOST_ROWS
from corral.providers.vector_io.milvus.filters import Kind
from corral.providers.vector_io.milvus.records import MOST_ELEMENTS, Layout, Row, RowMaker

WIDEST_WALK = 32_768
"""Most candidates of an HNSW search."""

IDLE_SECONDS = 3600
"""After which a process that writes again takes a new row: the old one may go at any moment."""
ENDED_SECONDS = 7 * 86_400
"""Age at which nobody writes a row any more; so much longer, since clocks differ."""

_PAST = "past-"

SEARCHED_METRIC = {Metric.COSINE: "COSINE", Metric.L2: "L2", Metric.DOT: "IP"}


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


class Writers:
    """The rows of the processes that write to one collection. One write at a time is the caller's.

    Args:
        call: Calls a method of the client on the collection.
    """

    def __init__(self, call: Callable[..., Any], maker: RowMaker) -> None:
        self._call, self._maker = call, maker
        self._own = ""
        self._written = 0
        self._wrote_at = 0.0

    def others(self) -> dict[str, str]:
        """Return how often each other process has written, as text, by its row's key."""
        return {pk: payload for pk, payload in self._all().items() if pk != self._own}

    def announcement(self) -> Row:
        """Return the row that tells other processes of one more write."""
        now = time.time()
        if now - self._wrote_at > IDLE_SECONDS:
            self._own = f"writer-{uuid.uuid4().hex}"
        self._wrote_at = now
        self._written += 1
        return self._maker.blank(self._own, Kind.WRITER, f"{self._written} {now:.0f}")

    def fold(self) -> None:
        """Put one row in the place of those of processes that ended without doing so."""
        ended = self._ended()
        if len(ended) > 1:
            self._replace(ended)

    def close(self) -> None:
        """Put one row in the place of this process's own, which has ended, and of such others."""
        if self._own:
            self._replace([self._own, *self._ended()])
            self._own = ""

    def _replace(self, ended: list[str]) -> None:
        """Put a row in the place of others. Its key is new, so that who compares sees a change.

        It comes before the others go: a kill, or two processes at once, leave too many rows and
        never too few.
        """
        key = f"{_PAST}{uuid.uuid4().hex}"
        row = self._maker.blank(key, Kind.WRITER, f"0 {time.time():.0f}")
        self._call("upsert", data=[row])
        self._call("delete", ids=ended)

    def _ended(self) -> list[str]:
        """Return the keys of rows that no other process writes any more."""
        oldest = time.time() - ENDED_SECONDS
        return [
            pk
            for pk, payload in self.others().items()
            if pk.startswith(_PAST) or _written_at(payload) < oldest
        ]

    def _all(self) -> dict[str, str]:
        found = self._call(
            "query",
            filter=f"kind == {Kind.WRITER:d}",
            output_fields=["pk", "payload"],
            limit=MOST_ROWS,
        )
        return {row["pk"]: row["payload"] for row in found}


def _written_at(payload: str) -> float:
    """Return the time of a writer's last write, in seconds since the epoch."""
    _, _, seconds = payload.partition(" ")
    return float(seconds)
