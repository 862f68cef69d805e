"""Vector DBs that are being created: an engine has their data, but they are not registered yet.

Every process of a data folder can list them, so no process treats their data as orphans.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from corral.api.vector_dbs import VectorDB
from corral.providers.base.owner import Owner


class Making:
    """A file for each vector DB that is being created, and a lock that its process holds.

    Args:
        folder: The folder of the files; the first one creates it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def of(self, vector_db: VectorDB) -> AsyncIterator[None]:
        """List a vector DB while it is being created, until it is registered or has failed."""
        owner = Owner(self._folder)
        await asyncio.to_thread(self._begin, owner, vector_db)
        try:
            yield
        finally:
            await asyncio.shield(asyncio.to_thread(self._end, owner))

    async def all(self) -> list[VectorDB]:
        """Return the vector DBs that live processes are creating; drop killed processes' files."""
        return await asyncio.to_thread(self._read)

    def _begin(self, owner: Owner, vector_db: VectorDB) -> None:
        owner.enter()
        path = self._path(owner.name)
        unfinished = path.with_suffix(".new")
        unfinished.write_text(vector_db.model_dump_json(), encoding="utf-8")
        unfinished.replace(path)

    def _end(self, owner: Owner) -> None:
        self._path(owner.name).unlink(missing_ok=True)
        owner.leave()

    def _read(self) -> list[VectorDB]:
        found, reader = [], Owner(self._folder)
        for path in self._folder.glob("*.json"):  # written under the lock
            with suppress(FileNotFoundError):  # it was registered in the meantime
                vector_db = VectorDB.model_validate_json(path.read_bytes())
                if reader.is_dead(path.stem):
                    path.unlink()
                    reader.forget(path.stem)
                else:
                    found.append(vector_db)
        return found

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"
