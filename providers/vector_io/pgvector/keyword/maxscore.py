"""Exact BM25 search in the postings; reads common words only if they can change the answer.

MaxScore (Turtle and Flood, "Query evaluation: strategies and optimizations", Information Processing
& Management 31(6), 1995). The first statement reads the current statistics and the postings of the
rarest terms. If the k-th best score from these exceeds everything that the other terms could add, a
chunk without a rare term cannot be among the best; then the common terms are looked up only in the
remaining candidates. Otherwise the postings of more terms are read, rarest first, until this is the
case. The last statement ranks the candidates, applies the filter and returns the result. All
statements see one snapshot of the data. If only few chunks pass the filter, these are ranked by
their stored terms, and no postings are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from typing_extensions import override

from corral.api.hits import TermStatistics
from corral.providers.text.analyzer import QueryTerms
from corral.providers.text.bm25 import K1, B, idf
from corral.providers.vector_io.kit.copy_format import array
from corral.providers.vector_io.kit.rows import best_rows
from corral.providers.vector_io.kit.sparse import term_key
from corral.providers.vector_io.pgvector.client import Connection, Statement
from corral.providers.vector_io.pgvector.keyword import KeywordSearch
from corral.providers.vector_io.pgvector.keyword.postings import POSTING, Pieces, read_pieces
from corral.providers.vector_io.pgvector.keyword.scores import (
    UNIT,
    RowScores,
    Scores,
    kth_best,
    scores_of,
)
from corral.providers.vector_io.pgvector.records import Tables

LEFT_TO_LOOK_UP = (0.3, 0.0)
"""If all words are common: maximum total score of the terms to look up per chunk, as a share of the
k-th best score from the other terms. First the larger share is tried; if too many chunks can still
win, none of the terms is looked up."""

USUAL = 0.25
"""Initial guess of the k-th best score as a share of the maximum; a wrong one only costs time."""

MOST_TERMS_LOOKED_UP = 100
"""Maximum number of terms that are looked up in a chunk."""

# OFFSET 0 forces one index lookup per piece, even with misleading table statistics.
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
SELECT row, score, NULL::text[] AS terms
FROM unnest(%(rows)s::bigint[], %(scores)s::bigint[]) u(row, score) WHERE score > 0
"""

_LOOKED_UP = """
SELECT u.row, u.score + coalesce(more.score, 0) AS score, more.terms
FROM unnest(%(rows)s::bigint[], %(scores)s::bigint[]) u(row, score) CROSS JOIN LATERAL (
    SELECT keys, frequencies, length::float8 FROM {terms} t WHERE t.row = u.row OFFSET 0
) t CROSS JOIN LATERAL (
    SELECT sum(greatest(1, round(
        weight * f / (f + {flat}::float8 + {slope}::float8 * t.length / %(average)s::float8)))),
        array_agg(term)
    FROM (SELECT weight, term, t.frequencies[array_position(t.keys, key)]::float8 AS f
        FROM unnest(%(other_keys)s::bigint[], %(other_weights)s::float8[], %(other_terms)s::text[])
            o(key, weight, term)) o
    WHERE f IS NOT NULL
) more(score, terms)
WHERE u.score > 0 OR more.score > 0
"""

_BEST = """
SELECT best.row, best.score / {unit}::float8, best.terms, best.chunk_id
FROM (
    -- From the best on, look whether a row passes, until k do; OFFSET 0 keeps this order of things.
    SELECT s.row, s.score, s.terms, c.chunk_id
    FROM (SELECT * FROM ({scored}) u ORDER BY score DESC) s CROSS JOIN LATERAL
        (SELECT c.chunk_id FROM {chunks} c WHERE c.row = s.row AND {where} OFFSET 0) c
    ORDER BY s.score DESC, c.chunk_id LIMIT %(k)s
) best
"""


