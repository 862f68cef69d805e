"""The open indexes of one process: one per registered vector DB."""

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
from corral.api.writes import WriteObserver
from corral.providers.stack.host import check_host
from corral.providers.stack.vector_db_table import Key, VectorDBTable

LOOK_EVERY_SECONDS = 1.0
"""Interval of the check for vector DBs that other processes have deleted."""

_LOG = logging.getLogger(__name__)


class OpenIndexes:
    """Opens, caches and releases indexes; a released index is closed after its last call.

    Args:
        registry: The registrations.
        spec: Returns the spec of a provider by its id.
        provider: Returns a vector_io provider by its id.
        observer: Called after each write to an index of this process.
        here: Id of this machine; "" if no other machine shares the registrations.

    Attributes:
        lock: Locks by vector DB key, each held while a task creates, opens, changes or deletes that
            vector DB, so that a slow backend does not block other vector DBs.
        here: Id of this machine, as given.
    """

    def __init__(
        self,
        registry: VectorDBTable,
        spec: Callable[[str], ProviderSpec],
        provider: Callable[[str], VectorIOProvider],
        observer: WriteObserver,
        here: str = "",
    ) -> None:
        self.lock: defaultdict[Key, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._registry, self._spec, self._provider = registry, spec, provider
        self._observer = observer
        self.here = here
        self._indexes: dict[Key, EmbeddingIndex] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._looked = (0, 0.0)  # last check: generation of the registry, and time

    def get(self, vector_db: VectorDB) -> EmbeddingIndex | None:
        """Return the open index of a vector DB, or None if it is closed or has other settings."""
        held = self._indexes.get(vector_db.key)
        if held is not None and held.vector_db is not vector_db:
            if held.vector_db != vector_db:
                return None
            held.reconfigure(vector_db)  # the next query need not compare all settings
        return held

    def keep(self, index: EmbeddingIndex) -> EmbeddingIndex:
        """Cache an index that was just opened, and return it with the observer."""
        observed = index.observed_by(self._observer)
        self._indexes[index.vector_db.key] = observed
        return observed

    async def opened(self, vector_db: VectorDB) -> EmbeddingIndex:
        """Return the index of a vector DB, opening it if necessary.

        Args:
            vector_db: A recent registration; it is read again if the index must be opened.

        Raises:
            NotFound: The vector DB was deleted, or the backend no longer has its data.
            ProviderError: The backend failed.
        """
        held = self.get(vector_db)
        if held is not None:
            return held
        async with self.lock[vector_db.key]:
            return await self.index(await self._registry.get(*vector_db.key))

    async def index(self, vector_db: VectorDB) -> EmbeddingIndex:
        """Return the index of a vector DB; the caller holds its lock.

        Only search settings of an existing vector DB can change; an open index applies them.

        Args:
            vector_db: The current registration.

        Raises:
            Elsewhere: Another machine has its data.
            NotFound: The backend no longer has its data.
            ProviderError: The backend failed.
        """
        check_host(vector_db, self.here)
        held = self._of_today(vector_db)
        if held is None:
            held = self.keep(await self._provider(vector_db.provider_id).open_index(vector_db))
        held.reconfigure(vector_db)
        return held

    async def usable(self, vector_db: VectorDB) -> None:
        """Recreate an empty index if the backend lost its data; the caller holds its lock.

        Raises:
            ProviderError: The backend failed.
        """
        try:
            await (await self.index(vector_db)).count()
        except NotFound:
            if vector_db.key in self._indexes:
                self._let_go(vector_db.key)
            provider = self._provider(vector_db.provider_id)
            self.keep(await provider.open_index(vector_db, create=True))

    def forget(self, key: Key) -> None:
        """Remove a deleted index from the cache."""
        self._indexes.pop(key, None)

    async def close(self) -> None:
        """Close all open indexes."""
        while closing := [*self._closing]:
            # Remove them here instead of waiting for their callbacks: since Python 3.12, gathering
            # finished tasks does not run callbacks, and this loop would never end.
            self._closing.difference_update(closing)
            await asyncio.gather(*closing)
        for index in self._indexes.values():
            await index.close()

    # --- what other processes delete ---------------------------------------------------------

    async def look(self) -> None:
        """Release the indexes of deleted vector DBs, if the registry has changed.

        Read from the registry before this call: it detects changes only when it is read.
        """
        if self._registry.generation == self._looked[0]:
            return
        self._looked = (self._registry.generation, time.monotonic())
        registered = {each.key: each.built_at for each in await self._registry.all()}
        for key, index in self._indexes.items():
            if registered.get(key) != index.vector_db.built_at:
                self._in_background(self._check(key))

    def notice_changes(self) -> None:
        """Close, in the background, vector DBs that other processes have deleted."""
        generation, looked = self._looked
        due = time.monotonic() >= looked + LOOK_EVERY_SECONDS
        if self._registry.generation != generation and due:
            self._in_background(self.look())

    async def _check(self, key: Key) -> None:
        """Close a deleted vector DB, under its lock, because it may be under creation."""
        async with self.lock[key]:
            held = self._indexes.get(key)
            stored = await self._registry.find(*key)
            if held and (stored is None or stored.built_at != held.vector_db.built_at):
                self._let_go(key)

    def _of_today(self, vector_db: VectorDB) -> EmbeddingIndex | None:
        """Return the open index or None; release one of an earlier registration of the same id."""
        held = self._indexes.get(vector_db.key)
        if held is None or held.vector_db.built_at == vector_db.built_at:
            return held
        self._let_go(vector_db.key)
        return None

    def _let_go(self, key: Key) -> None:
        """Close the index of a deleted vector DB; delete it if its chunks are only in memory."""
        index = self._indexes.pop(key)
        keeps = self._spec(index.vector_db.provider_id).capabilities.persistent
        self._in_background(index.close() if keeps else index.delete())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await work
            except CorralError as error:
                _LOG.warning("Cannot close a deleted vector DB: %s", type(error).__name__)

        task = asyncio.create_task(run())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
