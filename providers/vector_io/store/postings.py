"""BM25 over SQLite's FTS5: the keyword index of SQLite, and of engines without BM25.

FTS5 stores the inverted index, transactionally; ranking follows Corral's definition of BM25
(`bm25.py`). FTS5's own `rank` is unsuitable for two reasons: it limits idf to 1e-6 for a term in
more than half of the chunks, so that all scores in a small vector DB are near zero; and it scores
every match of a common word again in each query. Here each term's postings are read once, cached as
arrays of bounded size (`cached_postings.py`), and added up. Common words stay cached. A chunk's
length is the number of its words over all fields; its frequency of a term is the sum over the
fields of weight times count. Additional terms (`beside.py`) have separate columns after those of
the words; they count half, and not in the length. A fuzzy search also takes the postings of similar
terms (`similar.py`). The vocabulary is a separate table, because extracting it from FTS5 requires
reading all postings. It only grows, so each copy in memory reads only its new words; a word without
remaining chunks has no postings and is skipped. The caller owns the connection, the transaction and
the row numbers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import apsw
import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.hits import Candidate, KeywordLeg, TermStatistics
from corral.providers.text.analyzer import ANALYZER_VERSION, analyzer
from corral.providers.text.bm25 import idf
from corral.providers.text.fields import BESIDE_WEIGHT, field_texts
from corral.providers.text.similar import MAX_SIMILAR, Vocabulary, is_word
from corral.providers.vector_io.kit.candidates import best_of
from corral.providers.vector_io.kit.max_score import TermScores, best_by_terms
from corral.providers.vector_io.kit.rows import RowSet
from corral.providers.vector_io.store.cached_postings import CachedPostings, Posting, Snapshot
from corral.providers.vector_io.store.rows import chunk_ids_of

_LAYOUT = 2  # Increase it with every change of the tables.

KEYWORD_VERSION = 10 * ANALYZER_VERSION + _LAYOUT
"""An index of another version is rebuilt: its tables or its terms differ."""


@dataclass(slots=True)  # not frozen: a query makes hundreds, and freezing doubles the cost
class KeywordHit:
    """A row with its BM25 score, above 0, and the query's terms that it contains."""

    row: int
    score: float
    terms: tuple[str, ...]


