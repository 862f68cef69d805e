"""The indexes that one process holds open: one a vector DB, for as long as that is registered."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import CorralError, NotFound
from corral.api.provider import ProviderSpec, VectorIOProvider
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_dbs import VectorDBStore

LOOK_EVERY_SECONDS = 1.0
"""How often the registry is searched for vector DBs that other processes have deleted."""

_LOG = logging.getLogger(__name__)


class OpenIndexes:
    """Opens, keeps and lets go of indexes; what is let go of is closed after its last user.

    Args:
        registry: What is registered.
        spec: Returns the spec of a provider by its id.
        provider: Returns the provider itself.

    Attributes:
        lock: By vector DB id, held by whoever makes, opens, changes or deletes it: a backend that
            is slow to open holds up nobody else's.
    """

    def __init__(
        self,
        registry: VectorDBStore,
        spec: Callable[[str], ProviderSpec],
        provider: Callable[[str], VectorIOProvider],
    ) -> None:
        self.lock: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._registry, self._spec, self._provider = registry, spec, provider
        self._indexes: dict[str, EmbeddingIndex] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._looked = (0, 0.0)  # at which generation of the registry, and when

    def get(self, vector_db: VectorDB) -> EmbeddingIndex | None:
        """Return the open index of a vector DB if it knows all its settings."""
        held = self._indexes.get(vector_db.identifier)
        return held if held is not None and held.vector_db == vector_db else None

    def keep(self, index: EmbeddingIndex) -> None:
        """Take over an index that was just made."""
        self._indexes[index.vector_db.identifier] = index

    async def index(self, vector_db: VectorDB) -> EmbeddingIndex:
        """Return the index of a vector DB, under its lock.

        What can change while a vector DB lives is how it is searched, and an open index takes that
        over.

        Args:
            vector_db: As it is registered now.

        Raises:
            NotFound: Its data is gone from the backend.
            ProviderError: The backend failed.
        """
        held = self._of_today(vector_db)
        if held is None:
            held = await self._provider(vector_db.provider_id).open_index(vector_db)
            self.keep(held)
        held.vector_db = vector_db
        return held

    async def usable(self, vector_db: VectorDB) -> None:
        """Recreate the index, empty, if its data is gone from the backend; under its lock.

        Raises:
            ProviderError: The backend failed.
        """
        try:
            await (await self.index(vector_db)).count()
        except NotFound:
            if vector_db.identifier in self._indexes:
                self._let_go(vector_db.identifier)
            provider = self._provider(vector_db.provider_id)
            self.keep(await provider.open_index(vector_db, create=True))

    def forget(self, vector_db_id: str) -> None:
        """Drop an index that was deleted, if it is open."""
        self._indexes.pop(vector_db_id, None)

    async def close(self) -> None:
        """Close all of them."""
        while self._closing:
            await asyncio.gather(*self._closing)
        for index in self._indexes.values():
            await index.close()

    # --- what other processes delete ---------------------------------------------------------

    async def registered(self) -> list[VectorDB]:
        """Return what is registered, and let go of what no longer is."""
        found = await self._registry.all()
        registered = {each.identifier: each.created_at for each in found}
        for name, index in self._indexes.items():
            if registered.get(name) != index.vector_db.created_at:
                self._in_background(self._check(name))
        return found

    def notice_changes(self) -> None:
        """Start closing, in the background, vector DBs that others have deleted."""
        generation, looked = self._looked
        now = time.monotonic()
        if self._registry.generation != generation and now >= looked + LOOK_EVERY_SECONDS:
            self._looked = (self._registry.generation, now)
            self._in_background(self._look())

    async def _look(self) -> None:
        await self.registered()

    async def _check(self, vector_db_id: str) -> None:
        """Close a vector DB that is deleted; under the lock, since it may be being created."""
        async with self.lock[vector_db_id]:
            held = self._indexes.get(vector_db_id)
            stored = await self._registry.find(vector_db_id)
            if held and (stored is None or stored.created_at != held.vector_db.created_at):
                self._let_go(vector_db_id)

    def _of_today(self, vector_db: VectorDB) -> EmbeddingIndex | None:
        """Return the open index; one of an earlier registration of the id is let go of."""
        held = self._indexes.get(vector_db.identifier)
        if held is None or held.vector_db.created_at == vector_db.created_at:
            return held
        self._let_go(vector_db.identifier)
        return None

    def _let_go(self, vector_db_id: str) -> None:
        """Close an index, whose chunks others have deleted; those that only it has go with it."""
        index = self._indexes.pop(vector_db_id)
        keeps = self._spec(index.vector_db.provider_id).capabilities.persistent
        self._in_background(index.close() if keeps else index.delete())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await work
            except CorralError as error:
                _LOG.warning("Letting go of a deleted vector DB failed: %s", type(error).__name__)

        task = asyncio.create_task(run())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
