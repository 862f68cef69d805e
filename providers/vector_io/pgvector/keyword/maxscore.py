"""Search in the postings: exact BM25, and common words only where they can still change the answer.

MaxScore (Turtle and Flood, "Query evaluation: strategies and optimizations", Information Processing
& Management 31(6), 1995). A first statement brings the numbers of the moment and the postings of
the rarest terms. If the k-th best score from these exceeds all that the other terms could add, a
chunk without a rare term cannot be among the best; then the common terms are looked up in the
chunks that still can. Else the postings of all terms are read. A last statement ranks these chunks,
applies the filter and brings what was asked for. Both see one state of the data.

Where a filter leaves few chunks, these are ranked by their own terms, and no postings are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from corral.providers.ranking.bm25 import K1, B, idf
from corral.providers.ranking.rows import best_rows
from corral.providers.ranking.sparse import term_key
from corral.providers.vector_io._shared.copy_format import array
from corral.providers.vector_io.pgvector.client import Connection
from corral.providers.vector_io.pgvector.keyword.postings import POSTING, Pieces, read_pieces
from corral.providers.vector_io.pgvector.records import Tables

UNIT = 2.0**32
"""Each term's share of a score is a whole number of 1 / UNIT. Sums of whole numbers do not depend
on their order, so equal texts have equal scores however they are added up; 1e-10 is lost."""

FEW_ROWS = 1000
"""Where a filter lets no more rows pass, only these are scored."""

RARE_POSTINGS = 20_000
"""Postings that the first statement brings: those of the rarest terms; 200 kB."""

MOST_LOOKED_UP = 300
"""Most chunks in which the common terms are looked up, unless a filter has chosen them."""

MOST_TERMS_LOOKED_UP = 100
"""Most terms that are looked up in a chunk."""

FIRST_ROWS = 20_000
"""Rows, best first, among which those that pass a filter are looked for first."""

# OFFSET 0: one look into the index a piece, whatever the planner thinks of new tables.
_POSTINGS = """
WITH {passing} asked AS MATERIALIZED (
    SELECT a.key, (coalesce(sum(p.size), 0) / {size})::bigint AS chunks
    FROM unnest(%(keys)s::bigint[]) a(key)
    LEFT JOIN (SELECT unnest(segments) AS block FROM {state}) b ON true
    LEFT JOIN LATERAL (SELECT octet_length(data) AS size FROM {postings} p
        WHERE p.block = b.block AND p.key = a.key OFFSET 0) p ON true
    GROUP BY a.key
), ranked AS MATERIALIZED (
    SELECT key, chunks, (sum(chunks) OVER (ORDER BY chunks, key))::bigint AS upto FROM asked
)
SELECT s.count, s.length, {rows}, r.key, r.chunks, p.block, p.data
FROM {state} s CROSS JOIN ranked r LEFT JOIN LATERAL (
    SELECT p.block, p.data FROM unnest(s.segments) b(block) CROSS JOIN LATERAL (
        SELECT * FROM {postings} p WHERE p.block = b.block AND p.key = r.key OFFSET 0) p
    WHERE r.upto <= %(budget)s::bigint AND {wanted}) p ON true
"""

_FILTER = """
passing AS MATERIALIZED (SELECT c.row FROM {chunks} c WHERE {where} LIMIT {few} + 1),
few AS MATERIALIZED (
    SELECT CASE WHEN count(*) <= {few} THEN coalesce(array_agg(row), '{{}}') END AS rows
    FROM passing),
"""

_SCORED = """
SELECT row, score FROM unnest(%(rows)s::bigint[], %(scores)s::bigint[]) u(row, score)
WHERE score > 0
"""

_LOOKED_UP = """
SELECT u.row, u.score + coalesce(more.score, 0) AS score
FROM unnest(%(rows)s::bigint[], %(scores)s::bigint[]) u(row, score) CROSS JOIN LATERAL (
    SELECT keys, frequencies, length::float8 FROM {terms} t WHERE t.row = u.row OFFSET 0
) t CROSS JOIN LATERAL (
    SELECT sum(greatest(1, round(
        weight * f / (f + {flat}::float8 + {slope}::float8 * t.length / %(average)s::float8))))
    FROM (SELECT weight, t.frequencies[array_position(t.keys, key)]::float8 AS f
        FROM unnest(%(other_keys)s::bigint[], %(other_weights)s::float8[]) o(key, weight)) o
    WHERE f IS NOT NULL
) more(score)
WHERE u.score > 0 OR more.score > 0
"""

_BEST = """
SELECT best.row, best.score / {unit}::float8 AS score, ARRAY(
    SELECT a.term FROM unnest(t.keys) held(key)
    JOIN unnest(%(keys)s::bigint[], %(terms)s::text[]) a(key, term) USING (key)
    ORDER BY a.term COLLATE "C") AS terms