class KeywordIndex:
    """The keyword index of one vector DB. Safe to use from many threads, each with a connection.

    The file also has the tables `state`, `chunks` and `deletions` (`schema.py`), which record the
    changes.

    Args:
        field_weights: Weight by field: `content`, or a metadata key whose text (or list of texts)
            is searched too.
        language: Name of the language for stemming and stop words.
        memory_mib: Maximum memory for postings, in MiB.

    Attributes:
        columns: The names of the FTS5 table's columns.
    """

    def __init__(
        self, field_weights: Mapping[str, float], language: str, *, memory_mib: float = 64
    ) -> None:
        self._fields = tuple(field_weights)
        self._analyzer = analyzer(language)
        weights = [*field_weights.values()]
        weights += [weight * BESIDE_WEIGHT for weight in weights]
        self.columns = [f"f{number}" for number in range(len(weights))]
        self._cache = CachedPostings(weights, int(memory_mib * 2**20))
        self._vocabulary = _StoredVocabulary()

    def create(self, connection: apsw.Connection) -> None:
        """Create the tables `lexical`, `lexical_terms` and `lexical_words`, empty."""
        columns = ", ".join(self.columns)
        # Terms are already analyzed: the ascii tokenizer only splits them at spaces.
        connection.execute(
            f"CREATE VIRTUAL TABLE lexical USING fts5({columns}, content='',"
            " contentless_delete=1, tokenize='ascii')"
        )
        connection.execute("CREATE VIRTUAL TABLE lexical_terms USING fts5vocab(lexical, row)")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS lexical_words"
            " (number INTEGER PRIMARY KEY AUTOINCREMENT, word TEXT NOT NULL UNIQUE) STRICT"
        )
        connection.execute("DELETE FROM lexical_words")

    def drop(self, connection: apsw.Connection) -> None:
        """Drop the tables except the vocabulary, because its numbers must never be reused."""
        connection.execute("DROP TABLE IF EXISTS lexical_terms")
        connection.execute("DROP TABLE IF EXISTS lexical")

    def analyze(self, chunk: Chunk) -> tuple[str, ...]:
        """Return a chunk's terms for `add`, one string per column: words, then other terms."""
        fields = [self._analyzer.analyze(text) for text in field_texts(chunk, self._fields)]
        words = [" ".join(field.words) for field in fields]
        return (*words, *(" ".join(field.beside) for field in fields))

    def add(self, connection: apsw.Connection, rows: Iterable[tuple[int, tuple[str, ...]]]) -> None:
        """Index new rows, with the results of `analyze`."""
        rows = list(rows)
        marks = ", ".join("?" for _ in self.columns)
        columns = ", ".join(self.columns)
        connection.executemany(
            f"INSERT INTO lexical(rowid, {columns}) VALUES (?, {marks})",  # noqa: S608 - columns are f0, f1, ...
            ((row, *terms) for row, terms in rows),
        )
        words = {term for _, fields in rows for field in fields for term in field.split(" ")}
        # As one array: most words exist already, and a call for each would cost more.
        connection.execute(
            "INSERT OR IGNORE INTO lexical_words(word) SELECT value FROM json_each(?)",
            (json.dumps(sorted(filter(is_word, words))),),
        )

    def delete(self, connection: apsw.Connection, rows: Sequence[int]) -> None:
        """Remove rows."""
        connection.executemany("DELETE FROM lexical WHERE rowid = ?", ((row,) for row in rows))

    def candidates(
        self,
        connection: apsw.Connection,
        query: str,
        k: int,
        allowed: RowSet | None,
        by: TermStatistics | None = None,
        *,
        fuzzy: bool = False,
    ) -> KeywordLeg:
        """Return the k best chunks, ties by id; arguments and errors as for `search`."""
        hits, most = self.search(connection, query, k, allowed, by, fuzzy=fuzzy)
        ids = chunk_ids_of(connection, [hit.row for hit in hits])
        found = (Candidate(ids[hit.row], hit.score, matched_terms=hit.terms) for hit in hits)
        return KeywordLeg(best_of(found, k), most)

    def search(
        self,
        connection: apsw.Connection,
        query: str,
        k: int,
        allowed: RowSet | None = None,
        by: TermStatistics | None = None,
        *,
        fuzzy: bool = False,
    ) -> tuple[list[KeywordHit], float]:
        """Return the best rows that contain a term of the query, and those tied with the last.

        Args:
            connection: In a read transaction, so that all terms are read from one snapshot.
            query: Any text; its terms are joined by OR, and repeated terms count repeatedly.
            k: Number of rows, >= 1; more are returned if scores tie.
            allowed: The rows that may be returned; None for all.
            by: The statistics to rank by; None for the index's own.
            fuzzy: If True, a term also matches similar terms; `similar.py` has the rules.

        Returns:
            Hits, best first, ties in ascending order of rows; and the maximum possible score
            (`bm25.greatest`), in which similar terms replace a term without rows.

        Raises:
            StaleRead: The state in memory is newer than the transaction.
        """
        now = self._cache.follow(connection)
        own = TermStatistics(now.state.count, now.total)
        by = by or own
        terms = self._analyzer.query(query)
        postings = dict(self._postings_of(connection, now, terms.times, fuzzy=fuzzy))
        weights = self._cache.weights(by.average or own.average)
        scores = {term: _scores(found, weights) for term, found in postings.items()}
        parts = {term: _as_one(term, scores[term], by, terms.times[term]) for term in scores}
        most = terms.greatest({term: number for term, (_, number) in parts.items()}, by.count)
        held = [part for part, _ in parts.values() if len(part.rows)]
        if not held:
            return [], most
        rows, best = best_by_terms(held, k, allowed)
        words = {word: one for found in scores.values() for word, (one, _) in found.items()}
        matched = _matched(dict(sorted(words.items())), rows)
        return list(map(KeywordHit, rows.tolist(), best.tolist(), matched)), most

    def statistics(
        self, connection: apsw.Connection, query: str, *, fuzzy: bool = False
    ) -> TermStatistics:
        """Return the statistics by which `search` ranks a query; arguments and errors as there."""
        now = self._cache.follow(connection)
        holding: dict[str, int] = {}
        similar: dict[str, int] = {}
        wanted = self._analyzer.query(query).times
        for term, postings in self._postings_of(connection, now, wanted, fuzzy=fuzzy):
            holding[term] = len(postings[term][0].rows) if term in postings else 0
            if fuzzy:
                rows = [posting.rows for posting, _ in postings.values()]
                similar[term] = len(np.unique(np.concatenate(rows))) if rows else 0
        return TermStatistics(now.state.count, now.total, holding, similar)

    def _postings_of(
        self,
        connection: apsw.Connection,
        now: Snapshot,
        wanted: Iterable[str],
        *,
        fuzzy: bool,
    ) -> Iterator[tuple[str, dict[str, tuple[Posting, float]]]]:
        """Yield each term, in order, with the postings and similarities of the terms it matches."""
        similar = self._vocabulary.of(connection).similar(wanted) if fuzzy else {}
        for term in sorted(wanted):
            yield term, self._held(connection, now, [(term, 1.0), *similar.get(term, ())])

    def _held(
        self,
        connection: apsw.Connection,
        now: Snapshot,
        terms: Iterable[tuple[str, float]],
    ) -> dict[str, tuple[Posting, float]]:
        """Return postings and similarities of the first terms that occur in any row."""
        found: dict[str, tuple[Posting, float]] = {}
        for term, similarity in terms:
            posting = self._cache.posting(connection, now, term)
            if len(posting.rows):
                found[term] = posting, similarity
            if len(found) == MAX_SIMILAR:
                break
        return found

    def forget(self) -> None:
        """Release the memory, for a file that was replaced by another."""
        self._cache.forget()


