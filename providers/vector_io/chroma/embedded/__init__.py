"""Chroma in this process: one client a folder, which no other process may use meanwhile."""

from __future__ import annotations

import logging
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast
from weakref import WeakValueDictionary

import apsw
import chromadb
from chromadb.api.client import Client
from chromadb.config import Settings
from chromadb.errors import NotFoundError

from corral.api.errors import ProviderError, Unavailable
from corral.providers.vector_io.chroma.client import Collection, Engine
from corral.providers.vector_io.chroma.embedded.collection import (
    EmbeddedCollection,
    driver_errors,
)
from corral.providers.vector_io.chroma.embedded.graph import (
    DATABASE,
    Graph,
    graph_of,
    keep_log,
    reader,
    restore,
)

LOCK_FILE = "corral.lock"
"""Holds nothing; SQLite's lock on it goes with the process, however that ends."""

_LOG = logging.getLogger(__name__)
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_held: dict[Path, EmbeddedChroma] = {}
_guard = threading.Lock()


def hold(folder: Path, provider_id: str) -> EmbeddedChroma:
    """Return the Chroma of a folder, opened by its first holder; each must `release` it.

    Chroma itself lets a second process in, whose writes the first one's vector search then misses
    without an error. So the folder is locked.

    Raises:
        Unavailable: Another process holds the folder.
        ProviderError: The folder cannot be made or opened.
    """
    folder = folder.resolve()
    with _guard:
        if folder not in _held:
            _held[folder] = EmbeddedChroma(folder, provider_id)
        _held[folder].holders += 1
        return _held[folder]


class EmbeddedChroma(Engine):
    """The Chroma of one folder. Use `hold`.

    Attributes:
        name: The provider's, for errors.
        holders: Who uses it.
        writes: How many there were, to any collection.
    """

    def __init__(self, folder: Path, provider_id: str) -> None:
        self.holders = self._calls = 0
        self.writes = 0
        self.folder = folder
        self.name = provider_id
        self._graphs = WeakValueDictionary[str, Graph]()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(folder / LOCK_FILE, provider_id)
        except (OSError, apsw.CantOpenError, apsw.ReadOnlyError) as error:
            raise ProviderError(f"{provider_id}: cannot write to {folder}.") from error
        try:
            with driver_errors(provider_id):
                self._lost = restore(folder, provider_id)
                settings = Settings(anonymized_telemetry=False)
                client = chromadb.PersistentClient(str(folder), settings=settings)
                keep_log(folder, provider_id)
        except BaseException:
            self._lock.close()
            raise
        self._client = cast(Client, client)  # the declared type lacks `close`

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Keep the folder open for the time of a call: Chroma is not closed under it.

        Raises:
            Unavailable: The folder was given back before.
            CorralError: What becomes of Chroma's error.
        """
        with _guard:
            if not self.holders:
                raise Unavailable(f"{self.name}: the vector DB is closed.")
            self._calls += 1
        try:
            with driver_errors(self.name):
                yield
        finally:
            with _guard:
                self._calls -= 1
                self._close_if_idle()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be at work, and count that as a write when it has ended, well or not."""
        try:
            with self.at_work():
                yield
        finally:
            with _guard:
                self.writes += 1

    def create(self, name: str, configuration: Mapping[str, Any]) -> Collection:
        """Return the collection of this name, created if it is missing."""
        with self.at_work():
            found = self._client.get_or_create_collection(
                name,
                embedding_function=None,
                # chromadb declares a TypedDict of its own, which JSON of the same keys is.
                configuration=cast(Any, dict(configuration)),
            )
            return self._collection(found)

    def open(self, name: str) -> Collection | None:
        """Return the collection of this name, or None."""
        with self.at_work():
            try:
                found = self._client.get_collection(name, embedding_function=None)
            except NotFoundError:
                return None
            return self._collection(found)

    def _collection(self, found: chromadb.Collection) -> EmbeddedCollection:
        uuid, batch_rows = str(found.id), self._client.get_max_batch_size()
        with _guard:
            graph = self._graphs.get(uuid) or graph_of(self.folder, uuid, self.name)
            self._graphs[uuid] = graph
        lost = self._lost.get(uuid, 0)
        collection = EmbeddedCollection(found, self, graph, batch_rows, lost)
        if not lost:
            collection.replay()
        return collection

    def names(self) -> list[str]:
        """Return the names of all collections."""
        with self.at_work():
            return [collection.name for collection in self._client.list_collections()]

    def drop(self, name: str) -> None:
        """Delete the collection of this name, if there is one."""
        with self.writing():
            try:
                self._client.delete_collection(name)
            except NotFoundError:
                return
            _sweep(self.folder)

    def ping(self) -> None:
        """Raise the error that a request would now meet."""
        with self.at_work():
            self._client.heartbeat()

    def release(self) -> None:
        """Give the folder back; it is closed after its last holder's last call."""
        with _guard:
            self.holders -= 1
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        if not self.holders and not self._calls:
            del _held[self.folder]
            self._client.close()
            self._lock.close()


def _sweep(folder: Path) -> None:
    """Delete the folders of graphs whose collections are gone: Chroma forgets them (1.5.9).

    The folders are listed first, so that one that is made meanwhile is not among them. Where
    Chroma's own list cannot be read, nothing is deleted.
    """
    graphs = [path for path in folder.iterdir() if _UUID.fullmatch(path.name)]
    try:
        with closing(reader(folder / DATABASE)) as connection:
            living = {str(i) for (i,) in connection.execute("SELECT id FROM segments")}
    except apsw.Error:
        _LOG.warning("%s may contain files of deleted vector DBs.", folder)
        return
    for path in graphs:
        if path.name not in living:
            shutil.rmtree(path, ignore_errors=True)


def _locked(path: Path, provider_id: str) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
    except apsw.BusyError:
        connection.close()
        raise Unavailable(
            f"{provider_id}: another process uses the folder.",
            hint="Stop it, or run `chroma run --path FOLDER` and use remote::chroma in both.",
        ) from None
    return connection
