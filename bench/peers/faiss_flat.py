"""FAISS's flat index used directly with one thread: the fastest exact vector search here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode
from corral.bench.system import BlockingSystem, Collection, Ranked, Search


class FaissFlat(BlockingSystem):
    """`IndexFlatIP`; the adapter maps row numbers to ids."""

    modes = (SearchMode.VECTOR,)
    requires = ("faiss-cpu",)
    engine_of = ("inline::faiss", "inline::memory", "inline::sqlite")

    async def prepare(self, collection: Collection) -> None:
        """Create an empty index."""
        import faiss

        self._faiss = faiss
        self._index = faiss.IndexFlatIP(collection.dimension)
        self._ids: list[str] = []

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Append rows."""
        self._index.add(embeddings)
        self._ids += [chunk.chunk_id for chunk in chunks]

    def find(self, asked: Search) -> Ranked:
        """Compare with everything."""
        self._faiss.omp_set_num_threads(1)  # applies to the calling thread only
        cosines, rows = self._index.search(asked.embedding[None], asked.k)
        found = zip(rows[0].tolist(), cosines[0].tolist(), strict=True)
        return [(self._ids[row], (1 + cosine) / 2) for row, cosine in found if row >= 0]


PEER = FaissFlat
