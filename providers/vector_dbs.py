"""The registrations of vector DBs, on disk: what exists, and where its chunks are."""

from __future__ import annotations

import threading
from pathlib import Path

import apsw

from corral.api.errors import ConfigError, Conflict, NotFound
from corral.api.vector_dbs import VectorDB
from corral.providers.wal import use_wal

SCHEMA_VERSION = 1
BUSY_TIMEOUT_MS = 10_000


class VectorDBStore:
    """Registrations in one SQLite file, shared safely by threads and processes.

    Every call reads the file, so a registration made by another process is seen at once.

    Args:
        path: The file; made with its folder where it is absent.

    Raises:
        ConfigError: The file is damaged, cannot be opened, or was written by a newer Corral.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        try:
            self._connection = apsw.Connection(str(path))
            self._open(path)
        except (apsw.NotADBError, apsw.CorruptError, apsw.CantOpenError) as error:
            raise ConfigError(
                f"The registry {path} is damaged or cannot be opened ({type(error).__name__}).",
                hint="Restore it from a backup, or move it away and register the vector DBs anew.",
                field="registry.db",
            ) from None

    def _open(self, path: Path) -> None:
        self._connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        if self._connection.pragma("quick_check") != "ok":
            raise apsw.CorruptError
        found = int(str(self._connection.pragma("user_version")))
        if found > SCHEMA_VERSION:
            self._connection.close()
            raise ConfigError(
                f"{path} has schema version {found}, this Corral knows {SCHEMA_VERSION}.",
                hint="Upgrade Corral.",
            )
        use_wal(self._connection, BUSY_TIMEOUT_MS / 1000)
        for statement in (
            "PRAGMA synchronous=FULL",
            "CREATE TABLE IF NOT EXISTS vector_dbs"
            " (identifier TEXT PRIMARY KEY, registration TEXT NOT NULL) STRICT",
            f"PRAGMA user_version={SCHEMA_VERSION}",
        ):
            self._connection.execute(statement)

    def all(self) -> list[VectorDB]:
        """Return every registration, by identifier."""
        query = "SELECT registration FROM vector_dbs ORDER BY identifier"
        with self._lock:
            rows = self._connection.execute(query).fetchall()
        return [VectorDB.model_validate_json(str(text)) for (text,) in rows]

    def find(self, identifier: str) -> VectorDB | None:
        """Return one registration, None where there is none."""
        query = "SELECT registration FROM vector_dbs WHERE identifier = ?"
        with self._lock:
            row = self._connection.execute(query, (identifier,)).fetchone()
        return VectorDB.model_validate_json(str(row[0])) if row else None

    def get(self, identifier: str) -> VectorDB:
        """Return one registration.

        Raises:
            NotFound: There is none; the hint lists some that exist.
        """
        found = self.find(identifier)
        if found is not None:
            return found
        known = [db.identifier for db in self.all()]
        some = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
        raise NotFound(
            f"There is no vector DB {identifier!r}.",
            hint=f"Registered: {some or 'none yet'}.",
            field="vector_db_id",
        )

    def add(self, vector_db: VectorDB) -> None:
        """Store a registration.

        Raises:
            Conflict: The identifier is taken.
        """
        row = (vector_db.identifier, vector_db.model_dump_json())
        with self._lock:
            try:
                self._connection.execute("INSERT INTO vector_dbs VALUES (?, ?)", row)
            except apsw.ConstraintError:
                raise Conflict(
                    f"Vector DB {vector_db.identifier!r} exists.", field="vector_db_id"
                ) from None

    def replace(self, vector_db: VectorDB) -> None:
        """Store a registration in the place of the one with its identifier.

        Raises:
            NotFound: There is none.
        """
        row = (vector_db.model_dump_json(), vector_db.identifier)
        with self._lock:
            self._connection.execute(
                "UPDATE vector_dbs SET registration = ? WHERE identifier = ?", row
            )
            changed = self._connection.changes()
        if not changed:
            self.get(vector_db.identifier)

    def remove(self, identifier: str) -> None:
        """Forget a registration; an unknown one is ignored."""
        with self._lock:
            self._connection.execute("DELETE FROM vector_dbs WHERE identifier = ?", (identifier,))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
