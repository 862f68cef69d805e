"""inline::memory: holds the indexes of vector DBs as long as the provider lives."""

from __future__ import annotations

import threading
from pathlib import Path

from corral.api.engine_index import EngineIndex
from corral.api.errors import NotFound
from corral.api.provider import Health, VectorIOProvider
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.memory.config import MemoryConfig
from corral.providers.vector_io.memory.engine import MemoryEngine


class MemoryProvider(VectorIOProvider):
    """Holds one index per vector DB until the provider is closed."""

    def __init__(self, provider_id: str, config: MemoryConfig) -> None:
        super().__init__(provider_id)
        self._config = config
        self._lock = threading.Lock()
        self._indexes: dict[tuple[tuple[str, str], float], EngineIndex] = {}

    async def open_index(self, vector_db: VectorDB, *, create: bool = False) -> EngineIndex:
        """Return the index of a vector DB; see the contract."""
        key = (vector_db.key, vector_db.built_at)
        with self._lock:
            if key not in self._indexes:
                if not create:
                    raise NotFound(
                        f"Vector DB {vector_db.identifier!r} was in memory and is gone.",
                        hint="Register it again to use it, empty; inline::sqlite keeps its chunks.",
                        field="vector_db_id",
                    )
                fuzzy = self._config.keyword == "fuzzy"
                engine = MemoryEngine(vector_db, fuzzy=fuzzy, on_drop=self._remove)
                self._indexes[key] = EngineIndex(engine)
            self._indexes[key].reopen()
            return self._indexes[key]

    async def health(self) -> Health:
        """Return OK: nothing can be down."""
        return Health("OK")

    async def close(self) -> None:
        """Forget every index."""
        with self._lock:
            self._indexes.clear()

    def _remove(self, vector_db: VectorDB) -> None:
        with self._lock:
            self._indexes.pop((vector_db.key, vector_db.built_at), None)


def create(provider_id: str, config: MemoryConfig, home: Path) -> MemoryProvider:
    """Build the provider (its spec's factory); it writes nothing to `home`."""
    return MemoryProvider(provider_id, config)
