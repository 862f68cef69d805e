"""A Weaviate server used directly: HNSW, its own BM25 and tokenization, its own hybrid.

    pip install weaviate-client                       --peers weaviate-direct=URL#GRPC_PORT

All settings are defaults, and hits include their text.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode
from corral.bench.system import SHARE_KEY, Collection, Ranked, Search, System

TIMEOUT_SECONDS = 60


class WeaviateDirect(System):
    """A separate collection, dropped at the end; objects have uuid5 ids."""

    filters = True
    requires = ("weaviate-client",)
    engine_of = ("remote::weaviate",)
    service = True

    async def prepare(self, collection: Collection) -> None:
        """Create an empty collection."""
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
                config.Property(name=SHARE_KEY, data_type=number),
            ],
        )

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Insert objects."""
        from weaviate.classes.data import DataObject

        done = await self._collection.data.insert_many(
            [
                DataObject(
                    uuid=uuid.uuid5(uuid.NAMESPACE_OID, chunk.chunk_id),
                    vector=row.tolist(),
                    properties={
                        "chunk_id": chunk.chunk_id,
                        "content": chunk.content,
                        SHARE_KEY: chunk.metadata.get(SHARE_KEY, 0),
                    },
                )
                for chunk, row in zip(chunks, embeddings, strict=True)
            ]
        )
        if done.has_errors:
            raise RuntimeError(f"Weaviate refused {len(done.errors)} objects.")

    async def search(self, asked: Search) -> Ranked:
        """Send the query of the mode."""
        from weaviate.classes.query import Filter, MetadataQuery

        query, near = self._collection.query, asked.embedding.tolist()
        more: dict[str, Any] = {"limit": asked.k}
        if asked.below is not None:
            more["filters"] = Filter.by_property(SHARE_KEY).less_than(asked.below)
        if asked.mode is SearchMode.VECTOR:
            metadata = MetadataQuery(distance=True)
            found: Any = await query.near_vector(near, return_metadata=metadata, **more)
            return [
                (str(one.properties["chunk_id"]), 1 - one.metadata.distance / 2)
                for one in found.objects
            ]
        metadata, fields = MetadataQuery(score=True), ["content"]
        more |= {"query_properties": fields, "return_metadata": metadata}
        if asked.mode is SearchMode.KEYWORD:
            found = await query.bm25(asked.text, **more)
        else:
            found = await query.hybrid(asked.text, vector=near, **more)
        return [(str(one.properties["chunk_id"]), one.metadata.score) for one in found.objects]

    async def close(self) -> None:
        """Drop the collection."""
        if hasattr(self, "_client"):
            if hasattr(self, "_collection"):
                await self._client.collections.delete(self._collection.name)
            await self._client.close()


PEER = WeaviateDirect
