"""Syncs of a process: one run at a time for each vector DB, on request and by schedule."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from corral.api.errors import Conflict, CorralError, NotFound
from corral.api.principal import Principal, Role
from corral.api.reader import takes
from corral.providers.base.config import RunConfig
from corral.providers.base.sync_config import SyncEntry
from corral.providers.sources.registry import build_source, check_source
from corral.providers.sources.sync import SyncLibrary, SyncReport, SyncRun

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class SyncState:
    """The newest run of a sync in this process.

    Attributes:
        status: "failed" means that the source could not be listed, or that the run was aborted.
        started_at: Unix seconds.
        report: The changes so far.
        error: The reason for a failure; "" for none.
    """

    status: Literal["running", "completed", "failed"]
    started_at: float
    report: SyncReport = field(default_factory=SyncReport)
    error: str = ""


class Syncs:
    """Runs the syncs of run.yaml. A run acts as an admin of the vector DB's tenant.

    A lock file keeps other processes of the data folder from running a sync of the same vector DB.

    Args:
        config: The configuration.
        home: The data folder.
        view: Returns the library of a principal.

    Raises:
        ConfigError, UnknownProvider: The settings of a source are invalid.
    """

    def __init__(
        self, config: RunConfig, home: Path, view: Callable[[Principal], SyncLibrary]
    ) -> None:
        self._entries = {each.name: each for each in config.sync}
        self._types = [
            pattern
            for entry in config.providers.reader
            for pattern in entry.config.get("mime_types", ())
        ]
        self._home = home
        self._view = view
        self._states: dict[str, SyncState] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        for entry in config.sync:
            check_source(entry.source, _field(entry))

    @property
    def entries(self) -> Sequence[SyncEntry]:
        """The syncs of run.yaml."""
        return list(self._entries.values())

    def entry(self, tenant: str, vector_db_id: str, name: str) -> SyncEntry:
        """Return the sync of a vector DB by its name.

        Raises:
            NotFound: The vector DB has no such sync; the message names the others.
        """
        own = {
            each.name: each
            for each in self._entries.values()
            if (each.tenant, each.vector_db_id) == (tenant, vector_db_id)
        }
        if name not in own:
            raise NotFound(
                f"Vector DB {vector_db_id!r} has no source {name!r}.",
                hint=f"Known: {', '.join(sorted(own)) or 'none'}. Sources are in run.yaml: sync.",
                field="source",
            )
        return own[name]

    def state(self, entry: SyncEntry) -> SyncState | None:
        """Return the newest run of a sync in this process; None if it has not run here."""
        return self._states.get(entry.name)

    def start(self, entry: SyncEntry, *, full: bool = False) -> SyncState:
        """Start a run in the background and return its state, which changes until it ends.

        Raises:
            Conflict: A sync of the vector DB is running, in this or another process.
            ConfigError: The source cannot be built.
        """
        lock = self._lock(entry)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise Conflict(
                f"A sync of vector DB {entry.vector_db_id!r} is running.",
                hint="Wait until it has ended.",
            ) from None
        try:
            source = build_source(entry.source, _field(entry), self._home)
            library = self._view(Principal.stored(entry.tenant, role=Role.ADMIN))
            run = SyncRun(library, entry, source, lambda kind: takes(self._types, kind))
            state = self._states[entry.name] = SyncState("running", time.time(), run.report)
            task = asyncio.create_task(self._run(run, state, lock, full=full))
        except BaseException:
            lock.release()
            raise
        self._tasks[entry.name] = task
        return state

    async def wait(self, entry: SyncEntry) -> None:
        """Wait until the newest run of a sync in this process has ended."""
        if task := self._tasks.get(entry.name):
            await asyncio.wait({task})

    def stop(self, entry: SyncEntry) -> None:
        """Abort the newest run of a sync in this process, if it is still running."""
        if task := self._tasks.get(entry.name):
            task.cancel()

    async def close(self) -> None:
        """Abort all runs; stored data remains, and the next run continues."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self, run: SyncRun, state: SyncState, lock: FileLock, *, full: bool) -> None:
        try:
            await run.run(full=full)
            state.status, state.error = "completed", ""
        except CorralError as error:
            state.status, state.error = "failed", str(error)
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; the state says so
            state.status, state.error = "failed", "The server failed."
            _LOG.error("A sync failed: %s", type(error).__name__)
            _LOG.debug("the same, with its message", exc_info=error)
        except asyncio.CancelledError:
            state.status, state.error = "failed", "The run was broken off."
            raise
        finally:
            lock.release()
            await run.source.close()

    def _lock(self, entry: SyncEntry) -> FileLock:
        folder = self._home / "syncing"
        folder.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(f"{entry.tenant}\0{entry.vector_db_id}".encode()).hexdigest()[:32]
        return FileLock(folder / f"{name}.lock", thread_local=False)


def _field(entry: SyncEntry) -> str:
    return f"sync.{entry.name}.source"
