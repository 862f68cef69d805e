"""Vector search in SQL: which operator, which index, exact or by HNSW."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, LiteralString

from psycopg import sql

from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.pgvector.tables import Tables

Operator = Literal["<=>", "<->", "<#>"]
"""pgvector's distances: cosine, L2 and minus the inner product."""

MOST_FLOAT = 2000
"""Largest dimension that an HNSW index holds in single precision (pgvector's limit)."""
MOST_HALF = 4000
"""Largest dimension that an HNSW index holds in half precision (pgvector's limit)."""

MARGIN = 20
"""Nearest chunks that HNSW is asked for beyond k, since its order is that of half precision or of
relaxed scans; they are ordered anew by the exact distance."""

_METRICS: dict[Metric, Operator] = {Metric.COSINE: "<=>", Metric.L2: "<->", Metric.DOT: "<#>"}
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
        self._operator: Operator = "<#>" if vector_db.normalize else _METRICS[vector_db.metric]
        self.key = hnsw_key(vector_db, self._operator)

    def raw_score(self, distance: float) -> float:
        """Return the raw score of a distance as pgvector's operator gives it."""
        return 1.0 - distance if self._operator == "<=>" else -distance

    def exact(self, where: sql.Composable) -> sql.Composed:
        """Return the statement that gives (row, distance) of the `k` nearest, and ties in order."""
        return self._tables.sql(
            "SELECT c.row, c.embedding {op} %(embedding)s::vector AS distance FROM {chunks} c"
            # No index knows this expression; so all rows are compared.
            " WHERE {where} ORDER BY -(c.embedding {op} %(embedding)s::vector) DESC, c.chunk_id"
            " LIMIT %(k)s",
            op=sql.SQL(self._operator),
            where=where,
        )

    def best(self, where: sql.Composable | None) -> sql.Composed:
        """Return the statement that gives (row, distance) of about the nearest, in any order.

        At least `k` of them, exactly the nearest, where no more than `exact_below_rows` rows pass;
        else at least `wanted` by HNSW, or fewer where its scan ended early.
        """
        if self.key is None:
            return self.exact(where or sql.SQL("true"))
        parts = {"below": sql.Literal(self._exact_below), "where": where or sql.SQL("true")}
        few: sql.Composable = self._tables.sql("SELECT count FROM {state}")
        passing: sql.Composable = sql.SQL("")
        exact_where: sql.Composable = sql.SQL("true")
        if where is not None:
            few = sql.SQL("SELECT count(*) FROM passing")
            exact_where = sql.SQL("c.row IN (SELECT row FROM passing)")
            passing = self._tables.sql(
                "passing AS MATERIALIZED"
                " (SELECT c.row FROM {chunks} c WHERE {where} LIMIT {below} + 1), ",
                **parts,
            )
        # One of the branches does not run: its condition holds no column, so it is tested first.
        return self._tables.sql(
            "WITH {passing}many AS MATERIALIZED (SELECT ({few}) > {below} AS yes)"
            " (SELECT * FROM ({exact}) AS nearest)"
            " UNION ALL (SELECT c.row, c.embedding {op} %(embedding)s::vector FROM {chunks} c"
            " WHERE (SELECT yes FROM many) AND {where}"
            " ORDER BY {column} {order} {query} LIMIT %(wanted)s)",
            passing=passing,
            few=few,
            exact=self.exact(sql.SQL("NOT (SELECT yes FROM many) AND ") + exact_where),
            op=sql.SQL(self._operator),
            column=self.key.of("c.embedding"),
            order=sql.SQL(self.key.operator),
            query=self.key.of("%(embedding)s::vector"),
            **parts,
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
