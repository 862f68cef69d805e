"""The HNSW index on embeddings: its contents, and when and how it is built."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Literal, LiteralString

from psycopg import errors, sql

from corral.api.errors import CorralError
from corral.api.vector_dbs import VectorDB
from corral.providers.concurrency import Debouncer
from corral.providers.vector_io.pgvector.client import Connection, Database
from corral.providers.vector_io.pgvector.config import PgvectorConfig
from corral.providers.vector_io.pgvector.records import Tables

logger = logging.getLogger(__name__)

Operator = Literal["<=>", "<->", "<#>"]
"""pgvector's distances: cosine, L2 and minus the inner product."""

HALF_FROM = 128
"""From this dimension, embeddings of length 1 are indexed in half precision: the index takes half
the memory, and searching an index larger than the server's memory takes half the time. Results are
ordered by exact distances."""

MOST_FLOAT = 2000
"""Maximum dimension of an HNSW index in single precision (pgvector's limit)."""
MOST_HALF = 4000
"""Maximum dimension of an HNSW index in half precision (pgvector's limit)."""

LOAD = 100
"""A call with at least this many chunks counts as a bulk load. Its chunks enter the HNSW index at
the next rebuild, which costs half of inserting them one by one and does not delay the load."""

_CLASSES: dict[Operator, LiteralString] = {
    "<=>": "vector_cosine_ops",
    "<->": "vector_l2_ops",
    "<#>": "vector_ip_ops",
}

_NEW_INDEX = """
CREATE INDEX {new_hnsw} ON {chunks} USING hnsw ({key} {operators})
WITH (m = {m}, ef_construction = {construction}) WHERE indexed OR row < {below}::bigint
"""
_TAKE_PLACE = """
DROP INDEX IF EXISTS {schema}.{hnsw};
ALTER INDEX {schema}.{new_hnsw} RENAME TO {hnsw};
UPDATE {state} SET loaded = 0, hnsw_below = {below};
ANALYZE {chunks} (row, indexed);
"""
_ROOM = """
SELECT set_config('maintenance_work_mem', greatest(
    pg_size_bytes(current_setting('maintenance_work_mem')), %s) / 1024 || 'kB', true)
"""


@dataclass(frozen=True, slots=True)
class HnswKey:
    """The indexed expression of an embedding, and its distance operator."""

    operator: Operator
    operator_class: LiteralString
    half_dimension: int | None = None
    unit: bool = False

    def of(self, embedding: LiteralString) -> sql.Composable:
        """Return the key for an embedding, given as an SQL expression."""
        key: sql.Composable = sql.SQL(embedding)
        if self.unit:
            key = sql.SQL("l2_normalize({})").format(key)
        if self.half_dimension is None:
            return key
        size = sql.Literal(self.half_dimension)
        return sql.SQL("({}::halfvec({}))").format(key, size)


def hnsw_key(vector_db: VectorDB, operator: Operator) -> HnswKey | None:
    """Return the indexed type for these embeddings; None if pgvector cannot index them.

    Half precision ends at 65,504, so it is used only for embeddings of length 1. Above `MOST_FLOAT`
    dimensions, other embeddings are first scaled to length 1, if the metric ignores lengths.
    """
    dimension = vector_db.embedding_dimension
    if dimension < HALF_FROM or (dimension <= MOST_FLOAT and not vector_db.normalize):
        return HnswKey(operator, _CLASSES[operator])
    if dimension > MOST_HALF or not (vector_db.normalize or operator == "<=>"):
        return None
    return HnswKey("<#>", "halfvec_ip_ops", dimension, unit=not vector_db.normalize)


