"""The connections of one provider: opening, lending, configuration, and error translation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, LiteralString, NamedTuple, TypeAlias, TypeVar

import psycopg
from pgvector.psycopg import register_vector_async
from psycopg import AsyncCursor, errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from corral.api.errors import (
    ConfigError,
    CorralError,
    ProviderError,
    ProviderTimeout,
    Unavailable,
)
from corral.providers.vector_io.kit.clients import SharedAsyncClient
from corral.providers.vector_io.kit.copy_format import document
from corral.providers.vector_io.kit.refusals import data_is_gone
from corral.providers.vector_io.kit.retries import retried_async
from corral.providers.vector_io.pgvector.config import PgvectorConfig

OLDEST_EXTENSION = (0, 8)
"""The first pgvector with iterative scans, without which a filtered search finds too few rows."""

ATTEMPTS = 4
"""Maximum attempts if the connection breaks."""
FIRST_PAUSE_SECONDS = 0.05
"""Pause before the second attempt, in seconds; doubled before each further one."""

GUARD_SECONDS = 2.0
"""Wait beyond a statement's timeout before the server counts as hung."""

ONLY_ON_REQUEST = 2**31
"""Executions of a statement before psycopg prepares it by itself."""

CANCEL_SECONDS = 1.0
"""Time for an unresponsive server to accept a cancellation; psycopg's default is 10."""

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]


class Statement(NamedTuple):
    """An SQL statement.

    Attributes:
        text: SQL with psycopg's placeholders.
        kept: True if a connection prepares it, because its text never changes. In a transaction
            with `KEPT_PLANS` the generic plan is reused for all values.
    """

    text: bytes
    kept: bool = False


KEPT_PLANS = "SET LOCAL plan_cache_mode = force_generic_plan"
"""For a transaction of prepared statements with generic plans that suit any values."""

BY_INDEX = "SET LOCAL enable_sort = off"
"""For a transaction that searches the HNSW index. The planner ignores the cost of reading long
embeddings, so it may prefer comparing and sorting all rows."""


class NoConnection(Exception):
    """No connection became free in time: all are in use, or the server does not respond."""


class Connection(psycopg.AsyncConnection[Row]):
    """A connection that never waits forever, even if the server stops responding."""

    guard_seconds: float | None = None

    async def wait(self, *args: Any, **options: Any) -> Any:
        """Wait for the server as psycopg does, but at most for the given seconds.

        Raises:
            TimeoutError: The server did not respond.
        """
        seconds = self.guard_seconds
        most = None if seconds is None else seconds + CANCEL_SECONDS
        async with asyncio.timeout(most), asyncio.timeout(seconds):
            return await super().wait(*args, **options)

    async def copy_rows(self, copy: sql.Composed, rows: Iterable[bytes]) -> None:
        """Run a COPY ... FROM STDIN (FORMAT binary) with rows in that format.

        The server stores rows while this process encodes the next ones, and other tasks run too.
        """
        async with self.cursor() as cursor, cursor.copy(copy) as target:
            for piece in document(rows):
                await target.write(piece)
                await asyncio.sleep(0)

    async def ask(self, statement: Statement, parameters: Mapping[str, Any]) -> AsyncCursor[Row]:
        """Send a statement; return a cursor that fetches its rows in binary form."""
        cursor = self.cursor(binary=True)
        return await cursor.execute(statement.text, parameters, prepare=statement.kept)

    async def row(self, query: sql.Composed | LiteralString, parameters: Any = None) -> Row:
        """Return the only row of a query's result."""
        [row] = await (await self.execute(query, parameters)).fetchall()
        return row

    async def take_time(self) -> None:
        """Disable the timeout for the statements of this transaction."""
        await self.execute("SET LOCAL statement_timeout = 0")
        self.guard_seconds = None


