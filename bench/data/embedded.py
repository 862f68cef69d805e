"""A judged set with its embeddings, from the cache or new."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corral.api.embedder import Embedder, ModelInfo
from corral.bench.data.embeddings import CACHE_NAME, Advance, EmbeddingCache
from corral.bench.data.judged import JudgedSet
from corral.providers.config import ProviderEntry, Providers, RunConfig
from corral.providers.ranking.unseen import clean_text
from corral.providers.stack import Stack

EMPTY = "-"
"""Stored where a document has no visible text, which Corral refuses; it has to be there, since a
judgement may name it."""
FOLDER = "bench"


@dataclass(frozen=True, slots=True)
class EmbeddedSet:
    """A judged set, ready to be stored and asked.

    Attributes:
        contents: What is stored for each document, in their order.
        documents: Their embeddings, shape (n, dimension), float32, length 1.
        queries: Those of the queries, in their order.
    """

    judged: JudgedSet
    contents: list[str]
    documents: NDArray[np.float32]
    queries: NDArray[np.float32]


class Embedding:
    """An embedding model with the cache of what it embedded before."""

    def __init__(self, embedder: Embedder, cache: EmbeddingCache) -> None:
        self.info: ModelInfo = embedder.info
        self.fingerprint = embedder.fingerprint
        self.tokenizer = embedder.tokenizer
        self._embedder = embedder
        self._cache = cache

    @classmethod
    @asynccontextmanager
    async def opened(cls, config: RunConfig, home: Path, model: str) -> AsyncIterator[Embedding]:
        """Open a model that a configuration serves, with the cache in the data folder.

        Raises:
            NotFound: No provider serves the model.
            MissingDependency: Its packages or weights are not installed.
        """
        providers = Providers(embedding=with_hashing(config.providers.embedding))
        stack = Stack(RunConfig(providers=providers), home)
        cache = EmbeddingCache(home / FOLDER / CACHE_NAME)
        try:
            yield cls(await stack.embedder(model), cache)
        finally:
            cache.close()
            await stack.close()

    def missing(self, judged: JudgedSet) -> int:
        """Return how many texts of a set are yet to be embedded."""
        contents, queries = contents_of(judged), queries_of(judged)
        absent = self._cache.missing(self._embedder, "document", contents)
        return absent + self._cache.missing(self._embedder, "query", queries)

    async def embed(self, judged: JudgedSet, advance: Advance | None = None) -> EmbeddedSet:
        """Return a set with its embeddings; `advance` as `EmbeddingCache.embed` takes it.

        Raises:
            ProviderError: The model failed; what was embedded before is kept.
        """
        contents = contents_of(judged)
        documents = await self._cache.embed(self._embedder, "document", contents, advance)
        queries = await self._cache.embed(self._embedder, "query", queries_of(judged), advance)
        return EmbeddedSet(judged, contents, documents, queries)


def with_hashing(entries: Sequence[ProviderEntry]) -> list[ProviderEntry]:
    """Add the model that needs no weights, so that a run works everywhere."""
    if any(entry.provider_type == "inline::hashing" for entry in entries):
        return list(entries)
    hashing = ProviderEntry(provider_id="bench-hashing", provider_type="inline::hashing")
    return [*entries, hashing]


def contents_of(judged: JudgedSet) -> list[str]:
    """Return what is stored for each document: its text as `Retrieval.store` cleans it."""
    cleaned = map(clean_text, judged.documents.values())
    return [text if text.strip() else EMPTY for text in cleaned]


def queries_of(judged: JudgedSet) -> list[str]:
    """Return what is embedded for each query: its text as `Retrieval.search` cleans it."""
    return [clean_text(text) for text in judged.queries.values()]
