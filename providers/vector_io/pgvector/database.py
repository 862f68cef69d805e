"""The connections of one provider: pooled, configured alike and guarded; their errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import psycopg
from pgvector.psycopg import register_vector_async
from psycopg import errors
from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from corral.api.errors import (
    ConfigError,
    CorralError,
    NotFound,
    ProviderError,
    ProviderTimeout,
    Unavailable,
)
from corral.providers.vector_io.pgvector.config import PgvectorConfig

ATTEMPTS = 4
"""How often work is tried whose connection broke, the pauses doubling from 50 ms: enough for the
restart of a server that closed all idle connections."""

GUARD_SECONDS = 5.0
"""How much longer than its own timeout a statement is waited for, in case the server is frozen."""

Row: TypeAlias = tuple[Any, ...]
T = TypeVar("T")


class Connection(psycopg.AsyncConnection[Row]):
    """A connection on which no wait is endless, even when the server says nothing any more."""

    guard_seconds: float | None = None

    async def wait(self, *args: Any, **options: Any) -> Any:
        """Wait for the server, as psycopg does, for so many seconds at most.

        Raises:
            TimeoutError: It did not answer; the connection is unusable.
        """
        async with asyncio.timeout(self.guard_seconds):
            return await super().wait(*args, **options)


class Database:
    """Runs work on connections to one database.

    A pool belongs to the event loop that first used it. It is closed by `release`, when the last
    index is, so that a provider without indexes holds no connection.

    Args:
        provider_id: For error messages.
        config: The provider's settings.
    """

    def __init__(self, provider_id: str, config: PgvectorConfig) -> None:
        self.provider_id = provider_id
        self.config = config
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._users = 0

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run work on a connection in autocommit mode, again when the connection broke.

        Work may run more than once and must come to the same end: each unit here is one statement
        or one transaction that overwrites.

        Raises:
            CorralError: As `translated` says.
        """
        pause = 0.05
        for left in reversed(range(ATTEMPTS)):
            try:
                async with self._connection() as connection:
                    return await work(connection)
            except psycopg.Error as error:
                if not left or not _broken(error):
                    raise translated(error, self.provider_id) from error
            except (PoolTimeout, PoolClosed, TimeoutError) as error:
                raise translated(error, self.provider_id) from error
            await self._opened_pool().check()  # the other idle connections are broken, too
            await asyncio.sleep(pause)
            pause *= 2
        raise AssertionError("unreachable")  # the last attempt returns or raises

    def use(self) -> None:
        """Count one more index that needs connections."""
        self._users += 1

    async def release(self) -> None:
        """Count one index less; close the pool after the last."""
        self._users -= 1
        if self._users <= 0:
            await self.close()

    async def close(self) -> None:
        """Close all connections; the next use opens new ones."""
        pool, self._pool, self._users = self._pool, None, 0
        if pool is not None:
            await pool.close()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        pool = self._opened_pool()
        await pool.open()  # starts its workers; does nothing when they run
        async with pool.connection() as connection:
            connection.guard_seconds = self.config.statement_timeout_seconds + GUARD_SECONDS
            yield connection

    def _opened_pool(self) -> AsyncConnectionPool[Connection]:
        if self._pool is None:
            self._pool = AsyncConnectionPool(
                conninfo(self.config),
                connection_class=Connection,
                kwargs={"autocommit": True, "prepare_threshold": None},
                min_size=0,
                max_size=self.config.max_connections,
                open=False,
                configure=self._configure,
                timeout=self.config.connect_timeout_seconds,
                # Give up as soon as the waiting request does: the next one tries anew, at once.
                reconnect_timeout=self.config.connect_timeout_seconds,
                name=f"corral-{self.provider_id}",
            )
        return self._pool

    async def _configure(self, connection: Connection) -> None:
        """Prepare a new connection. Without the extension it stays as it is; `schema` reports that.

        Plans are made for the values at hand, since a term or a filter may hold for one row or all;
        JIT compilation costs more than such statements take.
        """
        connection.guard_seconds = self.config.connect_timeout_seconds
        cursor = await connection.execute(
            "SELECT quote_ident(nspname) FROM pg_extension"
            " JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'vector'"
        )
        found = await cursor.fetchone()
        if found is None:
            return
        settings = {
            "search_path": f"{found[0]}, pg_catalog",
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


def conninfo(config: PgvectorConfig) -> str:
    """Return the connection string of the settings."""
    options: dict[str, Any] = {
        "connect_timeout": max(2, round(config.connect_timeout_seconds)),  # libpq's least is 2
        "application_name": "corral",
        "client_encoding": "UTF8",
    }
    if config.dsn is not None:
        return make_conninfo(config.dsn.get_secret_value(), **options)
    secret = config.password.get_secret_value() if config.password else None
    return make_conninfo(
        host=config.host,
        port=config.port,
        dbname=config.database,
        user=config.user,
        password=secret,
        sslmode=config.ssl_mode,
        sslrootcert=str(config.ssl_root_certificate) if config.ssl_root_certificate else None,
        **options,
    )


def _broken(error: psycopg.Error) -> bool:
    """Say whether the connection broke, or the server undid the work and asks to try again."""
    if isinstance(error, errors.SerializationFailure | errors.DeadlockDetected):
        return True
    ended = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow)
    return isinstance(error, ended) or (
        isinstance(error, psycopg.OperationalError) and error.sqlstate is None
    )


def translated(error: BaseException, provider_id: str) -> CorralError:
    """Translate the driver's errors, here and nowhere else. Their texts may quote data: dropped."""
    for kinds, made, message, hint in _TRANSLATIONS:
        if isinstance(error, kinds):
            return made(f"{provider_id}: {message}.", hint=hint)
    if isinstance(error, psycopg.Error) and _broken(error):
        return Unavailable(f"{provider_id}: the connection to PostgreSQL broke.", hint="Try again.")
    state = getattr(error, "sqlstate", None) or "no code"
    return ProviderError(f"{provider_id}: PostgreSQL failed ({type(error).__name__}, {state}).")


_TRANSLATIONS: tuple[tuple[tuple[type[BaseException], ...], type[CorralError], str, str], ...] = (
    (
        (errors.UndefinedTable,),
        NotFound,
        "the tables of this vector DB are gone from PostgreSQL",
        "Delete the vector DB and register it anew.",
    ),
    (
        (errors.QueryCanceled, errors.LockNotAvailable, TimeoutError),
        ProviderTimeout,
        "PostgreSQL did not answer in time",
        "Try again, or raise statement_timeout_seconds.",
    ),
    (
        (PoolTimeout, PoolClosed, errors.TooManyConnections),
        Unavailable,
        "no connection to PostgreSQL in time",
        "Is it running, are address and credentials right, are max_connections enough?",
    ),
    (
        (errors.InsufficientPrivilege,),
        ConfigError,
        "the role may not do this in PostgreSQL",
        "The provider's README lists the rights that it needs.",
    ),
    ((errors.DiskFull,), ProviderError, "PostgreSQL's disk is full", "Make room."),
)
"""Which errors of the driver become which of ours, first match first."""
