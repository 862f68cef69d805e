"""Background tasks of a server: load models at startup, delete expired data."""

from __future__ import annotations

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from sqlalchemy import select

from corral.api.chunks import Chunk
from corral.api.documents import READ_CHUNKS
from corral.api.errors import CorralError, NotFound
from corral.api.principal import Principal, Role
from corral.api.vector_dbs import VectorDB
from corral.providers.base.sync_config import SyncEntry
from corral.providers.stack.stack import Stack
from corral.providers.stack.vector_store_table import Place, VectorStore
from corral.providers.state.leases import LEASE_SECONDS
from corral.providers.state.tables import WRITES
from corral.providers.vector_io.kit.names import stored_name

MOST_SECONDS = 60.0
"""Maximum time, in seconds, that the sweep sleeps."""
LEAST_SECONDS = 1.0
"""Minimum time, in seconds, that the sweep sleeps; it limits requests to an unavailable backend."""

RETRY_SECONDS = 10.0
"""Pause after a failure."""

MAKING_SECONDS = 86_400.0
"""Maximum time to fill a vector DB: a copy or an import registers it only afterwards."""

_LOG = logging.getLogger(__name__)

Step: TypeAlias = Callable[[str, list[CorralError]], Awaitable[None]]
"""Deletes one kind of data of a host, and appends its failures."""


class BackgroundWork(ABC):
    """One task of the event loop that runs until it ends or is closed."""

    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the background task."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Cancel the background task, if it was started."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    @abstractmethod
    async def _run(self) -> None:
        """Do the work."""


class Warmup(BackgroundWork):
    """Loads the embedding models of the registered vector DBs of all tenants, in the background.

    Queries that arrive earlier wait for the same load.

    Args:
        stack: The unrestricted stack, not a principal's view.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    async def _run(self) -> None:
        await self.once()

    async def once(self) -> None:
        """Load each model. A failure is logged; queries that need the model fail with the error."""
        used = {each.embedding_model for each in await self._stack.vector_dbs_of_all()}
        for model in sorted(used):
            try:
                await self._stack.embedder(model)
            except CorralError as error:
                _LOG.warning("The embedding model %s cannot be loaded: %s", model, error)


class SyncSchedule(BackgroundWork):
    """Runs the syncs of run.yaml that have `every_minutes`, for the first time at startup.

    If machines share the state, one of them runs each sync when it is due, even after a restart.

    Args:
        stack: The unrestricted stack, not a principal's view.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack, self._syncs = stack, stack.syncs

    async def _run(self) -> None:
        timed = [each for each in self._syncs.entries if each.every_minutes is not None]
        await asyncio.gather(*map(self._repeat, timed))

    async def _repeat(self, entry: SyncEntry) -> None:
        pause = 60.0 * (entry.every_minutes or 1)
        every = pause if self._stack.host else 0.0
        task = f"sync {json.dumps([entry.tenant, entry.vector_db_id, entry.name])}"
        while True:
            done = False
            try:
                if await self._is_here(entry):
                    done = await self._stack.claims.run(
                        task, partial(self._sync, entry), every=every
                    )
            except CorralError as error:
                _LOG.warning("A scheduled sync cannot be claimed: %s", type(error).__name__)
            await asyncio.sleep(pause if done else min(pause, LEASE_SECONDS))

    async def _is_here(self, entry: SyncEntry) -> bool:
        """Return False if another machine has the data of the vector DB."""
        view = self._stack.for_principal(Principal.stored(entry.tenant, role=Role.ADMIN))
        with suppress(NotFound):  # The run reports it.
            return (await view.vector_db(entry.vector_db_id)).host in ("", self._stack.host)
        return True

    async def _sync(self, entry: SyncEntry) -> None:
        try:
            state = self._syncs.start(entry)
        except CorralError as error:
            _LOG.warning("A scheduled sync did not start: %s", type(error).__name__)
            return
        try:
            await self._syncs.wait(entry)
        except asyncio.CancelledError:
            self._syncs.stop(entry)
            raise
        if state.status == "failed":
            _LOG.warning("A scheduled sync failed; it is repeated as scheduled.")


