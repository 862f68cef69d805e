"""SQLAlchemy's SQLite dialect on apsw, which bundles a current SQLite on every platform.

Python's own `sqlite3` uses the system's SQLite. Releases before 3.51.3 can lose a page of a file in
WAL mode if several processes write to it.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

import apsw
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from typing_extensions import override

DRIVER = "sqlite+apsw://"
registry.register("sqlite.apsw", __name__, "ApswDialect")

# SQLAlchemy reads these names from a driver's module (PEP 249).
paramstyle = "qmark"
sqlite_version_info = tuple(map(int, apsw.sqlite_lib_version().split(".")))
Error = apsw.Error
DatabaseError = OperationalError = ProgrammingError = InterfaceError = Error
IntegrityError = apsw.ConstraintError
Binary = bytes


class Cursor:
    """A cursor as in PEP 249; it reads all rows at once."""

    arraysize = 1

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._cursor.exec_trace = self._before
        self._rows: deque[Any] = deque()
        self.description: Any = None
        self.rowcount = -1

    @property
    def lastrowid(self) -> int:
        """The row id of the last inserted row."""
        return self._connection.last_insert_rowid()

    def execute(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Run a statement."""
        before = self._connection.total_changes()
        self._rows = deque(self._cursor.execute(statement, values))
        self.rowcount = self._connection.total_changes() - before

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row of values."""
        before = self._connection.total_changes()
        self._rows = deque(self._cursor.executemany(statement, rows))
        self.rowcount = self._connection.total_changes() - before

    def fetchone(self) -> Any:
        """Return the next row, or None."""
        return self._rows.popleft() if self._rows else None

    def fetchmany(self, size: int = 1) -> list[Any]:
        """Return the next rows."""
        return [self._rows.popleft() for _ in range(min(size, len(self._rows)))]

    def fetchall(self) -> list[Any]:
        """Return the remaining rows."""
        rows, self._rows = self._rows, deque()
        return list(rows)

    def close(self) -> None:
        """Close the cursor."""
        self._cursor.close()

    def _before(self, cursor: apsw.Cursor, *_: object) -> bool:
        """Record the columns: after a query without rows, apsw can no longer report them."""
        self.description = cursor.get_description() or None
        return True


class Connection:
    """A connection as in PEP 249.

    Attributes:
        isolation_level: None to commit each statement by itself (autocommit).
    """

    def __init__(self, path: str) -> None:
        self.apsw = apsw.Connection(path)
        self.isolation_level: str | None = ""

    def cursor(self) -> Cursor:
        """Return a new cursor."""
        return Cursor(self.apsw)

    def begin(self) -> None:
        """Begin a write transaction; no other connection can write until it ends."""
        if self.isolation_level is not None:
            self.apsw.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit the transaction, if there is one."""
        if self.apsw.in_transaction:
            self.apsw.execute("COMMIT")

    def rollback(self) -> None:
        """Roll the transaction back, if there is one."""
        if self.apsw.in_transaction:
            self.apsw.execute("ROLLBACK")

    def close(self) -> None:
        """Close the connection."""
        self.apsw.close()


def connect(path: str, **_: object) -> Connection:
    """Open a file."""
    return Connection(path)


class ApswDialect(SQLiteDialect_pysqlite):
    """The dialect for SQLite through apsw."""

    driver = "apsw"
    supports_statement_cache = True
    dbapi_exception_translation_map = {"ConstraintError": "IntegrityError"}  # noqa: RUF012 - as in the base class

    @classmethod
    @override
    def import_dbapi(cls) -> Any:
        return sys.modules[__name__]

    @override
    def on_connect(self) -> None:  # type: ignore[override]  # no functions of Python are needed
        return None

    @override
    def do_begin(self, dbapi_connection: Any) -> None:
        getattr(dbapi_connection, "dbapi_connection", dbapi_connection).begin()

    @override
    def is_disconnect(self, *_: Any) -> bool:
        return False
