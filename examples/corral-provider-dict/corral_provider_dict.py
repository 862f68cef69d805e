"""inline::dict: a complete provider on a dict and numpy. Copy it to start your own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.chunks import Chunk
from corral.api.engine import Engine
from corral.api.engine_index import EngineIndex
from corral.api.errors import NotFound
from corral.api.filters import Filter, matches
from corral.api.hits import Candidate, KeywordLeg, TermStatistics
from corral.api.provider import (
    ENGINE_DEFAULTS,
    Api,
    Health,
    ProviderConfig,
    ProviderSpec,
    VectorIOProvider,
)
from corral.api.vector_dbs import VectorDB
from corral.providers.text.analyzer import analyzer
from corral.providers.text.bm25 import idf, term_weight
from corral.providers.text.fields import ChunkTerms, chunk_terms
from corral.providers.vector_io.kit.exact import effective_metric, exact_scores


class Entry(NamedTuple):
    """A stored chunk, its embedding and its terms."""

    chunk: Chunk
    row: NDArray[np.float32]
    terms: ChunkTerms


class DictEngine(Engine):
    """Chunks by id. Every write makes a new dict, so that readers see whole calls only."""

    has_term_statistics = True

    def __init__(self, vector_db: VectorDB, forget: Callable[[], object]) -> None:
        super().__init__(vector_db)
        self._forget = forget
        self._entries: dict[str, Entry] = {}
        self._analyzer = analyzer(vector_db.language)

    @override
    async def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        new = {}
        for chunk, row in zip(chunks, embeddings, strict=True):
            terms = chunk_terms(chunk, self.vector_db.field_weights, self._analyzer)
            stored = chunk.model_copy(update={"embedding": None}, deep=True)
            new[chunk.chunk_id] = Entry(stored, row.copy(), terms)
        old = self._entries.items()
        kept = {i: e for i, e in old if e.chunk.document_id not in replace_documents}
        self._entries = kept | new

    @override
    async def search_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        rows = [entry.row for entry in self._entries.values()]
        matrix = np.array(rows, dtype=np.float32).reshape(len(rows), len(embedding))
        scores = exact_scores(matrix, embedding, effective_metric(self.vector_db))
        return self._best(dict(zip(self._entries, scores.tolist(), strict=True)), k, filters)

    @override
    async def term_statistics(self, query_string: str, fuzzy: bool) -> TermStatistics:
        everything = [entry.terms for entry in self._entries.values()]
        holding = {
            term: sum(term in terms.frequencies for terms in everything)
            for term in self._analyzer.query(query_string).times
        }
        return TermStatistics(len(everything), sum(one.length for one in everything), holding)

    @override
    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        asked = self._analyzer.query(query_string)
        own = await self.term_statistics(query_string, fuzzy=False)
        by = by or own
        raw: dict[str, float] = {}
        for term, times in sorted(asked.times.items()):
            worth = times * idf(by.frequency(term, own.holding[term]), by.count)
            for chunk_id, entry in self._entries.items():
                if frequency := entry.terms.frequencies.get(term):
                    weight = term_weight(frequency, entry.terms.length, by.average)
                    raw[chunk_id] = raw.get(chunk_id, 0.0) + worth * weight
        # The greatest score that the query allows: what the confidence of an answer is made of.
        return KeywordLeg(self._best(raw, k, filters), asked.greatest(by.holding, by.count))

    def _best(self, raw: Mapping[str, float], k: int, filters: Filter | None) -> list[Candidate]:
        passing = [i for i in raw if matches(filters, self._entries[i].chunk.metadata)]
        passing.sort(key=lambda chunk_id: (-raw[chunk_id], chunk_id))
        return [Candidate(chunk_id, raw[chunk_id]) for chunk_id in passing[:k]]

    @override
    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        found = [self._entries[i] for i in chunk_ids if i in self._entries]
        copies = [entry.chunk.model_copy(deep=True) for entry in found]
        if include_embeddings:
            for chunk, entry in zip(copies, found, strict=True):
                chunk.embedding = entry.row.tolist()
        return copies

    @override
    async def delete(self, chunk_ids: Sequence[str]) -> None:
        gone = set(chunk_ids)
        self._entries = {i: entry for i, entry in self._entries.items() if i not in gone}

    @override
    async def count(self) -> int:
        return len(self._entries)

    @override
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return sorted(i for i in self._entries if i > after)[:limit]

    @override
    async def drop(self) -> None:
        self._forget()


class DictConfig(ProviderConfig):
    """Settings of inline::dict in run.yaml: none. Yours would be fields here."""


class DictProvider(VectorIOProvider):
    """Holds the indexes; a registration is its id and its time together."""

    def __init__(self, provider_id: str) -> None:
        super().__init__(provider_id)
        self._indexes: dict[tuple[tuple[str, str], float], EngineIndex] = {}

    async def open_index(self, vector_db: VectorDB, *, create: bool = False) -> EngineIndex:
        """Return the index of a vector DB; see the contract."""
        key = (vector_db.key, vector_db.built_at)
        if key not in self._indexes:
            if not create:
                raise NotFound(f"Vector DB {vector_db.identifier!r} was in memory and is gone.")
            forget = partial(self._indexes.pop, key, None)
            self._indexes[key] = EngineIndex(DictEngine(vector_db, forget))
        return self._indexes[key]

    async def health(self) -> Health:
        """Return that it can serve."""
        return Health("OK")


def create(provider_id: str, config: DictConfig, home: Path) -> DictProvider:
    """Build the provider (its spec's factory)."""
    return DictProvider(provider_id)


SPEC = ProviderSpec(
    api=Api.VECTOR_IO,
    provider_type="inline::dict",
    description="An example: a dict and numpy, gone with the process.",
    config="corral_provider_dict:DictConfig",
    factory="corral_provider_dict:create",
    capabilities=replace(ENGINE_DEFAULTS, exact=True, persistent=False, transactional=True),
)