class Sweep(BackgroundWork):
    """Deletes expired vector stores, chunks, files and conversations of all tenants.

    It also finishes the writes that killed processes left in the state that machines share.

    The first sweep runs when data has expired. Of several processes, one sweeps at a time; inline
    vector DBs are swept by the machine that has their data.

    Args:
        stack: The unrestricted stack, not a principal's view.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._table = stack.stores

    async def once(self, host: str = "") -> None:
        """Delete all data of a machine that has expired.

        Args:
            host: Id of this machine, to sweep its inline vector DBs; "" to sweep all data that any
                machine can delete.

        Raises:
            CorralError: Some data could not be deleted; the rest was deleted.
        """
        failures: list[CorralError] = []
        steps: list[Step] = [self._writes, self._stores, self._chunks]
        if not host:
            steps += [self._files, self._conversations]
        for step in steps:
            try:
                await step(host, failures)
            except CorralError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    # --- inside ------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._wait()
                for host in {"", self._stack.host}:
                    task = f"sweep {host}".strip()
                    await self._stack.claims.run(task, partial(self.once, host))
            except CorralError as error:
                _LOG.warning(
                    "Deleting expired data failed and will be retried: %s", type(error).__name__
                )
                await asyncio.sleep(RETRY_SECONDS)

    async def _wait(self) -> None:
        """Sleep until the next expiry, for `LEAST_SECONDS` to `MOST_SECONDS`."""
        self._table.changed.clear()
        due = await self._table.next_expiry()
        left = MOST_SECONDS if due is None else due - self._table.clock()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(max(left, LEAST_SECONDS), MOST_SECONDS)):
                await self._table.changed.wait()

    async def _registered(self, host: str) -> list[VectorDB]:
        """Return the vector DBs that a sweep for a host deletes from."""
        registered = await self._stack.vector_dbs_of_all()
        return [each for each in registered if not self._stack.host or each.host == host]

    async def _writes(self, host: str, failures: list[CorralError]) -> None:
        """Finish the writes of processes that show no sign of life; see `StateWriteLog`."""
        before = await self._unfinished()
        if host or not before:
            return
        await asyncio.sleep(LEASE_SECONDS / 4)
        stuck = {name for name, *_ in before & await self._unfinished()}
        for vector_db in await self._registered(host):
            if stored_name(vector_db) in stuck:
                try:
                    index = await self._view(vector_db).index(vector_db.identifier, active=False)
                    await index.settle()
                except CorralError as error:
                    _LOG.warning("Cannot finish a write: %s", type(error).__name__)
                    failures.append(error)

    async def _unfinished(self) -> set[tuple[str, str, int]]:
        """Return the names of vector DBs with a logged write, with its writer and last beat."""
        query = select(WRITES.c.name, WRITES.c.writer, WRITES.c.beat)
        rows = await self._stack.state.area("writes").read(query.where(WRITES.c.entry.is_not(None)))
        return {(row.name, row.writer, row.beat) for row in rows}

    async def _stores(self, host: str, failures: list[CorralError]) -> None:
        await self._table.flush()
        expired = await self._table.mark_expired()
        for vector_db in _of(expired, await self._registered(host)):
            try:
                with suppress(NotFound):  # Another process was faster.
                    await self._view(vector_db).unregister(vector_db.identifier)
            except CorralError as error:
                _LOG.warning("Cannot delete an expired vector store: %s", type(error).__name__)
                failures.append(error)
        if not host:
            await self._table.drop_strays(await self._stack.vector_dbs_of_all())

    async def _conversations(self, _: str, failures: list[CorralError]) -> None:
        await self._stack.expire_conversations()

    async def _chunks(self, host: str, failures: list[CorralError]) -> None:
        now = int(self._table.clock())
        own = {_place(each): each for each in await self._registered(host)}
        others = {*map(_place, await self._stack.vector_dbs_of_all())} - own.keys()
        for place, chunk_ids in (await self._table.due_chunks(now)).items():
            try:
                if place in own:
                    await self._delete_due(own[place], chunk_ids, now)
                elif host or place in others:
                    continue  # The sweep for another host deletes them.
                elif place[-1] > now - MAKING_SECONDS:
                    await self._table.postpone(place, chunk_ids, now + int(MOST_SECONDS))
                await self._table.looked_at(place, chunk_ids, now)
            except CorralError as error:
                _LOG.warning("Cannot delete expired chunks: %s", type(error).__name__)
                failures.append(error)

    async def _delete_due(self, vector_db: VectorDB, chunk_ids: Sequence[str], now: int) -> None:
        """Delete the chunks that have expired by their own records."""
        index = await self._view(vector_db).index(vector_db.identifier, active=False)
        for start in range(0, len(chunk_ids), READ_CHUNKS):
            found = await index.get_chunks(chunk_ids[start : start + READ_CHUNKS])
            await index.delete_chunks([each.chunk_id for each in found if _is_over(each, now)])

    async def _files(self, _: str, failures: list[CorralError]) -> None:
        await self._stack.files.expire()

    def _view(self, vector_db: VectorDB) -> Stack:
        return self._stack.for_principal(Principal.stored(vector_db.tenant, role=Role.ADMIN))


def _place(vector_db: VectorDB) -> Place:
    return (*vector_db.key, vector_db.created_at)


def _of(stores: Sequence[VectorStore], registered: Sequence[VectorDB]) -> list[VectorDB]:
    """Return the registrations of the stores."""
    places = {(*store.key, store.created_at) for store in stores}
    return [each for each in registered if _place(each) in places]


def _is_over(chunk: Chunk, now: int) -> bool:
    expires_at = chunk.chunk_metadata.expires_at if chunk.chunk_metadata else None
    return expires_at is not None and expires_at <= now