class Pool:
    """Lends connections, most recently used first, and opens them on demand.

    A refused connection is an immediate error, not a timeout. Nothing runs in the background, so
    nothing is left when an event loop ends, and a recovered server is used at once. For one event
    loop.

    Args:
        connect: Opens a connection.
        size: Maximum number of open connections; further requests wait.
        timeout_seconds: Maximum total wait of a request for a connection.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], size: int, timeout_seconds: float
    ) -> None:
        self._connect = connect
        self._timeout_seconds = timeout_seconds
        self._turns = asyncio.Semaphore(size)
        self._free: list[Connection] = []
        self._closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection; it is reused if it is returned idle.

        Raises:
            NoConnection: No connection became free in time.
        """
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await self._turns.acquire()
                try:
                    connection = self._free.pop() if self._free else await self._connect()
                except BaseException:
                    self._turns.release()
                    raise
        except TimeoutError:
            raise NoConnection from None
        try:
            yield connection
        finally:
            self._turns.release()
            if connection.info.transaction_status is TransactionStatus.IDLE and not self._closed:
                self._free.append(connection)
            else:
                await connection.close()

    async def clear(self) -> None:
        """Close the idle connections."""
        free, self._free = self._free, []
        for connection in free:
            await connection.close()

    async def close(self) -> None:
        """Close all connections; those in use are closed when they are returned."""
        self._closed = True
        await self.clear()


Pools: TypeAlias = dict[asyncio.AbstractEventLoop, Pool]


class Database:
    """Runs work on connections to one database.

    Each event loop has its own pool. All pools close with the last index, so a provider without
    indexes has no open connection.

    Args:
        provider_id: For error messages.
        config: The provider's settings.

    Attributes:
        client: The shared pools.
    """

    def __init__(self, provider_id: str, config: PgvectorConfig) -> None:
        self.provider_id = provider_id
        self.config = config
        self.client: SharedAsyncClient[Pools] = SharedAsyncClient(
            provider_id, _no_pools, _close_pools
        )

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run work on a connection in autocommit mode, and repeat it if the connection breaks.

        The work must be idempotent: here, it is one statement or one overwriting transaction.

        Raises:
            CorralError: See `translated`.
        """
        async with self.client.calling():
            pool = await self._pool()

            async def attempt() -> T:
                try:
                    async with pool.connection() as connection:
                        seconds = self.config.statement_timeout_seconds
                        connection.guard_seconds = seconds + GUARD_SECONDS
                        return await work(connection)
                except (psycopg.Error, NoConnection, TimeoutError) as error:
                    if _broken(error):
                        await pool.clear()  # the other idle connections are broken, too
                    raise

            try:
                return await retried_async(attempt, _broken, ATTEMPTS, FIRST_PAUSE_SECONDS)
            except (psycopg.Error, NoConnection, TimeoutError) as error:
                raise translated(error, self.provider_id) from error

    async def run_beside(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run long work once, on a separate connection, so that no request waits for it.

        Raises:
            CorralError: See `translated`.
        """
        async with self.client.calling():
            try:
                connection = await self._connect()
                try:
                    return await work(connection)
                finally:
                    await connection.close()
            except (psycopg.Error, TimeoutError) as error:
                raise translated(error, self.provider_id) from error

    async def _pool(self) -> Pool:
        pools = await self.client.connected()
        loop = asyncio.get_running_loop()
        if loop not in pools:
            for closed in [one for one in pools if one.is_closed()]:
                await pools.pop(closed).close()
            seconds = self.config.connect_timeout_seconds
            pools[loop] = Pool(self._connect, self.config.max_connections, seconds)
        return pools[loop]

    async def _connect(self) -> Connection:
        connection = await Connection.connect(
            conninfo(self.config), autocommit=True, prepare_threshold=ONLY_ON_REQUEST
        )
        try:
            await self._configure(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _configure(self, connection: Connection) -> None:
        """Configure a new connection; `check_database` reports a missing extension.

        Plans are made for the given values, because a term or a filter may match one row or all of
        them. JIT compilation takes longer than these statements. PostgreSQL's own functions come
        first in the search path, because other users may have created functions with the same names
        in the extension's schema.
        """
        cursor = await connection.execute(
            "SELECT quote_ident(nspname) FROM pg_extension"
            " JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'vector'"
        )
        found = await cursor.fetchone()
        if found is None:
            return
        settings = {
            "search_path": f"pg_catalog, {found[0]}",
            "statement_timeout": f"{self.config.statement_timeout_seconds * 1000:.0f}ms",
            "plan_cache_mode": "force_custom_plan",
            "jit": "off",
            "hnsw.iterative_scan": "relaxed_order",
            "hnsw.ef_search": str(self.config.hnsw_ef_search),
            "hnsw.max_scan_tuples": str(self.config.hnsw_max_scan_tuples),
        }
        await connection.execute(
            "SELECT set_config(name, value, false)"
            " FROM unnest(%s::text[], %s::text[]) s(name, value)",
            (list(settings), list(settings.values())),
        )
        await register_vector_async(connection)


async def _no_pools() -> Pools:
    return {}


async def _close_pools(pools: Pools) -> None:
    """Close the pools of all event loops."""
    while pools:
        _, pool = pools.popitem()
        await pool.close()


def conninfo(config: PgvectorConfig) -> str:
    """Return the connection string of the settings; options in a dsn take precedence."""
    given: dict[str, Any] = {
        "host": config.host,
        "port": config.port,
        "dbname": config.database,
        "user": config.user,
        "password": config.password.get_secret_value() if config.password else None,
        "sslmode": config.ssl_mode,
        "sslrootcert": str(config.ssl_root_certificate) if config.ssl_root_certificate else None,
    }
    if config.dsn is not None:
        given = dict(conninfo_to_dict(config.dsn.get_secret_value()))
    defaults = {
        "connect_timeout": max(2, round(config.connect_timeout_seconds)),  # libpq's minimum is 2
        "application_name": "corral",
        # A connection dropped by a firewall is noticed within a minute.
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
    }
    return make_conninfo("", **{**defaults, **given, "client_encoding": "UTF8"})


def _broken(error: BaseException) -> bool:
    """Return True if the connection broke, or the server rolled back and asks for a retry."""
    if isinstance(error, errors.SerializationFailure | errors.DeadlockDetected):
        return True
    ended = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow)
    return isinstance(error, ended) or (
        isinstance(error, psycopg.OperationalError) and error.sqlstate is None
    )


