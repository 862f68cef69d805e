"""Qdrant Edge used directly: HNSW, its own BM25 (stemmer and stop words), its own RRF.

    pip install qdrant-edge-py

`optimize` builds the index, as documented; other settings are defaults.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode
from corral.bench.system import SHARE_KEY, BlockingSystem, Collection, Ranked, Search

DENSE, WORDS = "dense", "words"
RANK_CONSTANT = 2
"""Qdrant's default."""


class QdrantEdge(BlockingSystem):
    """One shard; points have uuid5 ids and carry the chunk id."""

    filters = True
    requires = ("qdrant-edge-py",)
    engine_of = ("inline::qdrant",)

    async def prepare(self, collection: Collection) -> None:
        """Create an empty shard."""
        import qdrant_edge as qdrant

        self._qdrant = qdrant
        dense = qdrant.EdgeVectorParams(size=collection.dimension, distance=qdrant.Distance.Cosine)
        words = qdrant.EdgeSparseVectorParams(modifier=qdrant.Modifier.Idf)
        settings = qdrant.EdgeConfig(vectors={DENSE: dense}, sparse_vectors={WORDS: words})
        self._shard = qdrant.EdgeShard.create(str(self.folder), settings)
        self._bm25 = qdrant.Bm25(qdrant.Bm25Config(language=collection.language))

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Upsert points."""
        points = [
            self._qdrant.Point(
                str(uuid.uuid5(uuid.NAMESPACE_OID, chunk.chunk_id)),
                {DENSE: row.tolist(), WORDS: self._bm25.embed_document(chunk.content)},
                {**chunk.metadata, "chunk_id": chunk.chunk_id, "content": chunk.content},
            )
            for chunk, row in zip(chunks, embeddings, strict=True)
        ]
        self._shard.update(self._qdrant.UpdateOperation.upsert_points(points))

    async def build(self) -> None:
        """Build the index."""
        self._shard.flush()
        self._shard.optimize()

    def find(self, asked: Search) -> Ranked:
        """Run the query of the mode."""
        qdrant, k, passing = self._qdrant, asked.k, None
        if asked.below is not None:
            low = qdrant.FieldCondition(SHARE_KEY, range=qdrant.RangeFloat(lt=asked.below))
            passing = qdrant.Filter(must=[low])
        near = qdrant.Query.Nearest(asked.embedding.tolist(), using=DENSE)
        worded = qdrant.Query.Nearest(self._bm25.embed_query(asked.text), using=WORDS)
        vector = asked.mode is SearchMode.VECTOR
        more: dict[str, Any] = {"query": near if vector else worded}
        if asked.mode is SearchMode.HYBRID:
            legs = [qdrant.Prefetch(2 * k, query=q, filter=passing) for q in (near, worded)]
            more = {"prefetches": legs, "query": qdrant.Fusion.Rrf(RANK_CONSTANT)}
        payload = qdrant.PayloadSelector.Include(["chunk_id", "content"])
        request = qdrant.QueryRequest(k, filter=passing, with_payload=payload, **more)
        return [
            ((point.payload or {})["chunk_id"], (1 + point.score) / 2 if vector else point.score)
            for point in self._shard.query(request)
        ]

    async def close(self) -> None:
        """Close the shard."""
        if hasattr(self, "_shard"):
            self._shard.close()


PEER = QdrantEdge
