"""Open a state: connections, schema revisions and errors of SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

import apsw
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    create_engine,
    event,
    func,
    insert,
    inspect,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, DBAPIError

from corral.api.errors import (
    ConfigError,
    CorralError,
    InvalidRequest,
    MissingDependency,
    ProviderError,
    Unavailable,
)
from corral.providers.base.wal import use_wal
from corral.providers.state.sqlite import DRIVER
from corral.providers.state.tables import HEAD, INSTALLATION, KEYS, METADATA, VECTOR_DBS

STATE_NAME = "state.db"
SCHEMA = "corral"
"""Schema of the tables in PostgreSQL; other applications may use the same database."""

APPLICATION = "corral-state"
"""Application name of the connections in PostgreSQL; it shows that a server is running."""

REMEDY = "Restore it from a backup, or move it away and register the vector DBs again."
WAIT_SECONDS = 5.0
"""Maximum wait for another writer, in seconds."""
FROZEN_SECONDS = 3.0
"""Time after which PostgreSQL ends a transaction whose process sends nothing."""
FROZEN_UPGRADE_SECONDS = 60.0
"""The same for an upgrade: its revisions are imported on the way."""

IDLE_LIMIT = "idle_in_transaction_session_timeout"
MIGRATIONS = Path(__file__).with_name("migrations")

_REVISION = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""The table of Alembic, with one row."""

_LOCKED = {"LockNotAvailable", "IdleInTransactionSessionTimeout", "DeadlockDetected"}
_GONE = {"OperationalError", "InterfaceError", "ReadOnlySqlTransaction"}
"""Error classes of psycopg for a missing or lost connection, or one to a read-only standby.

Their subclasses count as well."""


class Place:
    """The location of a state.

    Args:
        home: The data folder, which contains the SQLite file.
        url: "sqlite", or the URL of a PostgreSQL database.

    Attributes:
        name: Name for messages, without a password.
    """

    def __init__(self, home: Path, url: str) -> None:
        self.is_sqlite = url == "sqlite"
        self.path = home / STATE_NAME
        self.name = STATE_NAME if self.is_sqlite else f"PostgreSQL at {_address(url)}"
        self._url = url

    def connected(self, **options: Any) -> Engine:
        """Return an SQLAlchemy engine, which connects on first use."""
        options |= {"max_overflow": -1, "skip_autocommit_rollback": True, "hide_parameters": True}
        if self.is_sqlite:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch(mode=0o600)
            file = make_url(DRIVER).set(database=str(self.path))
            engine = create_engine(file, **options)
            event.listen(engine, "connect", _set_timeout)
            return engine
        try:
            import psycopg  # noqa: F401, PLC0415 - needed only if the state is in PostgreSQL
        except ImportError:
            command = "pip install 'corral-rag[pgvector]'"
            raise MissingDependency("state: postgresql", "psycopg", command) from None
        settings = {
            "application_name": APPLICATION,
            "search_path": SCHEMA,
            "lock_timeout": f"{WAIT_SECONDS:g}s",
            # The lock of a frozen process must not block all others.
            IDLE_LIMIT: f"{FROZEN_SECONDS:g}s",
        }
        return create_engine(
            make_url(self._url).set(drivername="postgresql+psycopg"),
            connect_args={
                "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
                "connect_timeout": int(WAIT_SECONDS),
                # A host that is gone is noticed within a minute, idle or with data on the way.
                "keepalives_idle": 30,
                "keepalives_interval": 10,
                "keepalives_count": 3,
                "tcp_user_timeout": 60_000,  # milliseconds
            },
            **options,
        )

    def prepare(self, engine: Engine) -> None:
        """Create the tables, or check that they have the newest revision; see `State`."""
        revision = revision_of(engine)
        if revision == HEAD:
            if self.is_sqlite:
                self._check_file(engine)
            return
        if revision and not self.is_sqlite:
            _check_known(revision, self.name)
            raise ConfigError(
                f"{self.name} has schema version {revision}; this Corral needs {HEAD}.",
                hint="Stop the servers of the older version, then run: corral state upgrade",
                field="state",
            )
        self.upgrade(engine)

    def upgrade(self, engine: Engine) -> None:
        """Run the revisions that a database lacks; of concurrent processes, one does."""
        if revision_of(engine) not in ("", HEAD):
            # Not in the transaction: importing it may take longer than FROZEN_SECONDS.
            for name in ("alembic.config", "alembic.runtime.environment"):
                import_module(name)
        with engine.connect() as connection:
            if self.is_sqlite:
                _check_known(revision_of(engine), self.name)
                use_wal(driver_of(connection), WAIT_SECONDS)
            with connection.begin():
                if not self.is_sqlite:
                    _limit_idle(connection, FROZEN_UPGRADE_SECONDS)
                    lock(connection, "upgrade")
                    connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
                revision = revision_of(connection)
                _check_known(revision, self.name)
                if not revision:
                    _make_tables(connection)
                elif revision != HEAD:
                    run_revisions(connection)
                if not connection.execute(select(INSTALLATION)).all():
                    connection.execute(insert(INSTALLATION).values(id=uuid4().hex))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translate the errors of the drivers."""
        try:
            yield
        except DBAPIError as error:
            raise self.translated(error.orig or error) from error
        except apsw.Error as error:
            raise self.translated(error) from error

    def translated(self, error: BaseException) -> CorralError:
        """Return the Corral error for an error of a driver."""
        name = type(error).__name__
        if name == "DataError" and "NUL" in str(error):
            return InvalidRequest(
                "A text or an id contains the character NUL.",
                hint="PostgreSQL, where this server has its state, cannot store it.",
            )
        if isinstance(error, (apsw.BusyError, apsw.LockedError)) or name in _LOCKED:
            return Unavailable(
                f"{self.name} is locked by another process.",
                hint="Try again; another process that uses this data may be stuck.",
            )
        if isinstance(error, (apsw.NotADBError, apsw.CorruptError, apsw.CantOpenError)):
            return ConfigError(
                f"{self.path} is damaged or cannot be opened ({name}).",
                hint=REMEDY,
                field=self.path.name,
            )
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if not self.is_sqlite and kinds & _GONE:
            return Unavailable(
                f"{self.name} cannot be reached ({name}).",
                hint="Is it running? Check `state` in run.yaml.",
            )
        return ProviderError(f"{self.name} cannot be read or written ({name}).")

    def _check_file(self, engine: Engine) -> None:
        """Check only the tables that each request needs; a whole large file would take seconds."""
        with engine.connect() as connection:
            for table in (VECTOR_DBS, KEYS):
                found = driver_of(connection).pragma("quick_check", table.name)
                if found != "ok":
                    raise apsw.CorruptError


def driver_of(connection: Connection) -> apsw.Connection:
    """Return the apsw connection of a SQLAlchemy connection."""
    held: Any = connection.connection.dbapi_connection
    found: apsw.Connection = held.apsw
    return found


def lock(connection: Connection, area: str) -> None:
    """Wait for PostgreSQL's lock of an area, and hold it until the transaction ends."""
    connection.execute(select(func.pg_advisory_xact_lock(crc32(f"{SCHEMA} {area}".encode()))))