class Bm25Search(KeywordSearch):
    """One search, step by step: `begin`, and `statement` until `complete`.

    Args:
        tables: The tables of the vector DB.
        terms: The terms of the query, at least one.
        where: The filter, on a table `c` of chunks.
        by: The statistics to rank by; None for the vector DB's own.
    """

    _pieces: Pieces  # what `_held` selects, once the search has begun

    def __init__(
        self,
        tables: Tables,
        terms: QueryTerms,
        where: sql.Composable | None,
        by: TermStatistics | None = None,
    ) -> None:
        self._tables = tables
        self._by = by
        self._where = where
        self._query = terms
        self._terms = {term_key(term): term for term in terms.times}
        self._asked = False
        self._own = TermStatistics(0, 0)
        self._average = 1.0
        self._chunks: dict[int, int] = {}  # by key
        self._weights: dict[int, float] = {}  # by key: the maximum share of a score, in units
        self._others: dict[int, float] = {}  # the keys among these with unread postings
        self._held: list[tuple[int, int, bytes]] = []  # read pieces (block, key, postings)
        self._passing: list[int] | None = None  # the rows that pass the filter, if there are few
        self._bound: float | None = None
        self._most: int | None = tables.tuning.first_rows
        self.kept = where is None  # without a filter, only the values in its statements change

    @override
    def complete(self, scores: Sequence[float], k: int) -> bool:
        if self._bound is None:
            return True
        return len(scores) >= k and min(scores) * UNIT > self._bound

    @override
    def terms(
        self, rows: Sequence[int], told: Sequence[Sequence[str] | None]
    ) -> list[tuple[str, ...]]:
        held = {row: list(more or ()) for row, more in zip(rows, told, strict=True)}
        for row, piece in self._pieces.holding(rows):
            held[row].append(self._terms[self._held[piece][1]])
        return [tuple(sorted(held[row])) for row in rows]

    async def statistics(self, connection: Connection) -> TermStatistics:
        """Return the terms of the search, without postings."""
        await self._read(connection, {}, self._terms, 0)
        held = {self._terms[key]: number for key, number in self._chunks.items()}
        return replace(self._own, holding=held)

    @override
    async def begin(self, connection: Connection, parameters: Mapping[str, Any]) -> None:
        rare = self._tables.tuning.rare_postings
        await self._read(connection, parameters, self._terms, rare)

    @override
    async def statement(
        self, connection: Connection, parameters: Mapping[str, Any]
    ) -> tuple[Statement, dict[str, Any]]:
        k = int(parameters["k"])
        if self._asked and self._others:
            await self._read(connection, parameters, self._others)
        elif self._asked:
            self._most = None
        self._asked = True
        if self._passing is not None:
            self._bound = None
            return self._ranked(self._passing, [0] * len(self._passing))
        rows, scores = self._scores()
        for share in LEFT_TO_LOOK_UP:
            if keys := self._to_read(scores, k, share):
                await self._read(connection, parameters, keys)
                rows, scores = self._scores()
        best = self._candidates(scores, k)
        return self._ranked(rows[best].tolist(), scores[best].astype(np.int64).tolist())

    def _scores(self) -> RowScores:
        weights = [self._weights[key] for _, key, _ in self._held]
        return scores_of(self._pieces, weights, self._average)

    def _to_read(self, scores: Scores, k: int, share: float) -> list[int]:
        """Return the common terms to read next, rarest first; none if all can be looked up.

        With a filter, return all or none; otherwise so many that the rest can add only a share of
        the k-th best score.
        """
        others, least = self._others, kth_best(scores, k)
        if not self._change_much(others, scores, least):
            return []
        keys = sorted(others, key=lambda key: (self._chunks[key], key))
        if self._where is not None:
            return keys
        rest = np.cumsum([others[key] for key in reversed(keys)])[:MOST_TERMS_LOOKED_UP]
        most = share * (least or USUAL * sum(self._weights.values()))
        return keys[: max(1, len(keys) - int(np.searchsorted(rest, most, "right")))]

    def _change_much(self, others: Mapping[int, float], scores: Scores, least: float) -> bool:
        """Return True if the common terms can change too much to look them all up."""
        rest = sum(others.values())
        if len(others) > MOST_TERMS_LOOKED_UP:
            return True
        if self._where is not None or not others:
            return False
        unread = sum(self._chunks[key] for key in others)
        tuning = self._tables.tuning
        most = max(tuning.max_looked_up, unread // tuning.postings_per_look)
        return rest >= least or int(np.count_nonzero(scores + rest >= least)) > most

    def _candidates(self, scores: Scores, k: int) -> NDArray[np.intp]:
        """Return the indices of the rows to rank; set `_bound` to the maximum score of the rest."""
        rest = sum(self._others.values())
        self._bound = None
        if self._where is None:
            return np.flatnonzero(scores + rest >= kth_best(scores, k))
        most = self._tables.tuning.max_looked_up if rest else self._most
        if most is None or (len(scores) <= most and not rest):
            return best_rows(scores, max(1, len(scores)))
        best = best_rows(scores, most)[:most]
        left = np.delete(scores, best)
        self._bound = rest + (float(left.max()) if len(left) else 0.0)
        return best

    def _ranked(
        self, rows: Sequence[int], scores: Sequence[int]
    ) -> tuple[Statement, dict[str, Any]]:
        """Return the statement that ranks rows, given their scores from the read terms."""
        others = self._others
        name = "rank and look up" if others else "rank"
        statement = self._statement(name, lambda: self._ranking(looking_up=bool(others)))
        parameters: dict[str, Any] = {"rows": array(rows), "scores": array(scores)}
        if others:
            parameters |= {
                "other_keys": array(others),
                "other_weights": array(others.values()),
                "other_terms": [self._terms[key] for key in others],
                "average": self._average,
            }
        return statement, parameters

    def _statement(self, name: str, made: Callable[[], sql.Composed]) -> Statement:
        return self._tables.kept(name, made) if self.kept else Statement(made().as_bytes(None))

    def _ranking(self, *, looking_up: bool) -> sql.Composed:
        scored = self._tables.sql(
            _LOOKED_UP if looking_up else _SCORED,
            flat=sql.Literal(K1 * (1.0 - B)),
            slope=sql.Literal(K1 * B),
        )
        return self._tables.sql(
            _BEST, scored=scored, where=self._where or sql.SQL("true"), unit=sql.Literal(UNIT)
        )

    async def _read(
        self,
        connection: Connection,
        parameters: Mapping[str, Any],
        keys: Iterable[int],
        budget: int = 2**62,
    ) -> None:
        """Read the current statistics, and the postings of the rarest of these terms.

        Args:
            connection: In a transaction.
            parameters: The filter's parameters.
            keys: Keys of unread terms.
            budget: Maximum number of postings.
        """
        statement = self._statement("postings", self._reading)
        asked = {**parameters, "keys": array(keys), "budget": budget}
        self._understand(await (await connection.ask(statement, asked)).fetchall())

    def _reading(self) -> sql.Composed:
        few = self._where is not None and len(self._terms) <= MOST_TERMS_LOOKED_UP
        passing: sql.Composable = sql.SQL("")
        if self._where is not None and few:
            rows = sql.Literal(self._tables.tuning.filtered_rows)
            passing = self._tables.sql(_FILTER, where=self._where, few=rows)
        return self._tables.sql(
            _POSTINGS,
            passing=passing,
            size=sql.Literal(POSTING.itemsize),
            rows=sql.SQL("(SELECT rows FROM few)" if few else "NULL::bigint[]"),
            wanted=sql.SQL("(SELECT rows IS NULL FROM few)" if few else "true"),
        )

    def _understand(self, found: Sequence[tuple[Any, ...]]) -> None:
        """Parse the rows of `_POSTINGS`."""
        count, length, self._passing, *_ = found[0]
        self._own = TermStatistics(count, length)
        self._chunks |= {key: held for *_, key, held, _, _ in found}
        self._held += [(block, key, data) for *_, key, _, block, data in found if data]
        by = self._by or self._own
        self._average = by.average or self._own.average or 1.0
        terms = [self._terms[key] for key in self._chunks]
        frequencies = dict(zip(terms, map(by.frequency, terms, self._chunks.values()), strict=True))
        share = idf(np.array(list(frequencies.values()), np.int64), by.count).tolist()
        self._weights = {
            key: UNIT * self._query.times[term] * (K1 + 1.0) * one
            for key, term, one in zip(self._chunks, terms, share, strict=True)
        }
        read = {key for _, key, _ in self._held}
        self._others = {
            key: one for key, one in self._weights.items() if key not in read and self._chunks[key]
        }
        self.greatest = self._query.greatest(frequencies, by.count)
        blocks, data = [block for block, *_ in self._held], [data for *_, data in self._held]
        self._pieces = read_pieces(blocks, data, self._tables.tuning.block_rows)
