"""The index of one vector DB: a chunk file whose vectors FAISS searches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import apsw
import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.faiss.config import FaissConfig
from corral.providers.vector_io.faiss.search import FaissSearch
from corral.providers.vector_io.store.index import ChunkFileIndex


class FaissIndex(ChunkFileIndex):
    """Chunks and keywords in one SQLite file, vectors in FAISS.

    Args:
        path: The chunk file, which exists; the FAISS index is stored beside it.
    """

    def __init__(self, vector_db: VectorDB, path: Path, config: FaissConfig) -> None:
        self.vectors = FaissSearch(vector_db, config, path.with_suffix(".faiss"), self._lend)
        super().__init__(vector_db, path, config, self.vectors)

    def prepare(self) -> None:
        """Create or migrate the tables, and load the FAISS index."""
        super().prepare()
        with self._connections.reading() as connection:
            self.vectors.load(connection)
            self.vectors.build_if_due(connection)

    def _lend(self) -> AbstractContextManager[apsw.Connection]:
        return self._connections.lend()

    async def _add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        await super()._add(chunks, embeddings, replace_documents)
        await asyncio.to_thread(self._after_write)

    def _after_write(self) -> None:
        with self._connections.reading() as connection:
            self.vectors.build_if_due(connection)

    async def _settle(self) -> None:
        await asyncio.to_thread(self.vectors.settle)

    async def _close(self) -> None:
        """Stop building, and close the connections."""
        await asyncio.to_thread(self.vectors.close)
        await super()._close()

    def _delete_files(self) -> None:
        super()._delete_files()
        self.vectors.delete_file()
