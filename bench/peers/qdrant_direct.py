"""A Qdrant server used directly: HNSW, its BM25 as sparse vectors with its idf, its own RRF.

    pip install qdrant-client qdrant-edge-py          --peers qdrant-direct=URL

Qdrant Edge's BM25 extracts the words. All settings are defaults, including the client's
connections, and hits include their text.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode
from corral.bench.system import SHARE_KEY, Collection, Ranked, Search, System

DENSE, WORDS = "dense", "words"
TIMEOUT_SECONDS = 60


class QdrantDirect(System):
    """A separate collection, dropped at the end; points have uuid5 ids."""

    filters = True
    requires = ("qdrant-client", "qdrant-edge-py")
    engine_of = ("remote::qdrant",)
    service = True

    async def prepare(self, collection: Collection) -> None:
        """Create an empty collection, with an index of the filtered key."""
        import qdrant_edge
        from qdrant_client import AsyncQdrantClient, models

        self._models = models
        self._bm25 = qdrant_edge.Bm25(qdrant_edge.Bm25Config(language=collection.language))
        self._name = f"bench-{uuid.uuid4().hex[:12]}"
        self._client = AsyncQdrantClient(
            self.address, port=None, timeout=TIMEOUT_SECONDS, check_compatibility=False
        )
        dense = models.VectorParams(size=collection.dimension, distance=models.Distance.COSINE)
        words = models.SparseVectorParams(modifier=models.Modifier.IDF)
        await self._client.create_collection(
            self._name, vectors_config={DENSE: dense}, sparse_vectors_config={WORDS: words}
        )
        whole_numbers = models.PayloadSchemaType.INTEGER
        await self._client.create_payload_index(self._name, SHARE_KEY, whole_numbers)

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Upsert points, and wait until they are stored."""
        points = [
            self._models.PointStruct(
                id=str(uuid.uuid5(uuid.NAMESPACE_OID, chunk.chunk_id)),
                vector={
                    DENSE: row.tolist(),
                    WORDS: self._sparse(self._bm25.embed_document(chunk.content)),
                },
                payload={**chunk.metadata, "chunk_id": chunk.chunk_id, "content": chunk.content},
            )
            for chunk, row in zip(chunks, embeddings, strict=True)
        ]
        await self._client.upsert(self._name, points, wait=True)

    async def build(self) -> None:
        """Wait until the server has built its index."""
        status = None
        while status != self._models.CollectionStatus.GREEN:
            await asyncio.sleep(0.1)
            status = (await self._client.get_collection(self._name)).status

    async def search(self, asked: Search) -> Ranked:
        """Send the query of the mode."""
        models, k, passing = self._models, asked.k, None
        if asked.below is not None:
            low = models.FieldCondition(key=SHARE_KEY, range=models.Range(lt=asked.below))
            passing = models.Filter(must=[low])
        worded = self._sparse(self._bm25.embed_query(asked.text))
        legs: list[tuple[str, Any]] = [(DENSE, asked.embedding.tolist()), (WORDS, worded)]
        vector = asked.mode is SearchMode.VECTOR
        using, query = legs[0 if vector else 1]
        more: dict[str, Any] = {"query": query, "using": using, "query_filter": passing}
        if asked.mode is SearchMode.HYBRID:
            fetched = [
                models.Prefetch(query=query, using=using, filter=passing, limit=2 * k)
                for using, query in legs
            ]
            more = {"prefetch": fetched, "query": models.FusionQuery(fusion=models.Fusion.RRF)}
        found = await self._client.query_points(self._name, limit=k, with_payload=True, **more)
        return [
            ((one.payload or {})["chunk_id"], (1 + one.score) / 2 if vector else one.score)
            for one in found.points
        ]

    async def close(self) -> None:
        """Drop the collection."""
        if hasattr(self, "_client"):
            await self._client.delete_collection(self._name)
            await self._client.close()

    def _sparse(self, words: Any) -> Any:
        return self._models.SparseVector(indices=list(words.indices), values=list(words.values))


PEER = QdrantDirect
