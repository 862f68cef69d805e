"""A connection to PostgreSQL on which no wait is endless, and a pool that lends such ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, LiteralString, NamedTuple, TypeAlias

import psycopg
from psycopg import AsyncCursor, sql
from psycopg.pq import TransactionStatus

from corral.providers.vector_io.kit.copy_format import document

CANCEL_SECONDS = 1.0
"""How long a server that was silent for too long is asked to cancel; psycopg would take 10."""

Row: TypeAlias = tuple[Any, ...]


class Statement(NamedTuple):
    """A statement as it is sent.

    Attributes:
        text: With psycopg's placeholders.
        kept: Whether a connection keeps it parsed, since its text never changes. In a transaction
            of `KEPT_PLANS` its plan is kept, too, whatever the values.
    """

    text: bytes
    kept: bool = False


KEPT_PLANS = "SET LOCAL plan_cache_mode = force_generic_plan"
"""For a transaction all of whose statements are kept, and whose best plans suit any values."""

BY_INDEX = "SET LOCAL enable_sort = off"
"""For a transaction that searches the HNSW index. PostgreSQL counts no time for reading long
embeddings, so it may think that to compare and sort all rows takes less."""


class NoConnection(Exception):
    """None was to be had in time: all are in use, or the server does not answer."""


class Connection(psycopg.AsyncConnection[Row]):
    """A connection on which no wait is endless, even when the server says nothing any more."""

    guard_seconds: float | None = None

    async def wait(self, *args: Any, **options: Any) -> Any:
        """Wait for the server, as psycopg does, for so many seconds at most.

        Raises:
            TimeoutError: It did not answer.
        """
        seconds = self.guard_seconds
        most = None if seconds is None else seconds + CANCEL_SECONDS
        async with asyncio.timeout(most), asyncio.timeout(seconds):
            return await super().wait(*args, **options)

    async def copy_rows(self, copy: sql.Composed, rows: Iterable[bytes]) -> None:
        """Run a COPY ... FROM STDIN (FORMAT binary) with rows in that format.

        The server stores what was sent while this process makes the next rows, and others of its
        tasks have their turn between the two.
        """
        async with self.cursor() as cursor, cursor.copy(copy) as target:
            for piece in document(rows):
                await target.write(piece)
                await asyncio.sleep(0)

    async def ask(self, statement: Statement, parameters: Mapping[str, Any]) -> AsyncCursor[Row]:
        """Send a statement; return the cursor that fetches what it finds, in binary form."""
        cursor = self.cursor(binary=True)
        return await cursor.execute(statement.text, parameters, prepare=statement.kept)

    async def row(self, query: sql.Composed | LiteralString, parameters: Any = None) -> Row:
        """Return the only row that a query finds."""
        [row] = await (await self.execute(query, parameters)).fetchall()
        return row

    async def take_time(self) -> None:
        """Let the statements of this transaction take as long as they need."""
        await self.execute("SET LOCAL statement_timeout = 0")
        self.guard_seconds = None


class Pool:
    """Lends connections, the one used last first, and makes them as they are needed.

    A refused connection is an error now, not after a timeout. Nothing runs in the background:
    nothing is left over when an event loop ends, and a server that is back serves the next request.
    Belongs to one event loop.

    Args:
        connect: Makes a connection.
        size: Most connections at a time; further requests wait for their turn.
        timeout_seconds: How long a request waits for its turn and for a connection, in all.
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
        """Lend a connection, which must be given back idle to be lent again.

        Raises:
            NoConnection: The time is over.
            psycopg.OperationalError: The server refuses.
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
        """Close the connections that nobody uses."""
        free, self._free = self._free, []
        for connection in free:
            await connection.close()

    async def close(self) -> None:
        """Close all connections, those in use when they are given back."""
        self._closed = True
        await self.clear()
