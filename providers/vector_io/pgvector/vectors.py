"""Vector search in SQL: which operator, which index, exact or by HNSW."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, LiteralString

from psycopg import errors, sql

from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.pgvector.client import Connection
from corral.providers.vector_io.pgvector.config import PgvectorConfig
from corral.providers.vector_io.pgvector.records import Tables

Operator = Literal["<=>", "<->", "<#>"]
"""pgvector's distances: cosine, L2 and minus the inner product."""

HALF_FROM = 128
"""Dimensions from which on embeddings of length 1 are indexed in half precision: the index takes
half the memory, and a search of one that outgrows the server's takes half the time. What it finds
is ordered by exact distances."""

MOST_FLOAT = 2000
"""Largest dimension that an HNSW index holds in single precision (pgvector's limit)."""
MOST_HALF = 4000
"""Largest dimension that an HNSW index holds in half precision (pgvector's limit)."""

MARGIN = 20
"""Nearest chunks that HNSW is asked for beyond k, since its order is that of half precision or of
relaxed scans; they are ordered anew by the exact distance."""

METRICS: dict[Metric, Operator] = {Metric.COSINE: "<=>", Metric.L2: "<->", Metric.DOT: "<#>"}
_CLASSES: dict[Operator, LiteralString] = {
    "<=>": "vector_cosine_ops",
    "<->": "vector_l2_ops",
    "<#>": "vector_ip_ops",
}


_INDEXED = sql.SQL("(c.indexed OR c.row < {}::bigint)")
"""The rows of a table `c` of chunks that are in the HNSW index."""
_NOT_INDEXED = sql.SQL("NOT c.indexed AND c.row >= {}::bigint")
"""The others: those that a load has written since the index was built."""

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
    """What an HNSW index holds of an embedding, and by which operator it is ordered."""

    operator: Operator
    operator_class: LiteralString
    half_dimension: int | None = None
    unit: bool = False

    def of(self, embedding: LiteralString) -> sql.Composable:
        """Return the key of an embedding, which is given as an expression."""
        key: sql.Composable = sql.SQL(embedding)
        if self.unit:
            key = sql.SQL("l2_normalize({})").format(key)
        if self.half_dimension is None:
            return key
        size = sql.Literal(self.half_dimension)
        return sql.SQL("({}::halfvec({}))").format(key, size)


