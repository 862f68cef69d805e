"""The registrations of vector DBs, on disk: what exists, and where its chunks are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from corral.api.errors import ConfigError, Conflict, NotFound, ProviderError, Unavailable
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io._shared.threads import Threads
from corral.providers.wal import use_wal

SCHEMA_VERSION = 1
BUSY_TIMEOUT_MS = 5_000


class VectorDBStore:
    """Registrations in one SQLite file, shared safely by tasks and processes.

    Every call reads the file, so a registration made by another process is seen at once. Reading
    and writing have a thread and a connection each: a file that another process has locked holds up
    writers, for `BUSY_TIMEOUT_MS` at most, and neither the event loop nor readers.

    Args:
        path: The file; made with its folder where it is absent.

    Raises:
        ConfigError: The file is damaged, cannot be opened, or was written by a newer Corral.
        Unavailable: Another process has it locked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._errors():
            self._writer = self._connected()
            self._prepare()
            self._reader = self._connected()
        self._reads = Threads(path.name, None, most=1)
        self._writes = Threads(path.name, BUSY_TIMEOUT_MS / 1000, most=1)
        self._data_version = 0
        self.generation = 0
        """Grows when a read sees that somebody, here or elsewhere, has written since the last."""

    async def all(self) -> list[VectorDB]:
        """Return every registration, by identifier."""
        query = "SELECT registration FROM vector_dbs ORDER BY identifier"
        return _parsed(await self._reads.run(self._select, query))

    async def find(self, identifier: str) -> VectorDB | None:
        """Return one registration, or None."""
        query = "SELECT registration FROM vector_dbs WHERE identifier = ?"
        found = _parsed(await self._reads.run(self._select, query, identifier))
        return found[0] if found else None

    async def known(self, identifiers: Iterable[str]) -> set[str]:
        """Return those of some identifiers that are taken."""
        names = list(identifiers)
        marks = ", ".join("?" * len(names))
        query = f"SELECT identifier FROM vector_dbs WHERE identifier IN ({marks})"  # noqa: S608 - marks only
        return set(await self._reads.run(self._select, query, *names))

    async def get(self, identifier: str) -> VectorDB:
        """Return one registration.

        Raises:
            NotFound: There is none; the hint lists some that exist.
        """
        found = await self.find(identifier)
        if found is not None:
            return found
        known = [db.identifier for db in await self.all()]
        some = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
        raise NotFound(
            f"There is no vector DB {identifier!r}.",
            hint=f"Registered: {some or 'none yet'}.",
            field="vector_db_id",
        )

    async def add(self, vector_db: VectorDB) -> None:
        """Store a registration.

        Raises:
            Conflict: The identifier is taken.
            Unavailable: Another process has the file locked; nothing was stored.
        """
        row = (vector_db.identifier, vector_db.model_dump_json())

        def insert() -> None:
            try:
                self._writer.execute("INSERT INTO vector_dbs VALUES (?, ?)", row)
            except apsw.ConstraintError:
                raise Conflict(
                    f"Vector DB {vector_db.identifier!r} exists.", field="vector_db_id"
                ) from None

        await self._write(insert)

    async def replace(self, stored: VectorDB, changed: VectorDB) -> None:
        """Store a registration in the place of one that is still as it was read.

        Raises:
            Conflict: It was changed, deleted or registered anew meanwhile.
            Unavailable: Another process has the file locked; nothing was changed.
        """
        row = (changed.model_dump_json(), stored.identifier)

        def update() -> None:
            if self._stored(stored.identifier) != stored:
                raise Conflict(
                    f"Vector DB {stored.identifier!r} was changed by another request.",
                    hint="Nothing was changed by this one. Try again.",
                    field="vector_db_id",
                )
            self._writer.execute("UPDATE vector_dbs SET registration = ? WHERE identifier = ?", row)

        await self._write(update)

    async def remove(self, vector_db: VectorDB) -> None:
        """Forget a registration; one of the same identifier that was made later stays.

        Raises:
            Unavailable: Another process has the file locked; the registration is still there.
        """

        def delete() -> None:
            stored = self._stored(vector_db.identifier)
            if stored is not None and stored.created_at == vector_db.created_at:
                self._writer.execute(
                    "DELETE FROM vector_dbs WHERE identifier = ?", (vector_db.identifier,)
                )

        await self._write(delete)

    async def close(self) -> None:
        """Close the file, once the calls at work have ended."""
        await self._reads.run(self._reader.close)
        await self._writes.run(self._writer.close)

    # --- inside ------------------------------------------------------------------------------

    def _connected(self) -> apsw.Connection:
        connection = apsw.Connection(str(self._path))
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        return connection

    def _prepare(self) -> None:
        if self._writer.pragma("quick_check") != "ok":
            raise apsw.CorruptError
        found = int(str(self._writer.pragma("user_version")))
        if found > SCHEMA_VERSION:
            self._writer.close()
            raise ConfigError(
                f"{self._path} has schema version {found}, this Corral knows {SCHEMA_VERSION}.",
                hint="Upgrade Corral.",
            )
        use_wal(self._writer, BUSY_TIMEOUT_MS / 1000)
        for statement in (
            "PRAGMA synchronous=FULL",
            "CREATE TABLE IF NOT EXISTS vector_dbs"
            " (identifier TEXT PRIMARY KEY, registration TEXT NOT NULL) STRICT",
            f"PRAGMA user_version={SCHEMA_VERSION}",
        ):
            self._writer.execute(statement)

    def _select(self, query: str, *bindings: str) -> list[str]:
        with self._errors():
            version = int(str(self._reader.pragma("data_version")))
            rows = self._reader.execute(query, bindings).fetchall()
        if version != self._data_version:
            self._data_version = version
            self.generation += 1
        return [str(value) for (value,) in rows]

    def _stored(self, identifier: str) -> VectorDB | None:
        query = "SELECT registration FROM vector_dbs WHERE identifier = ?"
        row = self._writer.execute(query, (identifier,)).fetchone()
        return VectorDB.model_validate_json(str(row[0])) if row else None

    async def _write(self, work: Callable[[], None]) -> None:
        def transaction() -> None:
            with self._errors():
                self._writer.execute("BEGIN IMMEDIATE")
                try:
                    work()
                    self._writer.execute("COMMIT")
                finally:
                    if self._writer.in_transaction:
                        self._writer.execute("ROLLBACK")

        await self._writes.run(transaction)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate SQLite's errors."""
        try:
            yield
        except (apsw.BusyError, apsw.LockedError) as error:
            raise Unavailable(
                f"{self._path.name} is locked by another process.",
                hint="Try again; a process that uses this data folder may hang.",
            ) from error
        except (apsw.NotADBError, apsw.CorruptError, apsw.CantOpenError) as error:
            raise ConfigError(
                f"The registry {self._path} is damaged or cannot be opened "
                f"({type(error).__name__}).",
                hint="Restore it from a backup, or move it away and register the vector DBs again.",
                field="registry.db",
            ) from None
        except apsw.Error as error:
            raise ProviderError(
                f"{self._path.name} cannot be read or written ({type(error).__name__})."
            ) from error


def _parsed(registrations: Iterable[str]) -> list[VectorDB]:
    return [VectorDB.model_validate_json(each) for each in registrations]
