"""BM25 over SQLite's FTS5: the keyword index of SQLite and of engines without one of our kind.

FTS5 stores the inverted index, transactionally, and computes the saturated term weights; the
ranking is Corral's one definition of BM25 (`bm25.py`). FTS5's own `rank` is not used as it stands,
for two reasons: its idf is cut off at 1e-6 for a term that more than half of the chunks hold, so
that in a small vector DB every score is next to nothing; and it scores every match of a common
word anew in each query. Here each term's postings are read once, kept in a bounded memory of
arrays until the next write, and added up. Common words are the ones that stay there.

A chunk's length is the number of its terms over all fields; its frequency of a term is the sum over
the fields of weight times count.

The caller owns the connection, the transaction and the row numbers.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import apsw
import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.providers.vector_io.bm25 import idf
from corral.providers.vector_io.fields import field_texts
from corral.providers.vector_io.rows import RowSet, best_rows
from corral.providers.vector_io.text import analyzer

_FTS5_SMALLEST_IDF = 1e-6
_POSTING = np.dtype([("row", np.int64), ("weight", np.float64)])


@dataclass(frozen=True, slots=True)
class LexicalHit:
    """A row with its BM25 score, above 0, and the query's terms that it holds."""

    row: int
    score: float
    terms: tuple[str, ...]


class LexicalIndex:
    """The keyword index of one vector DB. Safe to use from many threads, each with a connection.

    Args:
        field_weights: Weight by field: `content`, or a metadata key whose text (or list of texts)
            is searched too.
        language: Name of the language for stemming and stop words.
        memory_mib: Bound of the postings kept in memory, in MiB.
    """

    def __init__(
        self, field_weights: Mapping[str, float], language: str, *, memory_mib: float = 64
    ) -> None:
        self._fields = tuple(field_weights)
        self._weights = tuple(field_weights.values())
        self._analyzer = analyzer(language)
        self._kept = _Postings(int(memory_mib * 2**20))

    def create(self, connection: apsw.Connection) -> None:
        """Make the tables `lexical` and `lexical_terms`, empty."""
        columns = ", ".join(f"f{number}" for number in range(len(self._fields)))
        # Terms come analyzed: the ascii tokenizer splits them at spaces and changes nothing else.
        connection.execute(
            f"CREATE VIRTUAL TABLE lexical USING fts5({columns}, content='',"
            " contentless_delete=1, tokenize='ascii')"
        )
        connection.execute("CREATE VIRTUAL TABLE lexical_terms USING fts5vocab(lexical, row)")

    def drop(self, connection: apsw.Connection) -> None:
        """Drop the tables."""
        connection.execute("DROP TABLE IF EXISTS lexical_terms")
        connection.execute("DROP TABLE IF EXISTS lexical")

    def analyze(self, chunk: Chunk) -> tuple[str, ...]:
        """Return a chunk's terms, one string a field, as `add` takes them. No connection needed."""
        return tuple(
            " ".join(self._analyzer.terms(text)) for text in field_texts(chunk, self._fields)
        )

    def add(self, connection: apsw.Connection, rows: Iterable[tuple[int, tuple[str, ...]]]) -> None:
        """Index new rows, given with what `analyze` returned for them."""
        marks = ", ".join("?" for _ in self._fields)
        columns = ", ".join(f"f{number}" for number in range(len(self._fields)))
        connection.executemany(
            f"INSERT INTO lexical(rowid, {columns}) VALUES (?, {marks})",  # noqa: S608 - numbers
            ((row, *terms) for row, terms in rows),
        )

    def delete(self, connection: apsw.Connection, rows: Sequence[int]) -> None:
        """Remove rows."""
        connection.executemany("DELETE FROM lexical WHERE rowid = ?", ((row,) for row in rows))

    def search(
        self,
        connection: apsw.Connection,
        query: str,
        k: int,
        *,
        count: int,
        version: int,
        allowed: RowSet | None = None,
    ) -> list[LexicalHit]:
        """Return the best rows that hold a term of the query, and those tied with the last.

        Args:
            connection: In a read transaction, so that all terms are of one state.
            query: Any text; its terms are joined by OR, a repeated one counts as often.
            k: How many rows are wanted, >= 1; more are returned where scores tie.
            count: Number of rows in the index, for idf.
            version: A number that every write changes; postings of another one are forgotten.
            allowed: The rows that may be returned; None for all.

        Returns:
            Hits, best first; ties in ascending order of rows.
        """
        wanted = Counter(self._analyzer.terms(query))
        found = {
            term: postings
            for term in sorted(wanted)
            if len((postings := self._postings(connection, term, count, version)).rows)
        }
        if not found:
            return []
        rows, scores = _add_up(
            [postings.rows for postings in found.values()],
            [p.weights * (idf(len(p.rows), count) * wanted[term]) for term, p in found.items()],
        )
        if allowed is not None:
            passing = allowed.mask(rows)
            rows, scores = rows[passing], scores[passing]
        best = best_rows(scores, k)
        terms = _matched(found, rows[best])
        return [
            LexicalHit(int(row), float(score), held)
            for row, score, held in zip(rows[best], scores[best], terms, strict=True)
        ]

    def _postings(
        self, connection: apsw.Connection, term: str, count: int, version: int
    ) -> _Posting:
        kept = self._kept.get(term, version)
        if kept is None:
            kept = self._read(connection, term, count)
            self._kept.put(term, version, kept)
        return kept

    def _read(self, connection: apsw.Connection, term: str, count: int) -> _Posting:
        """Read a term's rows and their saturated weights f (k1 + 1) / (f + k1 (...)) from FTS5.

        For a query of one term FTS5's bm25() is minus its own idf times that weight, with k1 and b
        of 1.2 and 0.75, which are ours too; so the weight is that number divided by FTS5's idf.
        """
        weights = ", ".join(map(repr, self._weights))
        cursor = connection.execute(
            f"SELECT rowid, bm25(lexical, {weights}) FROM lexical WHERE lexical MATCH ?",  # noqa: S608 - checked numbers
            (f'"{term}"',),
        )
        table = np.fromiter(cursor, dtype=_POSTING)
        holding = len(table)
        theirs = math.log((count - holding + 0.5) / (holding + 0.5)) if holding else 1.0
        return _Posting(table["row"].copy(), table["weight"] / -max(theirs, _FTS5_SMALLEST_IDF))


