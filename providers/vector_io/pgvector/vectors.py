"""Vector search in SQL: which operator, which index, exact or by HNSW."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, LiteralString

from psycopg import sql

from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.pgvector.client import Connection
from corral.providers.vector_io.pgvector.config import PgvectorConfig
from corral.providers.vector_io.pgvector.records import Tables

Operator = Literal["<=>", "<->", "<#>"]
"""pgvector's distances: cosine, L2 and minus the inner product."""

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
    """

    def __init__(self, tables: Tables, exact_below_rows: int) -> None:
        self._tables = tables
        self._exact_below = exact_below_rows
        vector_db = tables.vector_db
        # Unit vectors have the cosine for inner product: the cheapest operator serves all metrics.
        self._operator: Operator = "<#>" if vector_db.normalize else METRICS[vector_db.metric]
        self.key = hnsw_key(vector_db, self._operator)

    def raw_score(self, distance: float) -> float:
        """Return the raw score of a distance as pgvector's operator gives it."""
        return 1.0 - distance if self._operator == "<=>" else -distance

    def search(self, where: sql.Composable | None) -> sql.Composed:
        """Return the statement that gives (row, distance, NULL) of the nearest, in any order.

        The `k` nearest exactly, where no more than `exact_below_rows` rows pass; else `candidates`
        by HNSW, or at least `k`. Where its scan ended before that, all rows are compared after all.

        Args:
            where: The filter, on a table `c` of chunks.
        """
        everything = where or sql.SQL("true")
        if self.key is None:
            return self._exact(everything)
        below = sql.Literal(self._exact_below)
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
            "   FROM {chunks} c WHERE (SELECT yes FROM many) AND {where}"
            "   ORDER BY {key} {by} {asked} LIMIT %(candidates)s),"
            " enough AS MATERIALIZED (SELECT count(*) >= %(k)s AS yes FROM near)"
            " SELECT * FROM near WHERE (SELECT yes FROM enough)"
            " UNION ALL SELECT * FROM ({few}) AS few UNION ALL SELECT * FROM ({rest}) AS rest",
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
            "SELECT row, distance, NULL::text[], NULL::float8 FROM (SELECT c.row, c.chunk_id,"
            "   c.embedding {op} %(embedding)s::vector AS distance"
            # OFFSET 0: no index gives this order, so all rows are compared.
            "   FROM {chunks} c WHERE {where} OFFSET 0) compared"
            " ORDER BY distance, chunk_id LIMIT %(k)s",
            op=sql.SQL(self._operator),
            where=where,
        )


def hnsw_key(vector_db: VectorDB, operator: Operator) -> HnswKey | None:
    """Return what an index for these embeddings holds, None where pgvector has none for them.

    Half precision ends at 65,504: beyond `MOST_FLOAT` dimensions only embeddings of length 1 are
    indexed, or made so where lengths do not count.
    """
    dimension = vector_db.embedding_dimension
    if dimension <= MOST_FLOAT:
        return HnswKey(operator, _CLASSES[operator])
    if dimension > MOST_HALF or not (vector_db.normalize or operator == "<=>"):
        return None
    return HnswKey("<#>", "halfvec_ip_ops", dimension, unit=not vector_db.normalize)


async def build_hnsw(
    connection: Connection, tables: Tables, key: HnswKey, config: PgvectorConfig
) -> None:
    """Make the index on embeddings where it is absent. Writers wait meanwhile, readers do not."""
    async with connection.transaction():
        await connection.take_time()
        await connection.execute(tables.sql("SELECT FROM {state} FOR UPDATE"))
        await connection.execute(
            tables.sql(
                "CREATE INDEX IF NOT EXISTS {hnsw} ON {chunks} USING hnsw ({key} {operators})"
                " WITH (m = {m}, ef_construction = {construction})",
                key=key.of("embedding"),
                operators=sql.SQL(key.operator_class),
                m=sql.Literal(config.hnsw_m),
                construction=sql.Literal(config.hnsw_ef_construction),
            )
        )
