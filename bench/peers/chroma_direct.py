"""Chroma's embedded client used directly: HNSW with cosine. It has no scored keyword search.

pip install chromadb
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode
from corral.bench.system import SHARE_KEY, BlockingSystem, Collection, Ranked, Search


class ChromaDirect(BlockingSystem):
    """`PersistentClient` with given embeddings."""

    modes = (SearchMode.VECTOR,)
    filters = True
    requires = ("chromadb",)
    engine_of = ("inline::chroma",)

    async def prepare(self, collection: Collection) -> None:
        """Create an empty collection."""
        import chromadb
        from chromadb.config import Settings

        settings = Settings(anonymized_telemetry=False)
        self._client: Any = chromadb.PersistentClient(str(self.folder), settings)
        self._collection: Any = self._client.create_collection(
            "bench", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Add rows with their texts."""
        self._collection.add(
            ids=[chunk.chunk_id for chunk in chunks],
            embeddings=embeddings,
            documents=[chunk.content for chunk in chunks],
            # Chroma rejects an empty dictionary, but accepts None.
            metadatas=[dict(chunk.metadata) or None for chunk in chunks],
        )

    def find(self, asked: Search) -> Ranked:
        """Query by embedding."""
        where = None if asked.below is None else {SHARE_KEY: {"$lt": asked.below}}
        found = self._collection.query(
            query_embeddings=[asked.embedding],
            n_results=asked.k,
            where=where,
            include=["distances", "documents"],
        )
        distances = (found["distances"] or [[]])[0]
        return [
            (one, 1 - distance / 2)
            for one, distance in zip(found["ids"][0], distances, strict=True)
        ]

    async def close(self) -> None:
        """Close the client."""
        if hasattr(self, "_client"):
            self._client.close()


PEER = ChromaDirect
