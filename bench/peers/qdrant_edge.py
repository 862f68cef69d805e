"""Qdrant Edge used directly: HNSW, its own BM25 (stemmer and stop words), its own RRF.

    pip install qdrant-edge-py

The index is built by `optimize`, as its documents say; everything else is at its defaults.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode
from corral.bench.speed.load import BlockingSystem, simple_filter
from corral.bench.system import Collection, Ranked

DENSE, WORDS = "dense", "words"
RANK_CONSTANT = 2
"""Qdrant's own default."""
_SPACE = uuid.UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")
_RANGES = {"gt", "gte", "lt", "lte"}


class QdrantEdge(BlockingSystem):
    """One shard; points are named by uuid5 and carry the chunk id."""

    filters: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("qdrant-edge-py",)
    engine_of: ClassVar[tuple[str, ...]] = ("inline::qdrant",)

    async def prepare(self, collection: Collection) -> None:
        """Make an empty shard."""
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
                str(uuid.uuid5(_SPACE, chunk.chunk_id)),
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

    def find(
        self,
        mode: SearchMode,
        text: str,
        embedding: NDArray[np.float32],
        k: int,
        filters: dict[str, Any] | None = None,
    ) -> Ranked:
        """Run the query of the mode."""
        qdrant, passing = self._qdrant, self._filter(filters)
        near = qdrant.Query.Nearest(embedding.tolist(), using=DENSE)
        worded = qdrant.Query.Nearest(self._bm25.embed_query(text), using=WORDS)
        more: dict[str, Any] = {"query": near if mode is SearchMode.VECTOR else worded}
        if mode is SearchMode.HYBRID:
            legs = [qdrant.Prefetch(2 * k, query=q, filter=passing) for q in (near, worded)]
            more = {"prefetches": legs, "query": qdrant.Fusion.Rrf(RANK_CONSTANT)}
        payload = qdrant.PayloadSelector.Include(["chunk_id", "content"])
        request = qdrant.QueryRequest(k, filter=passing, with_payload=payload, **more)
        vector = mode is SearchMode.VECTOR
        return [
            ((point.payload or {})["chunk_id"], (1 + point.score) / 2 if vector else point.score)
            for point in self._shard.query(request)
        ]

    async def delete(self, chunk_ids: list[str]) -> None:
        """Delete points."""
        ids: list[Any] = [str(uuid.uuid5(_SPACE, one)) for one in chunk_ids]
        self._shard.update(self._qdrant.UpdateOperation.delete_points(ids))

    async def close(self) -> None:
        """Close the shard."""
        if hasattr(self, "_shard"):
            self._shard.close()

    def _filter(self, filters: dict[str, Any] | None) -> Any:
        if filters is None:
            return None
        qdrant = self._qdrant
        kind, key, value = simple_filter(filters)
        if kind in _RANGES:
            condition = qdrant.FieldCondition(key, range=qdrant.RangeFloat(**{kind: value}))
            return qdrant.Filter(must=[condition])
        condition = qdrant.FieldCondition(key, match=qdrant.MatchValue(value))
        return qdrant.Filter(**{"must" if kind == "eq" else "must_not": [condition]})


PEER = QdrantEdge
