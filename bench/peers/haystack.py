"""Haystack's in-memory document store with its embedding and BM25 retrieval, joined by RRF.

pip install haystack-ai
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode
from corral.bench.speed.load import BlockingSystem, simple_filter
from corral.bench.system import Collection, Ranked

_OPERATORS = {"eq": "==", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


class Haystack(BlockingSystem):
    """`InMemoryDocumentStore` with cosine, `DocumentJoiner` for hybrid."""

    filters: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("haystack-ai",)

    async def prepare(self, collection: Collection) -> None:
        """Make an empty store."""
        from haystack import Document
        from haystack.components.joiners import DocumentJoiner
        from haystack.document_stores.in_memory import InMemoryDocumentStore

        self._document = Document
        self._joiner = DocumentJoiner
        self._store = InMemoryDocumentStore(
            embedding_similarity_function="cosine", return_embedding=False
        )

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Write documents."""
        documents = [
            self._document(
                id=c.chunk_id, content=c.content, meta=c.metadata, embedding=row.tolist()
            )
            for c, row in zip(chunks, embeddings, strict=True)
        ]
        self._store.write_documents(documents)

    def find(
        self,
        mode: SearchMode,
        text: str,
        embedding: NDArray[np.float32],
        k: int,
        filters: dict[str, Any] | None = None,
    ) -> Ranked:
        """Ask the store, once for each leg."""
        passing = _translated(filters)
        legs = []
        if mode is not SearchMode.KEYWORD:
            vector = embedding.tolist()
            legs.append(self._store.embedding_retrieval(vector, filters=passing, top_k=k))
        if mode is not SearchMode.VECTOR:
            legs.append(self._store.bm25_retrieval(text, filters=passing, top_k=k))
        if mode is SearchMode.HYBRID:
            joiner = self._joiner(join_mode="reciprocal_rank_fusion", top_k=k)
            legs = [joiner.run(documents=legs)["documents"]]
        vector_only = mode is SearchMode.VECTOR
        return [(d.id, (1 + d.score) / 2 if vector_only else float(d.score)) for d in legs[0]]

    async def delete(self, chunk_ids: list[str]) -> None:
        """Delete documents."""
        self._store.delete_documents(chunk_ids)


def _translated(filters: dict[str, Any] | None) -> dict[str, Any] | None:
    if filters is None:
        return None
    kind, key, value = simple_filter(filters)
    return {"field": f"meta.{key}", "operator": _OPERATORS[kind], "value": value}


PEER = Haystack