class VectorSearch:
    """Makes the statements that search the embeddings of one vector DB.

    Args:
        tables: Its tables.
        exact_below_rows: Up to how many rows a search is exact.

    Attributes:
        key: What the HNSW index holds; None where there is none.
        below: Rows below it are in that index. Where another process has built it anew, the true
            number is larger: then a search compares more rows one by one than it must.
    """

    def __init__(self, tables: Tables, exact_below_rows: int) -> None:
        self._tables = tables
        self._exact_below = exact_below_rows
        vector_db = tables.vector_db
        # Unit vectors have the cosine for inner product: the cheapest operator serves all metrics.
        self._operator: Operator = "<#>" if vector_db.normalize else METRICS[vector_db.metric]
        self.key = hnsw_key(vector_db, self._operator)
        self.below = 0

    def raw_score(self, distance: float) -> float:
        """Return the raw score of a distance as pgvector's operator gives it."""
        return 1.0 - distance if self._operator == "<=>" else -distance

    def search(self, where: sql.Composable | None) -> sql.Composed:
        """Return the statement that gives (row, distance, NULL) of the nearest, in any order.

        The `k` nearest exactly, where no more than `exact_below_rows` rows pass; else `candidates`
        by HNSW, and the `k` nearest of what a load has not brought into the index yet. Where the
        scan of the index ended before that, what it found may be far: all rows are compared.

        Args:
            where: The filter, on a table `c` of chunks.
        """
        everything = where or sql.SQL("true")
        if self.key is None:
            return self._exact(everything)
        below = sql.Literal(self._exact_below)
        indexed = _INDEXED.format(sql.Literal(self.below))
        passing: sql.Composable = sql.SQL("")
        among_passing: sql.Composable = everything
        number: sql.Composable = self._tables.sql("SELECT count FROM {state}")
        if where is not None:
            passing = self._tables.sql(
                "passing AS MATERIALIZED"
                " (SELECT c.row FROM {chunks} c WHERE {where} LIMIT {below} + 1), ",
                where=where,
                below=below,
            )
            among_passing = sql.SQL("c.row IN (SELECT row FROM passing)")
            number = sql.SQL("SELECT count(*) FROM passing")
        # A part whose condition on `many` or `enough` does not hold is not run at all.
        return self._tables.sql(
            "WITH {passing}many AS MATERIALIZED (SELECT ({number}) > {below} AS yes),"
            " near AS MATERIALIZED ("
            "   SELECT c.row, c.embedding {op} %(embedding)s::vector, NULL::text[]"
            "   FROM {chunks} c WHERE (SELECT yes FROM many) AND {indexed} AND {where}"
            "   ORDER BY {key} {by} {asked} LIMIT %(candidates)s),"
            " enough AS MATERIALIZED (SELECT count(*) >= %(candidates)s AS yes FROM near)"
            " SELECT * FROM near WHERE (SELECT yes FROM enough)"
            " UNION ALL SELECT * FROM ({new}) AS new"
            " UNION ALL SELECT * FROM ({few}) AS few UNION ALL SELECT * FROM ({rest}) AS rest",
            indexed=indexed,
            new=self._exact(
                sql.SQL("(SELECT yes FROM many) AND (SELECT yes FROM enough) AND ")
                + _NOT_INDEXED.format(sql.Literal(self.below))
                + sql.SQL(" AND ")
                + everything
            ),
            passing=passing,
            number=number,
            below=below,
            op=sql.SQL(self._operator),
            where=everything,
            key=self.key.of("c.embedding"),
            by=sql.SQL(self.key.operator),
            asked=self.key.of("%(embedding)s::vector"),
            few=self._exact(sql.SQL("NOT (SELECT yes FROM many) AND ") + among_passing),
            rest=self._exact(
                sql.SQL("(SELECT yes FROM many) AND NOT (SELECT yes FROM enough) AND ") + everything
            ),
        )

    def _exact(self, where: sql.Composable) -> sql.Composed:
        return self._tables.sql(
            "SELECT row, distance, NULL::text[] FROM (SELECT c.row, c.chunk_id,"
            "   c.embedding {op} %(embedding)s::vector AS distance"
            # OFFSET 0: no index gives this order, so all rows are compared.
            "   FROM {chunks} c WHERE {where} OFFSET 0) compared"
            " ORDER BY distance, chunk_id LIMIT %(k)s",
            op=sql.SQL(self._operator),
            where=where,
        )


def hnsw_key(vector_db: VectorDB, operator: Operator) -> HnswKey | None:
    """Return what an index for these embeddings holds, None where pgvector has none for them.

    Half precision ends at 65,504: it serves embeddings of length 1, and others beyond `MOST_FLOAT`
    dimensions, made so where lengths do not count.
    """
    dimension = vector_db.embedding_dimension
    if dimension < HALF_FROM or (dimension <= MOST_FLOAT and not vector_db.normalize):
        return HnswKey(operator, _CLASSES[operator])
    if dimension > MOST_HALF or not (vector_db.normalize or operator == "<=>"):
        return None
    return HnswKey("<#>", "halfvec_ip_ops", dimension, unit=not vector_db.normalize)


async def build_hnsw(
    connection: Connection, tables: Tables, key: HnswKey, config: PgvectorConfig
) -> int:
    """Build the index on embeddings anew with all rows; return the row that it ends below.

    Writers wait meanwhile, readers do not. Where another process has just done so, does nothing.
    """
    async with connection.transaction():
        await connection.take_time()
        cursor = await connection.execute(
            tables.sql("SELECT count, next_row, loaded, hnsw_below FROM {state} FOR UPDATE")
        )
        [(count, below, loaded, built)] = await cursor.fetchall()
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
        try:
            async with connection.transaction():
                await connection.execute(create)
        except (errors.DiskFull, errors.OutOfMemory, errors.InsufficientResources):
            # Workers share memory that a container may be short of; one process needs none.
            await connection.execute("SET LOCAL max_parallel_maintenance_workers = 0")
            await connection.execute(create)
        await connection.execute(tables.sql(_TAKE_PLACE, below=sql.Literal(below)))
        return int(below)


def _bytes_to_build(count: int, tables: Tables, config: PgvectorConfig) -> int:
    """Return how much memory lets the whole index be built in memory, as far as that may go."""
    one = 4 * tables.vector_db.embedding_dimension + 32 * config.hnsw_m + 400
    return min(int(1.1 * count * one), config.hnsw_build_memory_mib * 2**20)
