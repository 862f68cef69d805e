"""An OpenSearch server used directly: HNSW, BM25 with its own analyzer, and a hybrid of both.

    pip install aiohttp opensearch-py                 --peers opensearch-direct=URL

The index has one shard and no replica, like Corral's in the benchmark. All other settings are
defaults, with Lucene as the vector engine. Hits include their text but not their vector.
OpenSearch's own hybrid search needs the normalization processor, which is a plugin; here, a `bool`
query adds both scores.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode
from corral.bench.system import SHARE_KEY, Collection, Ranked, Search, System

TIMEOUT_SECONDS = 60
BULK = 500


class OpenSearchDirect(System):
    """A separate index, dropped at the end."""

    filters = True
    requires = ("opensearch-py", "aiohttp")
    engine_of = ("remote::opensearch",)
    service = True

    async def prepare(self, collection: Collection) -> None:
        """Create an empty index."""
        from opensearchpy import AsyncOpenSearch

        client: Any = AsyncOpenSearch([self.address or ""], timeout=TIMEOUT_SECONDS)
        self._client = client
        self._index = f"bench-{uuid.uuid4().hex[:12]}"
        method = {"name": "hnsw", "engine": "lucene", "space_type": "cosinesimil"}
        body = {
            "settings": {"index": {"knn": True, "number_of_shards": 1, "number_of_replicas": 0}},
            "mappings": {
                "properties": {
                    "chunk_id": {"type": "keyword"},
                    "content": {"type": "text"},
                    SHARE_KEY: {"type": "double"},
                    "dense": {
                        "type": "knn_vector",
                        "dimension": collection.dimension,
                        "method": method,
                    },
                }
            },
        }
        await client.indices.create(index=self._index, body=body)

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Insert documents, and refresh."""
        for start in range(0, len(chunks), BULK):
            lines: list[str] = []
            part = slice(start, start + BULK)
            for chunk, row in zip(chunks[part], embeddings[part], strict=True):
                share = chunk.metadata.get(SHARE_KEY, 0)
                fields = {"chunk_id": chunk.chunk_id, "content": chunk.content, SHARE_KEY: share}
                lines += ['{"index":{}}', json.dumps({**fields, "dense": row.tolist()})]
            done = await self._client.bulk(index=self._index, body="\n".join([*lines, ""]))
            if done["errors"]:
                raise RuntimeError("OpenSearch refused objects.")
        await self._client.indices.refresh(index=self._index)

    async def search(self, asked: Search) -> Ranked:
        """Send the query of the mode."""
        narrowed: list[Any] = []
        if asked.below is not None:
            narrowed = [{"range": {SHARE_KEY: {"lt": asked.below}}}]
        vector: dict[str, Any] = {"vector": asked.embedding.tolist(), "k": asked.k}
        if narrowed:
            vector["filter"] = {"bool": {"filter": narrowed}}
        near: dict[str, Any] = {"knn": {"dense": vector}}
        words = {"match": {"content": asked.text}}
        if asked.mode is SearchMode.VECTOR:
            query: Any = near
        else:
            should = [words] if asked.mode is SearchMode.KEYWORD else [words, near]
            query = {"bool": {"should": should, "filter": narrowed, "minimum_should_match": 1}}
        body = {"size": asked.k, "query": query, "_source": ["chunk_id", "content"]}
        hits = (await self._client.search(index=self._index, body=body))["hits"]["hits"]
        return [(str(one["_source"]["chunk_id"]), float(one["_score"])) for one in hits]

    async def close(self) -> None:
        """Drop the index."""
        if hasattr(self, "_client"):
            if hasattr(self, "_index"):
                await self._client.indices.delete(index=self._index, ignore_unavailable=True)
            await self._client.close()


PEER = OpenSearchDirect