_NO_SCORES = TermScores.of(np.empty(0, np.int64), np.empty(0))


class _StoredVocabulary:
    """Caches the vocabulary; words of a newer state than the reader's do no harm."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._words = Vocabulary()

    def of(self, connection: apsw.Connection) -> Vocabulary:
        """Return the vocabulary with all words that the connection sees."""
        new = "SELECT number, word FROM lexical_words WHERE number > ? ORDER BY number"
        with self._lock:
            if found := connection.execute(new, (self._last,)).fetchall():
                self._words.add(str(word) for _, word in found)
                self._last = int(str(found[-1][0]))
        return self._words


def _scores(
    postings: Mapping[str, tuple[Posting, float]], weights: NDArray[np.float64]
) -> dict[str, tuple[TermScores, float]]:
    """Return postings with the weights of their rows, as `TermScores`."""
    return {
        word: (TermScores.of(posting.rows, weights, posting.shapes), similarity)
        for word, (posting, similarity) in postings.items()
    }


def _as_one(
    term: str,
    found: Mapping[str, tuple[TermScores, float]],
    by: TermStatistics,
    times: int,
) -> tuple[TermScores, int]:
    """Return the scores of the rows with a query term or a similar one, and the document frequency.

    This is the number of rows with the term, or with a similar one if no row has the term.
    """
    own, count = found[term][0] if term in found else _NO_SCORES, by.count
    frequency = by.frequency(term, len(own.rows))
    if len(found) == (term in found):
        return own.times(idf(frequency, count) * times), frequency
    every = np.concatenate([posting.rows for posting, _ in found.values()])
    worth = np.concatenate([posting.scores() * share for posting, share in found.values()])
    order = np.argsort(every, kind="stable")
    rows, starts = np.unique(every[order], return_index=True)
    similar = by.similar_frequency(term, len(rows))
    scores = np.maximum.reduceat(worth[order], starts) * (idf(similar, count) * times)
    if term in found:
        place = np.searchsorted(rows, own.rows)
        exact = own.scores() * (idf(frequency, count) * times)
        scores[place] = np.maximum(scores[place], exact)
    return TermScores.of(rows, scores), frequency or similar


def _matched(found: Mapping[str, TermScores], rows: NDArray[np.integer]) -> list[tuple[str, ...]]:
    """Return the terms that each row contains, in their order."""
    held: list[list[str]] = [[] for _ in range(len(rows))]
    for term, posting in found.items():
        for place in np.flatnonzero(posting.find(rows)[1]).tolist():
            held[place].append(term)
    return list(map(tuple, held))