class HnswIndex:
    """Builds the index of one vector DB when it is due: immediately, or after a bulk load.

    Args:
        tables: Its tables.
        key: The indexed expression; None without an index.
        database: The provider's connections.

    Attributes:
        key: As given.
        below: Rows below this number are in the index. After a rebuild by another process the true
            number is larger, so a search compares more rows one by one than necessary.
        holds_all: True if the index last contained all chunks, and more than are compared exactly.
        renewal: The build that waits for the end of a bulk load.
    """

    def __init__(self, tables: Tables, key: HnswKey | None, database: Database) -> None:
        self._tables = tables
        self._database = database
        self._failed = False
        self.key = key
        self.below = 0
        self.holds_all = False
        self.renewal = Debouncer(self._build, tables.tuning.quiet_seconds)

    async def settle(self, count: int, loaded: int, below: int) -> None:
        """Build the index if a build is due.

        Args:
            count: Number of chunks.
            loaded: Number of chunks that bulk loads have written since the last build.
            below: Rows below this number are in the index; 0 without an index.
        """
        self.notice(below, loaded, count)
        few = self._database.config.exact_below_rows
        if self.key is None or self._failed or count <= few:
            return
        tuning = self._tables.tuning
        cheap = count * self._tables.vector_db.embedding_dimension <= tuning.cheap_numbers
        late = loaded > max(tuning.max_loaded, 4 * (count - loaded))
        if not below or late or (cheap and loaded > few):
            await self._build()
        elif loaded > few:
            self.renewal.schedule()

    def notice(self, below: int, loaded: int, count: int) -> None:
        """Record the index's state from the state row; arguments as for `settle`."""
        few = self._database.config.exact_below_rows
        self.below, self.holds_all = below, below > 0 and not loaded and count > few

    async def _build(self) -> None:
        """Build the index.

        Without it answers are correct but slower, so a failure does not fail the write. The next
        process tries again; so does the next write, if the server was unreachable or the build was
        canceled.
        """
        key = self.key

        async def work(connection: Connection) -> None:
            if key is not None:
                self.below = await _built(connection, self._tables, key, self._database.config)

        started = time.monotonic()
        try:
            await self._database.run_beside(work)
        except CorralError as error:
            self._failed = not error.retryable
            logger.warning("No HNSW index for %s: %s", self._tables.name, error)
            return
        seconds = time.monotonic() - started
        logger.info("HNSW index of %s built in %.1f s.", self._tables.name, seconds)


async def _built(
    connection: Connection, tables: Tables, key: HnswKey, config: PgvectorConfig
) -> int:
    """Rebuild the index with all rows; return the number that they are below.

    Writers wait during the build, readers do not. Does nothing after another process's rebuild.
    """
    async with connection.transaction():
        await connection.take_time()
        count, below, loaded, built = await connection.row(
            tables.sql("SELECT count, next_row, loaded, hnsw_below FROM {state} FOR UPDATE")
        )
        if built and loaded <= config.exact_below_rows:
            return int(built)
        await connection.execute(_ROOM, (_bytes_to_build(count, tables, config),))
        create = tables.sql(
            _NEW_INDEX,
            key=key.of("embedding"),
            operators=sql.SQL(key.operator_class),
            m=sql.Literal(config.hnsw_m),
            construction=sql.Literal(config.hnsw_ef_construction),
            below=sql.Literal(below),
        )
        await _create(connection, create)
        await connection.execute(tables.sql(_TAKE_PLACE, below=sql.Literal(below)))
        return int(below)


async def _create(connection: Connection, create: sql.Composed) -> None:
    """Run the statement, with parallel workers if there is enough shared memory."""
    try:
        async with connection.transaction():
            await connection.execute(create)
    except (errors.DiskFull, errors.OutOfMemory, errors.InsufficientResources):
        # A container may lack shared memory; a single process needs none.
        await connection.execute("SET LOCAL max_parallel_maintenance_workers = 0")
        await connection.execute(create)


def _bytes_to_build(count: int, tables: Tables, config: PgvectorConfig) -> int:
    """Return the memory, within the limit, for building the whole index in memory."""
    one = 4 * tables.vector_db.embedding_dimension + 32 * config.hnsw_m + 400
    return min(int(1.1 * count * one), config.hnsw_build_memory_mib * 2**20)
