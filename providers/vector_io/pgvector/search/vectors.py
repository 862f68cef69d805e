"""Vector search in SQL: the operator, and the choice between exact search and HNSW."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from psycopg import sql

from corral.api.scoring import Metric
from corral.providers.vector_io.pgvector.client import Database, Row, Statement
from corral.providers.vector_io.pgvector.records import Tables
from corral.providers.vector_io.pgvector.search.hnsw import HnswIndex, HnswKey, Operator, hnsw_key

SCANNED = 0.01
"""HNSW is used only if this share of the nearest rows is expected to contain enough rows that pass
the filter; beyond it, the index returns them in poor order. At least `hnsw_ef_search` rows, which
one walk finds, and at most `hnsw_max_scan_tuples`."""

MARGIN = 20
"""Nearest chunks requested from HNSW beyond k, because half precision and relaxed scans only
approximate the order; they are sorted by exact distance."""

METRICS: dict[Metric, Operator] = {Metric.COSINE: "<=>", Metric.L2: "<->", Metric.DOT: "<#>"}

_INDEXED = sql.SQL("(c.indexed OR c.row < {}::bigint)")
"""The rows of a table `c` of chunks that are in the HNSW index."""
_NOT_INDEXED = sql.SQL("NOT c.indexed AND c.row >= {}::bigint")
"""The other rows: those that bulk loads have written since the last build."""

_STATE = "(SELECT ARRAY[hnsw_below, loaded, count, {below}] FROM {state})"

# If all rows are in the index; one plan suits every embedding.
_NEAR = """
SELECT c.row, c.embedding {operator} %(embedding)s::vector, {told}, c.chunk_id
FROM {chunks} c WHERE {indexed} ORDER BY {key} {by} {asked} LIMIT {candidates}
"""

_ANY = "SELECT found.row, found.distance, {told}, found.chunk_id FROM ({found}) found"

# OFFSET 0: no index provides this order, so all rows are compared.
_EXACT = """
SELECT row, distance, chunk_id FROM (
    SELECT c.row, c.chunk_id, c.embedding {operator} %(embedding)s::vector AS distance
    FROM {chunks} c WHERE {where} OFFSET 0) compared
ORDER BY distance, chunk_id LIMIT %(k)s
"""

_PASSING = """
passing AS MATERIALIZED (SELECT c.row FROM {chunks} c WHERE {where} LIMIT {most} + 1),
"""

# A part whose condition on `many` or `enough` does not hold is not run at all.
_BY_HNSW = """
WITH {passing} many AS MATERIALIZED (SELECT ({number}) > {most} AS yes),
near AS MATERIALIZED (
    SELECT c.row, c.embedding {operator} %(embedding)s::vector AS distance, c.chunk_id
    FROM (SELECT c.* FROM {chunks} c WHERE (SELECT yes FROM many) AND {indexed}
        ORDER BY {key} {by} {asked} LIMIT greatest({depth}, 4 * %(candidates)s)) c
    WHERE {where} LIMIT %(candidates)s),
