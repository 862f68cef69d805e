"""inline::sqlite: makes and opens the files of vector DBs in one folder."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

from corral.api.errors import ProviderError
from corral.api.provider import Health, VectorIOProvider
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.sqlite.config import SqliteConfig
from corral.providers.vector_io.sqlite.index import SqliteIndex


class SqliteProvider(VectorIOProvider):
    """Holds one file a vector DB in one folder."""

    def __init__(self, provider_id: str, config: SqliteConfig, folder: Path) -> None:
        super().__init__(provider_id)
        self._config = config
        self._folder = folder

    async def open_index(self, vector_db: VectorDB, *, create: bool = False) -> SqliteIndex:
        """Return the index of a vector DB; see the contract."""
        return await asyncio.to_thread(self._open, vector_db, create)

    def _open(self, vector_db: VectorDB, create: bool) -> SqliteIndex:
        path = self._folder / file_name(vector_db)
        if create:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                path.touch()
            except OSError as error:
                raise ProviderError(
                    f"{self.provider_id}: cannot write to {self._folder} ({error.strerror})."
                ) from error
        index = SqliteIndex(vector_db, path, self._config)
        index.prepare()
        return index

    async def health(self) -> Health:
        """Say whether the folder, or the one it will be made in, can be written to."""
        folder = self._folder
        while not folder.exists():
            folder = folder.parent
        if os.access(folder, os.W_OK):
            return Health("OK")
        return Health("Error", f"{folder} cannot be written to")


def file_name(vector_db: VectorDB) -> str:
    """Return the name of a vector DB's file.

    The id is hashed, so that any id is a usable name, none is a path, and different ids never
    share a file. The time of registration is hashed with it: an id that is registered anew gets
    a new file, and a process that still holds the old one cannot touch it.
    """
    key = f"{vector_db.created_at!r}\0{vector_db.identifier}".encode("utf-8", "surrogatepass")
    return f"{hashlib.sha256(key).hexdigest()[:40]}.db"


def create(provider_id: str, config: SqliteConfig, home: Path) -> SqliteProvider:
    """Build the provider (its spec's factory)."""
    folder = (
        config.folder or home / "sqlite" / hashlib.sha256(provider_id.encode()).hexdigest()[:16]
    )
    return SqliteProvider(provider_id, config, folder)
