"""The smallest correct index: a dict, brute force, and one JSON file that is replaced whole.

It shows that the conformance suite can be passed, and is what the broken indexes are made from.
"""

from __future__ import annotations

import difflib
import fcntl
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.chunks import Chunk
from corral.api.engine import Engine
from corral.api.engine_index import EngineIndex
from corral.api.filters import Filter, matches
from corral.api.hits import Candidate, KeywordLeg, TermStatistics
from corral.api.provider import ALL_FILTERS, Capabilities
from corral.api.scoring import Metric
from corral.api.vector_dbs import VectorDB
from corral.providers.text.analyzer import analyzer
from corral.providers.text.bm25 import greatest, idf, term_weight
from corral.providers.text.fields import BESIDE_WEIGHT

CAPABILITIES = Capabilities(
    vector="native", keyword="native", hybrid="emulated", metrics=("cosine", "l2", "dot"),
    filter_operators=ALL_FILTERS, max_dimension=16_000, exact=True, persistent=True,
    concurrent_processes=True, transactional=True, fuzzy=True,
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A stored chunk: its embedding, and the weighted count and number of its terms."""

    chunk: Chunk
    row: NDArray[np.float32]
    frequency: Mapping[str, float]
    length: int


Entries = dict[str, Entry]


class ToyEngine(Engine):
    """Chunks by id, in memory and in a file; the file's first line changes with every write."""

    has_term_statistics = True
    index_class: ClassVar[type[EngineIndex]] = EngineIndex

    def __init__(self, vector_db: VectorDB, folder: Path) -> None:
        super().__init__(vector_db)
        self._path = folder / (self._file_name(vector_db.identifier) + vector_db.installation)
        self._version = ""
        self._entries: Entries = {}
        self._terms = analyzer(vector_db.language).terms
        self._analyze = analyzer(vector_db.language).analyze

    def _file_name(self, identifier: str) -> str:
        return hashlib.sha256(identifier.encode()).hexdigest()

    # --- the calls of an engine --------------------------------------------------------------

    @override
    async def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        with self._locked():
            entries = self._without(self._load(), replace_documents)
            for chunk, row in zip(chunks, embeddings, strict=True):
                entries[chunk.chunk_id] = self._entry(chunk, row)
            self._save(entries)

    @override
    async def search_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        entries = self._load()
        if not entries:
            return []
        rows = np.array([entry.row for entry in entries.values()])
        raw = self._compare(rows, embedding).tolist()
        return self._best(dict(zip(entries, raw, strict=True)), k, entries, filters)

    @override
    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        entries = self._load()
        if by is not None:
            raw = self._bm25_by(by, sorted(self._terms(query_string)), entries)
            return self._best(raw, k, entries, filters)
        terms = sorted(set(self._terms(query_string)))
        best = self._best(self._bm25(terms, entries), k, entries, filters)
        return KeywordLeg(best, self._greatest(terms, entries))

    @override
    async def term_statistics(self, query_string: str, fuzzy: bool) -> TermStatistics:
        entries = self._load()
        holding = {
            term: sum(term in entry.frequency for entry in entries.values())
            for term in self._terms(query_string)
        }
        return TermStatistics(len(entries), sum(e.length for e in entries.values()), holding)

    @override
    async def search_fuzzy(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        entries = self._load()
        vocabulary = {term for entry in entries.values() for term in entry.frequency}
        near = (
            [term] if term in vocabulary else difflib.get_close_matches(term, vocabulary, 3, 0.8)
            for term in self._terms(query_string)
        )
        terms = sorted({term for found in near for term in found})
        best = self._best(self._bm25(terms, entries), k, entries, filters)
        return KeywordLeg(best, self._greatest(terms, entries))

    @override
    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        entries = self._load()
        found = [entries[i] for i in chunk_ids if i in entries]
        return [
            e.chunk.model_copy(
                update={"embedding": e.row.tolist() if include_embeddings else None}, deep=True
            )
            for e in found
        ]

    @override
    async def delete(self, chunk_ids: Sequence[str]) -> None:
        with self._locked():
            gone = set(chunk_ids)
            self._save({i: e for i, e in self._load().items() if i not in gone})

    @override
    async def count(self) -> int:
        return len(self._load())

    @override
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return sorted(i for i in self._load() if i > after)[:limit]

    @override
    async def drop(self) -> None:
        self._path.unlink(missing_ok=True)

    # --- how ---------------------------------------------------------------------------------

    def _without(self, entries: Entries, documents: frozenset[str]) -> Entries:
        return {i: e for i, e in entries.items() if e.chunk.document_id not in documents}

    def _compare(
        self, rows: NDArray[np.float32], query: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        a, b = rows.astype(np.float64), query.astype(np.float64)
        if self.vector_db.metric is Metric.L2 and not self.vector_db.normalize:
            squares: NDArray[np.float64] = ((a - b) ** 2).sum(axis=1)
            return -np.sqrt(squares)
        raw: NDArray[np.float64] = (a * b).sum(axis=1)
        if self.vector_db.metric is not Metric.DOT or self.vector_db.normalize:
            raw /= np.sqrt((a * a).sum(axis=1) * (b * b).sum())
        return raw

    def _bm25(self, terms: Sequence[str], entries: Entries) -> dict[str, float]:
        average = sum(e.length for e in entries.values()) / max(len(entries), 1)
        raw: dict[str, float] = {}
        for term in terms:
            holding = {i: e for i, e in entries.items() if term in e.frequency}
            for chunk_id, entry in holding.items():
                weight = term_weight(entry.frequency[term], entry.length, average)
                raw[chunk_id] = raw.get(chunk_id, 0.0) + idf(len(holding), len(entries)) * weight
        return raw

    def _bm25_by(
        self, by: TermStatistics, terms: Sequence[str], entries: Entries
    ) -> dict[str, float]:
        raw: dict[str, float] = {}
        for term in terms:
            worth = idf(by.frequency(term, 0), by.count)
            for chunk_id, entry in entries.items():
                if term in entry.frequency:
                    weight = term_weight(entry.frequency[term], entry.length, by.average)
                    raw[chunk_id] = raw.get(chunk_id, 0.0) + worth * weight
        return raw

    def _greatest(self, terms: Sequence[str], entries: Entries) -> float:
        held = (sum(term in e.frequency for e in entries.values()) for term in terms)
        return greatest(((1, number) for number in held), len(entries))

    def _best(
        self, raw: Mapping[str, float], k: int, entries: Entries, filters: Filter | None
    ) -> list[Candidate]:
        passing = [i for i in raw if matches(filters, entries[i].chunk.metadata)]
        passing.sort(key=lambda i: (-raw[i], i))
        return [Candidate(i, raw[i]) for i in passing[:k]]

    def _entry(self, chunk: Chunk, row: NDArray[np.float32]) -> Entry:
        frequency: Counter[str] = Counter()
        length = 0
        for field, weight in self.vector_db.field_weights.items():
            value = chunk.content if field == "content" else chunk.metadata.get(field, "")
            text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            words, beside = self._analyze(text)
            length += len(words)
            for term in words:
                frequency[term] += weight  # type: ignore[assignment]  # Counter says int
            for term in beside:
                frequency[term] += weight * BESIDE_WEIGHT  # type: ignore[assignment]
        stored = chunk.model_copy(update={"embedding": None}, deep=True)
        return Entry(stored, row.copy(), dict(frequency), length)

    # --- the file ----------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self._path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _load(self) -> Entries:
        try:
            with open(self._path) as file:
                version = file.readline()
                if version != self._version:
                    stored = [(Chunk.model_validate(c), r) for c, r in json.load(file)]
                    self._version, self._entries = (
                        version,
                        {
                            c.chunk_id: self._entry(c, np.array(r, dtype=np.float32))
                            for c, r in stored
                        },
                    )
        except FileNotFoundError:
            self._version, self._entries = "", {}
        return self._entries

    def _save(self, entries: Entries) -> None:
        self._version, self._entries = f"{os.urandom(8).hex()}\n", entries
        new = self._path.with_suffix(".new")
        stored = [(e.chunk.model_dump(mode="json"), e.row.tolist()) for e in entries.values()]
        new.write_text(self._version + json.dumps(stored))
        new.replace(self._path)
