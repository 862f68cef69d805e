"""Engines over the chunk store when SQLite does what it is told and fails all the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw

from corral.api.embedding_index import EmbeddingIndex
from corral.api.vector_dbs import VectorDB

from ..engines import engine_of
from ..inline_backends import MAKERS
from ..replace_faults import Late, ReplaceFaults, methods_of


class TestChunkFile(ReplaceFaults):
    """A chunk file, whatever searches its vectors."""

    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        return await MAKERS["sqlite"](folder).open_index(vector_db, create=True)

    @contextmanager
    def late(self, index: EmbeddingIndex, what: Late) -> Iterator[None]:
        """Have triggers in the file fail, without undoing what the statement has done."""
        calls = methods_of(what, "INSERT", "DELETE")
        with closing(apsw.Connection(str(engine_of(index)._path))) as connection:
            for call in calls:
                connection.execute(
                    f"CREATE TRIGGER late_{call} AFTER {call} ON chunks"
                    " BEGIN SELECT RAISE(FAIL, 'late'); END"
                )
            yield
            for call in calls:
                connection.execute(f"DROP TRIGGER late_{call}")
