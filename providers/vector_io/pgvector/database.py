"""The connections of one provider: pooled, configured alike and guarded; their errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import psycopg
from pgvector.psycopg import register_vector_async
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from corral.api.errors import (
    ConfigError,
    CorralError,
    NotFound,
    ProviderError,
    ProviderTimeout,
    Unavailable,
)
from corral.providers.vector_io.pgvector.config import PgvectorConfig
from corral.providers.vector_io.pgvector.pool import Connection, NoConnection, Pool

ATTEMPTS = 4
"""How often work is tried whose connection broke."""
FIRST_PAUSE_SECONDS = 0.05
"""Before the second attempt; doubled before each further one."""

GUARD_SECONDS = 2.0
"""How much longer than its own timeout a statement is waited for, in case the server is frozen."""

T = TypeVar("T")


class Database:
    """Runs work on connections to one database.

    Each event loop has a pool of its own. All are closed by `release`, when the last index is, so
    that a provider without indexes holds no connection.

    Args:
        provider_id: For error messages.
        config: The provider's settings.
    """

    def __init__(self, provider_id: str, config: PgvectorConfig) -> None:
        self.provider_id = provider_id
        self.config = config
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._users = 0

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run work on a connection in autocommit mode, again when the connection broke.

        Work may run more than once and must come to the same end: each unit here is one statement
        or one transaction that overwrites.

        Raises:
            CorralError: As `translated` says.
        """
        pool, pause = await self._pool(), FIRST_PAUSE_SECONDS
        for left in reversed(range(ATTEMPTS)):
            try:
                async with pool.connection() as connection:
                    seconds = self.config.statement_timeout_seconds
                    connection.guard_seconds = seconds + GUARD_SECONDS
                    return await work(connection)
            except (psycopg.Error, NoConnection, TimeoutError) as error:
                if not left or not _broken(error):
                    raise translated(error, self.provider_id) from error
            await pool.clear()  # the other idle connections are broken, too
            await asyncio.sleep(pause)
            pause *= 2
        raise AssertionError("unreachable")  # the last attempt returns or raises

    def use(self) -> None:
        """Count one more index that needs connections."""
        self._users += 1

    async def release(self) -> None:
        """Count one index less; close the pools after the last."""
        self._users -= 1
        if self._users == 0:
            await self.close()

    async def close(self) -> None:
        """Close all connections; the next use opens new ones."""
        await self._close_pools(list(self._pools))

    async def _pool(self) -> Pool:
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            await self._close_pools([one for one in self._pools if one.is_closed()])
            seconds = self.config.connect_timeout_seconds
            self._pools[loop] = Pool(self._connect, self.config.max_connections, seconds)
        return self._pools[loop]

    async def _close_pools(self, loops: Sequence[asyncio.AbstractEventLoop]) -> None:
        for pool in [self._pools.pop(loop) for loop in loops]:
            await pool.close()

    async def _connect(self) -> Connection:
        connection = await Connection.connect(
            conninfo(self.config), autocommit=True, prepare_threshold=None
        )
        try:
            await self._configure(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _configure(self, connection: Connection) -> None:
        """Prepare a new connection. Without the extension it stays as it is; `schema` reports that.

        Plans are made for the values at hand, since a term or a filter may hold for one row or all;
        JIT compilation costs more than such statements take.
        """
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
    """Return the connection string of the settings; what a dsn says itself is left as it is."""
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
        "connect_timeout": max(2, round(config.connect_timeout_seconds)),  # libpq's least is 2
        "application_name": "corral",
        # A connection that a firewall forgot is noticed within a minute.
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
    }
    return make_conninfo("", **{**defaults, **given, "client_encoding": "UTF8"})


def _broken(error: BaseException) -> bool:
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
    if _broken(error):
        return Unavailable(
            f"{provider_id}: PostgreSQL cannot be reached.",
            hint="Is it running, and are address, credentials and ssl_mode right?",
        )
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
        (NoConnection, errors.TooManyConnections),
        Unavailable,
        "no connection to PostgreSQL in time",
        "Is it running, and are max_connections enough, there and in the settings?",
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
