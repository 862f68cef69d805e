"""inline::sqlite passes the conformance suite, searched in memory and searched in its file."""

from __future__ import annotations

from pathlib import Path

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing import IndexConformance
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.sqlite import SPEC
from corral.providers.vector_io.sqlite.config import SqliteConfig
from corral.providers.vector_io.sqlite.provider import create
from corral.providers.vector_io.store.provider import file_name

ROWS: tuple[str, ...] = (
    "keyword", "fuzzy", "hybrid", "confidence", "refusal", "document", "enumeration", "acl",
    "hostile text",
)  # fmt: skip
"""Groups that the chunk store answers, wherever its embeddings are searched."""
EXACT: tuple[str, ...] = (*ROWS, "score", "filter", "differential", "limit", "write")
"""Groups in which a searcher that compares all embeddings runs the same code, too."""


class TestSqlite(IndexConformance):
    """The default: embeddings in a memory copy."""

    capabilities = SPEC.capabilities
    config = SqliteConfig()

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Open the vector DB's file, made where it is absent."""
        config = self.config.model_copy(update={"folder": folder})
        is_new = not (folder / file_name(vector_db)).exists()
        return await create("sqlite", config, folder).open_index(vector_db, create=is_new)


class TestSqliteWithoutMemory(TestSqlite):
    """Embeddings searched in the file by sqlite-vec, no postings kept."""

    same_as = (
        TestSqlite,
        (
            "fuzzy", "hybrid", "confidence", "refusal", "document", "enumeration", "acl",
            "hostile text", "isolation",
        ),
    )  # fmt: skip
    config = SqliteConfig(vector_memory_mib=0, keyword_memory_mib=0)