@dataclass(frozen=True, slots=True)
class _Posting:
    """Rows that hold a term, ascending, and the term's saturated weight in each."""

    rows: NDArray[np.int64]
    weights: NDArray[np.float64]

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.weights.nbytes + 200  # 200: objects and key, about


class _Postings:
    """The postings of the terms used last, of one version of the index, within a bound."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held = 0
        self._version = -1
        self._terms: OrderedDict[str, _Posting] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, term: str, version: int) -> _Posting | None:
        with self._lock:
            if version != self._version or term not in self._terms:
                return None
            self._terms.move_to_end(term)
            return self._terms[term]

    def put(self, term: str, version: int, posting: _Posting) -> None:
        with self._lock:
            if version < self._version or (version == self._version and term in self._terms):
                return
            if version > self._version:
                self._terms.clear()
                self._version, self._held = version, 0
            self._terms[term] = posting
            self._held += posting.nbytes
            while self._held > self._most:
                self._held -= self._terms.popitem(last=False)[1].nbytes


def _add_up(
    rows: Sequence[NDArray[np.int64]], scores: Sequence[NDArray[np.float64]]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Sum the scores of each row; both ways add in the order of the terms, so they agree."""
    all_rows, all_scores = np.concatenate(rows), np.concatenate(scores)
    largest = int(max(part[-1] for part in rows))
    if largest > 8 * len(all_rows):  # few postings in a large index: sorting them is cheaper
        distinct, place = np.unique(all_rows, return_inverse=True)
        return distinct, np.asarray(np.bincount(place, weights=all_scores), dtype=np.float64)
    total = np.asarray(np.bincount(all_rows, weights=all_scores), dtype=np.float64)
    held = np.flatnonzero(total > 0)
    return held, total[held]


def _matched(found: Mapping[str, _Posting], rows: NDArray[np.int64]) -> list[tuple[str, ...]]:
    held = {
        term: posting.rows[np.searchsorted(posting.rows, rows).clip(max=len(posting.rows) - 1)]
        == rows
        for term, posting in found.items()
    }
    return [tuple(term for term, here in held.items() if here[place]) for place in range(len(rows))]
