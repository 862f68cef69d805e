"""inline::chroma and remote::chroma pass the conformance suite."""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path

import pytest

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.chroma import REMOTE_SPEC, SPEC
from corral.providers.vector_io.chroma.config import ChromaConfig, RemoteChromaConfig
from corral.providers.vector_io.chroma.provider import ChromaProvider, create_remote
from corral.providers.vector_io.chroma.search import ChromaSearch
from corral.providers.vector_io.store.engine import ChunkFileEngine
from corral.providers.vector_io.store.provider import file_name
from tests.providers.vector_io.sqlite import test_sqlite_conformance as sqlite


class SettledSearch(ChromaSearch):
    """Waits for the builds that its writes start, so that the suite meets the built index."""

    def written(self) -> None:
        super().written()
        self.settle()


class SettledProvider(ChromaProvider):
    """Opens indexes with such searchers."""

    def engine_of(self, vector_db: VectorDB, path: Path) -> ChunkFileEngine:
        searcher = partial(SettledSearch, vector_db, self._config, path.with_suffix(".chroma"))
        return ChunkFileEngine(vector_db, path, self._config, searcher)


class TestChroma(IndexConformance):
    """A folder of Chroma's from the first chunk on."""

    same_as = (sqlite.TestSqlite, sqlite.ROWS)
    capabilities = SPEC.capabilities

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Open the vector DB's file, made where it is absent."""
        provider = SettledProvider("chroma", ChromaConfig(approximate_from=1), folder)
        is_new = not (folder / file_name(vector_db)).exists()
        return await provider.open_index(vector_db, create=is_new)


@pytest.mark.usefixtures("chroma_server")
class TestRemoteChroma(IndexConformance):
    """A real server, shared by all tests; each has a data folder, and so ids, of its own."""

    # Words are searched in the mirror, a file of this machine; the rest is above the hooks.
    same_as = (
        sqlite.TestSqlite,
        (
            "keyword", "fuzzy", "hybrid", "score", "confidence", "refusal", "document",
            "enumeration",
        ),
    )  # fmt: skip
    capabilities = REMOTE_SPEC.capabilities

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Open the vector DB's collection, made where it is absent."""
        url = os.environ["CORRAL_TEST_CHROMA_URL"]
        config = RemoteChromaConfig(url=url, folder=folder)
        number = int(hashlib.sha256(str(folder).encode()).hexdigest()[:12], 16)
        own = vector_db.model_copy(update={"created_at": float(number)})
        return await create_remote("chroma", config, folder).open_index(own, create=True)
