"""txtai's embeddings database without its model: its default FAISS index, BM25, its own fusion.

    pip install txtai             this installs torch and transformers, several gigabytes

By default it uses an IVF index from 5,000 rows, which misses neighbors. A hybrid index cannot
search by words alone, so keyword mode has a separate index.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode
from corral.bench.system import BlockingSystem, Collection, Ranked, Search


class Txtai(BlockingSystem):
    """Three indexes of the same rows, one for each mode."""

    requires = ("txtai",)
    deferred = True

    async def prepare(self, collection: Collection) -> None:
        """Create empty indexes."""
        from txtai import Embeddings

        self._now = threading.local()
        dense = {"method": "external", "transform": self._transform}
        self._indexes = {
            SearchMode.VECTOR: Embeddings(dense),
            SearchMode.KEYWORD: Embeddings(keyword=True),
            SearchMode.HYBRID: Embeddings({**dense, "hybrid": True}),
        }
        self._chunks: list[Chunk] = []
        self._parts: list[NDArray[np.float32]] = []

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Collect rows: an index is built from all of them at once."""
        self._chunks += chunks
        self._parts.append(embeddings)

    async def build(self) -> None:
        """Build the indexes."""
        matrix = np.concatenate(self._parts)
        self._ids = [chunk.chunk_id for chunk in self._chunks]
        rows = range(len(self._ids))
        self._indexes[SearchMode.VECTOR].index((n, matrix[n], None) for n in rows)
        texts = [chunk.content for chunk in self._chunks]
        self._indexes[SearchMode.KEYWORD].index((n, texts[n], None) for n in rows)
        self._now.rows = iter(matrix)
        self._indexes[SearchMode.HYBRID].index((n, texts[n], None) for n in rows)

    def find(self, asked: Search) -> Ranked:
        """Search the index of the mode."""
        self._now.rows = iter([asked.embedding])
        found = self._indexes[asked.mode].search(asked.text, asked.k)
        vector = asked.mode is SearchMode.VECTOR
        return [
            (self._ids[row], (1 + float(score)) / 2 if vector else float(score))
            for row, score in found
        ]

    async def close(self) -> None:
        """Close the indexes."""
        for index in getattr(self, "_indexes", {}).values():
            index.close()

    @property
    def _transform(self) -> Any:
        """A function, because txtai would try to create a transform from any other object."""

        def embed(texts: list[str]) -> NDArray[np.float32]:
            return np.stack([next(self._now.rows) for _ in texts])

        return embed


PEER = Txtai