def _limit_idle(connection: Connection, seconds: float) -> None:
    """Change how long PostgreSQL lets the process of this transaction send nothing."""
    connection.exec_driver_sql(f"SET LOCAL {IDLE_LIMIT} = '{seconds:g}s'")


def revision_of(bind: Engine | Connection) -> str:
    """Return the schema revision of a database; "" if it has no tables."""
    if isinstance(bind, Engine):
        with bind.connect() as connection:
            return revision_of(connection)
    if not inspect(bind).has_table(_REVISION.name):
        return ""
    return str(bind.execute(select(_REVISION)).scalar() or "")


def _set_timeout(connection: Any, _: object) -> None:
    connection.apsw.set_busy_timeout(int(WAIT_SECONDS * 1000))


def _address(url: str) -> str:
    """Return the host, port and database of a PostgreSQL URL, or raise ConfigError."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # The messages of both quote the URL.
        parsed = make_url("other://")
    host = parsed.host or "localhost"
    # An @ in the host is part of a password that was not escaped.
    if parsed.drivername not in ("postgres", "postgresql") or "@" in host:
        raise ConfigError(
            "state is neither sqlite nor the URL of a PostgreSQL database.",
            hint="Write it as postgresql://USER:PASSWORD@HOST:5432/DATABASE, with %40 for an @ in "
            "the password, %2F for a slash and %3A for a colon.",
            field="state",
        )
    port = f":{parsed.port}" if parsed.port else ""
    return f"{host}{port}/{parsed.database or ''}"


def _check_known(revision: str, place: str) -> None:
    """Raise ConfigError if a newer Corral has created the tables."""
    if revision and revision > HEAD:
        raise ConfigError(
            f"{place} has schema version {revision}; this Corral reads up to {HEAD}.",
            hint="Upgrade Corral, or use another data folder.",
            field="state",
        )


def _make_tables(connection: Connection) -> None:
    """Make the newest tables in a new database: running all revisions takes five times as long."""
    METADATA.create_all(connection, checkfirst=False)
    _REVISION.create(connection, checkfirst=False)
    connection.execute(insert(_REVISION).values(version_num=HEAD))


def run_revisions(connection: Connection, last: str = HEAD) -> None:
    """Run the revisions that a database lacks, up to and including `last`."""
    # A new database does not need Alembic, which takes 0.1 s to import.
    from alembic.config import Config  # noqa: PLC0415
    from alembic.runtime.environment import EnvironmentContext  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    scripts = ScriptDirectory(str(MIGRATIONS))

    def missing(revision: Any, _: object) -> Any:
        return scripts._upgrade_revs(last, revision)  # the public way, as in alembic.command

    with EnvironmentContext(Config(), scripts, fn=missing, destination_rev=last) as environment:
        environment.configure(connection=connection)
        environment.run_migrations()
