"""remote::pgvector when PostgreSQL does what it is told and answers too late."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corral.api.embedding_index import EmbeddingIndex
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.pgvector.records import Tables

from ..replace_faults import Late, ReplaceFaults, methods_of
from .conftest import Server
from .helpers import ask, provider


class TestPgvector(ReplaceFaults):
    """A trigger sleeps after the rows are written or deleted, longer than a statement may take."""

    @pytest.fixture(autouse=True)
    def use(self, server: Server) -> None:
        """Keep the server for what follows."""
        self.server = server

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        return await provider(self.server, statement_timeout_seconds=1).open_index(
            vector_db, create=True
        )

    @contextmanager
    def late(self, index: EmbeddingIndex, what: Late) -> Iterator[None]:
        table = f'corral."{Tables(index.vector_db, "corral").name}"'
        ask(
            self.server,
            "CREATE OR REPLACE FUNCTION public.late() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM pg_sleep(5); RETURN NULL; END'",
        )
        calls = methods_of(what, "INSERT", "DELETE")
        for call in calls:
            ask(
                self.server,
                f"CREATE TRIGGER late_{call} AFTER {call} ON {table} FOR EACH STATEMENT"
                " EXECUTE FUNCTION public.late()",
            )
        yield
        for call in calls:
            ask(self.server, f"DROP TRIGGER late_{call} ON {table}")
