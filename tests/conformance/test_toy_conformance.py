"""A correct index passes the whole suite."""

from __future__ import annotations

from pathlib import Path

from toy_engine import CAPABILITIES, ToyEngine

from corral.api.embedding_index import EmbeddingIndex
from corral.api.engine_index import EngineIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB


class TestToy(IndexConformance):
    capabilities = CAPABILITIES

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        return EngineIndex(ToyEngine(vector_db, folder))