def translated(error: BaseException, provider_id: str) -> CorralError:
    """Translate the driver's errors, only here. Their texts may quote data, so they are dropped."""
    kind: type[CorralError]
    match error:
        case errors.UndefinedTable():
            return data_is_gone(
                f"{provider_id}: the tables of this vector DB are gone from PostgreSQL."
            )
        case errors.QueryCanceled() | errors.LockNotAvailable() | TimeoutError():
            kind, message = ProviderTimeout, "PostgreSQL did not answer in time"
            hint = "Try again, or raise statement_timeout_seconds."
        case NoConnection() | errors.TooManyConnections():
            kind, message = Unavailable, "no connection to PostgreSQL in time"
            hint = "Is it running, and are max_connections enough, there and in the settings?"
        case errors.InsufficientPrivilege():
            kind, message = ConfigError, "the role may not do this in PostgreSQL"
            hint = "The provider's README lists the rights that it needs."
        case errors.DiskFull():
            kind, message, hint = ProviderError, "PostgreSQL's disk is full", "Make room."
        case _ if _broken(error):
            kind, message = Unavailable, "PostgreSQL cannot be reached"
            hint = "Is it running, and are address, credentials and ssl_mode right?"
        case _:
            state = getattr(error, "sqlstate", None) or "no code"
            kind, hint = ProviderError, ""
            message = f"PostgreSQL failed ({type(error).__name__}, {state})"
    return kind(f"{provider_id}: {message}.", hint=hint)


async def check_database(connection: Connection) -> str:
    """Check that the database supports the tables; return the versions.

    Raises:
        ConfigError: The encoding is not UTF-8, or pgvector is missing or too old; the hint has the
            command.
    """
    encoding, database, server, version = await connection.row(
        "SELECT current_setting('server_encoding'), current_database(),"
        " current_setting('server_version'),"
        " (SELECT extversion FROM pg_extension WHERE extname = 'vector')"
    )
    if encoding != "UTF8":
        raise ConfigError(
            f"The database {database} has the encoding {encoding}.",
            hint="Create one with: CREATE DATABASE corral ENCODING 'UTF8' TEMPLATE template0;",
        )
    if version is None:
        await connection.close()  # prepared without the extension, so the pool cannot use it
        raise ConfigError(
            f"The extension vector is missing in the database {database}.",
            hint="As a superuser or the owner of that database, run: CREATE EXTENSION vector;",
        )
    if tuple(map(int, version.split(".")[:2])) < OLDEST_EXTENSION:
        raise ConfigError(
            f"The extension vector has version {version}; Corral needs 0.8 or newer.",
            hint="Install a newer pgvector, then run: ALTER EXTENSION vector UPDATE;",
        )
    return f"PostgreSQL {server}, pgvector {version}"