FROM (
    -- From the best on, look whether a row passes, until k do; OFFSET 0 keeps this order of things.
    SELECT s.row, s.score FROM (SELECT * FROM ({scored}) u ORDER BY score DESC) s CROSS JOIN LATERAL
        (SELECT c.chunk_id FROM {chunks} c WHERE c.row = s.row AND {where} OFFSET 0) c
    ORDER BY s.score DESC, c.chunk_id LIMIT %(k)s
) best JOIN {terms} t USING (row)
"""

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Known:
    """What the first statement says.

    Attributes:
        average: Average length of a chunk.
        weights: By key, the largest share of a score, in units.
        passing: The rows that pass the filter, where they are few.
        read: Keys whose postings these are.
        pieces: Theirs.
        shares: The weight of each piece's term.
    """

    average: float
    weights: Mapping[int, float]
    passing: list[int] | None
    read: frozenset[int]
    pieces: Pieces
    shares: list[float]

    @property
    def others(self) -> dict[int, float]:
        """The weights of the terms whose postings were not read."""
        return {key: weight for key, weight in self.weights.items() if key not in self.read}

    @property
    def rest(self) -> float:
        """What these terms can add to a score at most."""
        return sum(self.others.values())

    def scores(self) -> tuple[NDArray[np.int64], Scores]:
        """Return the rows that hold one of the terms that were read, and their scores from these.

        By the one definition of BM25 (`ranking/bm25.py`).
        """
        rows, posted = self.pieces.rows, self.pieces.posted
        shares = np.repeat(np.array(self.shares, np.float64), self.pieces.sizes)
        frequency = posted["frequency"].astype(np.float64)
        norm = posted["length"].astype(np.float64)
        norm *= K1 * B
        norm /= self.average
        norm += frequency + K1 * (1.0 - B)
        shares *= frequency
        shares /= norm
        shares = np.maximum(1.0, np.rint(shares, out=shares), out=shares)
        return summed(rows, shares)


class Bm25Search:
    """One search, step by step: `statement` until `complete`.

    Args:
        tables: The tables of the vector DB.
        wanted: The terms of the query, at least one.
        where: The filter, on a table `c` of chunks.

    Attributes:
        greatest: The score that nothing can exceed, once a statement was made.
    """

    greatest: float | None = None

    def __init__(self, tables: Tables, wanted: Sequence[str], where: sql.Composable | None) -> None:
        self._tables = tables
        self._where = where
        self._terms = {term_key(term): term for term in wanted}
        self._times = Counter(map(term_key, wanted))
        self._known: Known | None = None
        self._bound: float | None = None
        self._most: int | None = FIRST_ROWS

    def complete(self, scores: Sequence[float], k: int) -> bool:
        """Return True if no other chunk can be among the best.

        Args:
            scores: What the last statement found.
            k: How many were wanted.
        """
        if self._bound is None:
            return True
        return len(scores) >= k and min(scores) * UNIT > self._bound

    async def statement(
        self, connection: Connection, parameters: Mapping[str, Any]
    ) -> tuple[sql.Composed, dict[str, Any]]:
        """Return a statement that gives (row, score, terms) of the `k` best, and its parameters.

        Each call after the first looks farther.

        Args:
            connection: In the transaction that runs the statement, too.
            parameters: `k`, and those of the filter.
        """
        known, k = self._known, int(parameters["k"])
        if known is None:
            known = await self._read(connection, parameters, RARE_POSTINGS)
        elif known.others:
            known = await self._read(connection, parameters, None)
        else:
            self._most = None
        if known.passing is not None:
            return self._ranked(known, known.passing, [0] * len(known.passing), known.others)
        rows, scores = known.scores()
        if self._needs_all(known, scores, k):
            known = await self._read(connection, parameters, None)
            rows, scores = known.scores()
        best = self._candidates(known, scores, k)
        found = scores[best].astype(np.int64).tolist()
        return self._ranked(known, rows[best].tolist(), found, known.others)

    def _needs_all(self, known: Known, scores: Scores, k: int) -> bool:
        """Return True if the common terms can change too much to look them up."""
        others, rest = known.others, known.rest
        if len(others) > MOST_TERMS_LOOKED_UP:
            return True
        if self._where is not None or not others:
            return False
        least = _at(scores, k)
        return rest >= least or int(np.sum(scores + rest >= least)) > MOST_LOOKED_UP

    def _candidates(self, known: Known, scores: Scores, k: int) -> NDArray[np.intp]:
        """Return the places of the rows to rank; note in `_bound` what any other can reach."""
        rest = known.rest
        self._bound = None
        if self._where is None:
            return np.flatnonzero(scores + rest >= _at(scores, k))
        most = MOST_LOOKED_UP if rest else self._most
        if most is None or (len(scores) <= most and not rest):
            return best_rows(scores, max(1, len(scores)))
        best = best_rows(scores, most)[:most]
        left = np.delete(scores, best)
        self._bound = rest + (float(left.max()) if len(left) else 0.0)
        return best

    def _ranked(
        self, known: Known, rows: Sequence[int], scores: Sequence[int], others: Mapping[int, float]
    ) -> tuple[sql.Composed, dict[str, Any]]:
        """Return the statement that ranks rows, given with their scores from the terms read."""
        if known.passing is not None:
            self._bound = None
        scored = self._tables.sql(
            _LOOKED_UP if others else _SCORED,
            flat=sql.Literal(K1 * (1.0 - B)),
            slope=sql.Literal(K1 * B),
        )
        statement = self._tables.sql(
            _BEST, scored=scored, where=self._where or sql.SQL("true"), unit=sql.Literal(UNIT)
        )
        return statement, {
            "rows": array(rows),
            "scores": array(scores),
            "keys": array(self._terms),
            "terms": list(self._terms.values()),
            "other_keys": array(others),
            "other_weights": array(others.values()),
            "average": known.average,
        }

    async def _read(
        self, connection: Connection, parameters: Mapping[str, Any], budget: int | None
    ) -> Known:
        """Return the numbers of the moment, with the postings of the rarest terms.

        Args:
            connection: In a transaction.
            parameters: Of the filter.
            budget: How many postings at most; None for all.
        """
        few = self._where is not None and len(self._terms) <= MOST_TERMS_LOOKED_UP
        passing: sql.Composable = sql.SQL("")
        if self._where is not None and few:
            passing = self._tables.sql(_FILTER, where=self._where, few=sql.Literal(FEW_ROWS))
        statement = self._tables.sql(
            _POSTINGS,
            passing=passing,
            size=sql.Literal(POSTING.itemsize),
            rows=sql.SQL("(SELECT rows FROM few)" if few else "NULL::bigint[]"),
            wanted=sql.SQL("(SELECT rows IS NULL FROM few)" if few else "true"),
        )
        asked = {**parameters, "keys": array(self._terms), "budget": budget or 2**62}
        async with connection.cursor(binary=True) as cursor:
            await cursor.execute(statement, asked)
            found = await cursor.fetchall()
        self._known = self._understood(found)
        return self._known

    def _understood(self, found: Sequence[tuple[Any, ...]]) -> Known:
        """Return what rows of `_POSTINGS` say."""
        count, length, passing, *_ = found[0]
        chunks = {key: held for *_, key, held, _, _ in found}
        share = idf(np.array(list(chunks.values()), np.int64), count).tolist()
        weights = {
            key: UNIT * self._times[key] * (K1 + 1.0) * one
            for key, one in zip(chunks, share, strict=True)
        }
        self.greatest = sum(weights.values()) / UNIT
        held = [(block, weights[key], data) for *_, key, _, block, data in found if data]
        absent = {key for key, number in chunks.items() if not number}
        read = frozenset(key for *_, key, _, _, data in found if data) | absent
        average = length / count if count and length else 1.0
        pieces = read_pieces([block for block, *_ in held], [data for *_, data in held])
        return Known(average, weights, passing, read, pieces, [share for _, share, _ in held])


def _at(scores: Scores, k: int) -> float:
    """Return the k-th best score, 0 where there are fewer."""
    return (
        float(np.partition(scores, len(scores) - k)[len(scores) - k]) if len(scores) >= k else 0.0
    )


def summed(rows: NDArray[np.int64], shares: Scores) -> tuple[NDArray[np.int64], Scores]:
    """Return the distinct rows, ascending, and the sum of each one's shares, all above 0."""
    if not len(rows):
        return rows, shares
    if int(rows.max()) > 8 * len(rows):  # few postings in a large table: sorting them is cheaper
        distinct, place = np.unique(rows, return_inverse=True)
        return distinct, np.asarray(np.bincount(place, weights=shares), np.float64)
    total = np.asarray(np.bincount(rows, weights=shares), np.float64)
    held = np.flatnonzero(total)
    return held, total[held]
