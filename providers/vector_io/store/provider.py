"""The provider for chunk files: one file per vector DB, in one folder."""

from __future__ import annotations

import asyncio
import shutil
from abc import abstractmethod
from contextlib import suppress
from pathlib import Path

from corral.api.engine_index import EngineIndex
from corral.api.provider import Health, Orphan, Registered, VectorIOProvider
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.folders import folder_health, make_folder
from corral.providers.vector_io.kit.names import stored_name, strays
from corral.providers.vector_io.store.engine import ChunkFileEngine


class ChunkFileProvider(VectorIOProvider):
    """Creates and opens the files of vector DBs in one folder.

    Args:
        folder: Folder of the files; created with the first file.
    """

    def __init__(self, provider_id: str, folder: Path) -> None:
        super().__init__(provider_id)
        self._folder = folder

    @abstractmethod
    def engine_of(self, vector_db: VectorDB, path: Path) -> ChunkFileEngine:
        """Return the engine of a vector DB for its file, which may be missing; open nothing."""

    async def open_index(self, vector_db: VectorDB, *, create: bool = False) -> EngineIndex:
        """Return the index of a vector DB; see the contract."""
        return EngineIndex(await asyncio.to_thread(self._open, vector_db, create))

    def _open(self, vector_db: VectorDB, create: bool) -> ChunkFileEngine:
        path = self._folder / file_name(vector_db)
        if create:
            make_folder(self._folder, self.provider_id, path)
        engine = self.engine_of(vector_db, path)
        engine.prepare()
        return engine

    async def orphans(self, registered: Registered) -> list[Orphan]:
        """Return the files without a registration; see the contract."""
        names = await asyncio.to_thread(self._names)
        return await strays(names, registered, self._drop)

    async def _drop(self, name: str) -> None:
        await asyncio.to_thread(self._remove, name)

    def _names(self) -> list[str]:
        return [path.name.partition(".")[0] for path in self._folder.glob("*.*")]

    def _remove(self, name: str) -> None:
        for path in self._folder.glob(f"{name}.*"):  # the file and its companions
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    async def disk_bytes(self, vector_db: VectorDB) -> int | None:
        """Return the size of the file and its companions; see the contract."""
        return await asyncio.to_thread(self._bytes, stored_name(vector_db))

    def _bytes(self, name: str) -> int:
        total = 0
        for path in self._folder.glob(f"{name}.*"):
            for file in path.rglob("*") if path.is_dir() else (path,):
                with suppress(FileNotFoundError):  # a newer searcher replaced it
                    total += file.stat().st_size if file.is_file() else 0
        return total

    async def health(self) -> Health:
        """Return OK if the folder, or the folder it will be created in, is writable."""
        return folder_health(self._folder)


def file_name(vector_db: VectorDB) -> str:
    """Return the name of a vector DB's file."""
    return f"{stored_name(vector_db)}.db"
