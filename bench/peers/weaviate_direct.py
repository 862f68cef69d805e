"""A Weaviate server used directly: HNSW, its BM25 over its own words, its own hybrid.

    pip install weaviate-client                       --peers weaviate-direct=URL#GRPC_PORT

Everything is at its default, and each hit comes with its text.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from corral.api.checks import AnyRanker
from corral.api.chunks import Chunk
from corral.api.filters import Filter
from corral.api.vector_dbs import SearchMode
from corral.bench.speed.load import simple_filter
from corral.bench.system import Collection, Ranked, System

TIMEOUT_SECONDS = 60
_SPACE = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")
_OPERATORS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less_than",
    "lte": "less_or_equal",
    "gt": "greater_than",
    "gte": "greater_or_equal",
}


class WeaviateDirect(System):
    """A collection of its own, dropped in the end; objects are named by uuid5."""

    filters: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("weaviate-client",)
    engine_of: ClassVar[tuple[str, ...]] = ("remote::weaviate",)
    service: ClassVar[bool] = True

    async def prepare(self, collection: Collection) -> None:
        """Make an empty collection."""
        import weaviate
        from weaviate.classes import config, init

        parts = urlsplit(self.address or "")
        seconds = TIMEOUT_SECONDS
        timeout = init.Timeout(init=seconds, query=seconds, insert=seconds)
        self._client = weaviate.use_async_with_custom(
            http_host=parts.hostname or "",
            http_port=parts.port or 80,
            http_secure=False,
            grpc_host=parts.hostname or "",
            grpc_port=int(parts.fragment),
            grpc_secure=False,
            additional_config=init.AdditionalConfig(timeout=timeout),
            skip_init_checks=True,
        )
        await self._client.connect()
        text, number = config.DataType.TEXT, config.DataType.INT
        self._collection = await self._client.collections.create(
            f"Bench{uuid.uuid4().hex[:12]}",
            vector_config=config.Configure.Vectors.self_provided(),
            properties=[
                config.Property(name="chunk_id", data_type=text, index_searchable=False),
                config.Property(name="content", data_type=text),
                config.Property(name="share", data_type=number),
            ],
        )

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Insert objects."""
        from weaviate.classes.data import DataObject

        done = await self._collection.data.insert_many(
            [
                DataObject(
                    uuid=uuid.uuid5(_SPACE, chunk.chunk_id),
                    vector=row.tolist(),
                    properties={
                        "chunk_id": chunk.chunk_id,
                        "content": chunk.content,
                        "share": chunk.metadata.get("share", 0),
                    },
                )
                for chunk, row in zip(chunks, embeddings, strict=True)
            ]
        )
        if done.has_errors:
            raise RuntimeError(f"Weaviate refused {len(done.errors)} objects.")

    async def search(
        self,
        mode: SearchMode,
        text: str,
        embedding: NDArray[np.float32],
        k: int,
        *,
        ranker: AnyRanker | None = None,
        filters: Filter | dict[str, Any] | None = None,
    ) -> Ranked:
        """Send the query of the mode."""
        from weaviate.classes.query import MetadataQuery

        query, near = self._collection.query, embedding.tolist()
        more: dict[str, Any] = {"limit": k, "filters": _translated(self.as_json(filters))}
        if mode is SearchMode.VECTOR:
            wanted = MetadataQuery(distance=True)
            found: Any = await query.near_vector(near, return_metadata=wanted, **more)
            return [
                (str(one.properties["chunk_id"]), 1 - one.metadata.distance / 2)
                for one in found.objects
            ]
        wanted, fields = MetadataQuery(score=True), ["content"]
        if mode is SearchMode.KEYWORD:
            found = await query.bm25(text, query_properties=fields, return_metadata=wanted, **more)
        else:
            found = await query.hybrid(
                text, vector=near, query_properties=fields, return_metadata=wanted, **more
            )
        return [(str(one.properties["chunk_id"]), one.metadata.score) for one in found.objects]

    async def close(self) -> None:
        """Drop the collection."""
        if hasattr(self, "_client"):
            if hasattr(self, "_collection"):
                await self._client.collections.delete(self._collection.name)
            await self._client.close()


def _translated(filters: dict[str, Any] | None) -> Any:
    if filters is None:
        return None
    from weaviate.classes.query import Filter as Native

    kind, key, value = simple_filter(filters)
    return getattr(Native.by_property(key), _OPERATORS[kind])(value)


PEER = WeaviateDirect