enough AS MATERIALIZED (SELECT count(*) >= %(candidates)s AS yes FROM near)
SELECT * FROM near WHERE (SELECT yes FROM enough)
UNION ALL SELECT * FROM ({new}) AS new
UNION ALL SELECT * FROM ({few}) AS few
UNION ALL SELECT * FROM ({rest}) AS rest
"""
_NEW = "(SELECT yes FROM many) AND (SELECT yes FROM enough) AND {not_indexed} AND {where}"
_FEW = "NOT (SELECT yes FROM many) AND {among}"
_REST = "(SELECT yes FROM many) AND NOT (SELECT yes FROM enough) AND {where}"


class VectorSearch:
    """Builds the statements that search the embeddings of one vector DB.

    Args:
        tables: Its tables.
        database: The provider's connections.

    Attributes:
        hnsw: The HNSW index on the embeddings.
    """

    def __init__(self, tables: Tables, database: Database) -> None:
        self._tables = tables
        self._config = database.config
        self._most = sql.Literal(database.config.exact_below_rows)
        vector_db = tables.vector_db
        # For unit vectors the inner product is the cosine, so the cheapest operator suffices.
        self._operator: Operator = "<#>" if vector_db.normalize else METRICS[vector_db.metric]
        self.hnsw = HnswIndex(tables, hnsw_key(vector_db, self._operator), database)

    def raw_score(self, distance: float) -> float:
        """Return the raw score for a distance of pgvector's operator."""
        return 1.0 - distance if self._operator == "<=>" else -distance

    def searches(self, where: sql.Composable | None, candidates: int) -> Iterator[Statement]:
        """Yield statements that select (row, distance, state, chunk_id) of the nearest rows.

        The last compares all rows. The earlier ones are cheaper; `suffices` checks their results.

        Args:
            where: The filter, on a table `c` of chunks.
            candidates: Number of candidates for HNSW.
        """
        hnsw = self.hnsw
        if where is None and hnsw.key is not None and hnsw.holds_all:
            name, key = f"near {candidates} {hnsw.below}", hnsw.key
            yield self._tables.kept(name, lambda: self._near(key, candidates))
        found = self._tables.sql(_ANY, found=self._any(where), told=self._told())
        yield Statement(found.as_bytes(None))
        every = self._exact(where or sql.SQL("true"))
        yield Statement(self._tables.sql(_ANY, found=every, told=self._told()).as_bytes(None))

    def suffices(self, statement: Statement, found: Sequence[Row], candidates: int) -> bool:
        """Return True if these rows are the nearest; record their state of the HNSW index.

        Args:
            statement: From `searches`.
            found: The statement's rows.
            candidates: As for `searches`.
        """
        below, asked = 0, -1
        if found:
            below, loaded, count, asked = found[0][2]
            self.hnsw.notice(below, loaded, count)
        distances = sorted(row[1] for row in found)
        if len(distances) >= candidates and ties(distances[:candidates]):
            return False
        if not statement.kept:
            return True
        # The indexed rows may have changed since the statement was built.
        enough = len(found) == candidates and below == asked and self.hnsw.holds_all
        self.hnsw.holds_all &= enough
        return enough

    def _told(self) -> sql.Composed:
        """Return the state of the HNSW index, and the row limit that the statement assumed."""
        return self._tables.sql(_STATE, below=sql.Literal(self.hnsw.below))

    def _near(self, key: HnswKey, candidates: int) -> sql.Composed:
        return self._tables.sql(
            _NEAR,
            operator=sql.SQL(self._operator),
            told=self._told(),
            indexed=_INDEXED.format(sql.Literal(self.hnsw.below)),
            key=key.of("c.embedding"),
            by=sql.SQL(key.operator),
            asked=key.of("%(embedding)s::vector"),
            candidates=sql.Literal(candidates),
        )

    def _any(self, where: sql.Composable | None) -> sql.Composed:
        """Return a statement that selects (row, distance, chunk_id) in all cases.

        It selects the `k` nearest exactly if at most `exact_below_rows` rows pass; otherwise
        `candidates` by HNSW, and the `k` nearest of the rows outside the index. If the index scan
        ended early, its results may be far away, so all rows are compared.
        """
        key, config = self.hnsw.key, self._config
        if key is None:
            return self._exact(where or sql.SQL("true"))
        passing: sql.Composable = sql.SQL("")
        number: sql.Composable = self._tables.sql("SELECT count FROM {state}")
        among: sql.Composable = sql.SQL("true")
        if where is not None:
            passing = self._tables.sql(_PASSING, where=where, most=self._most)
            number = sql.SQL("SELECT count(*) FROM passing")
            among = sql.SQL("c.row IN (SELECT row FROM passing)")
        where = where or sql.SQL("true")
        below = sql.Literal(self.hnsw.below)
        depth = min(int(SCANNED * self.hnsw.below), config.hnsw_max_scan_tuples)
        new = sql.SQL(_NEW).format(not_indexed=_NOT_INDEXED.format(below), where=where)
        return self._tables.sql(
            _BY_HNSW,
            passing=passing,
            number=number,
            most=self._most,
            operator=sql.SQL(self._operator),
            indexed=_INDEXED.format(below),
            where=where,
            key=key.of("c.embedding"),
            by=sql.SQL(key.operator),
            asked=key.of("%(embedding)s::vector"),
            depth=sql.Literal(max(depth, config.hnsw_ef_search)),
            new=self._exact(new),
            few=self._exact(sql.SQL(_FEW).format(among=among)),
            rest=self._exact(sql.SQL(_REST).format(where=where)),
        )

    def _exact(self, where: sql.Composable) -> sql.Composed:
        return self._tables.sql(_EXACT, operator=sql.SQL(self._operator), where=where)


def ties(distances: Sequence[float]) -> bool:
    """Return True if the k-th of k + `MARGIN` distances equals the last, so that more rows may tie.

    Args:
        distances: Ascending.
    """
    return distances[-1] <= distances[-1 - MARGIN]
