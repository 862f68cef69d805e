"""Haystack's in-memory document store with its embedding and BM25 retrieval, joined by RRF.

pip install haystack-ai
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode
from corral.bench.system import SHARE_KEY, BlockingSystem, Collection, Ranked, Search


class Haystack(BlockingSystem):
    """`InMemoryDocumentStore` with cosine, `DocumentJoiner` for hybrid."""

    filters = True
    requires = ("haystack-ai",)

    async def prepare(self, collection: Collection) -> None:
        """Create an empty store."""
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

    def find(self, asked: Search) -> Ranked:
        """Query the store, once for each leg."""
        below = {"field": f"meta.{SHARE_KEY}", "operator": "<", "value": asked.below}
        passing, k = None if asked.below is None else below, asked.k
        legs = []
        if asked.mode is not SearchMode.KEYWORD:
            vector = asked.embedding.tolist()
            legs.append(self._store.embedding_retrieval(vector, filters=passing, top_k=k))
        if asked.mode is not SearchMode.VECTOR:
            legs.append(self._store.bm25_retrieval(asked.text, filters=passing, top_k=k))
        if asked.mode is SearchMode.HYBRID:
            joiner = self._joiner(join_mode="reciprocal_rank_fusion", top_k=k)
            legs = [joiner.run(documents=legs)["documents"]]
        vector_only = asked.mode is SearchMode.VECTOR
        return [(d.id, (1 + d.score) / 2 if vector_only else float(d.score)) for d in legs[0]]


PEER = Haystack
