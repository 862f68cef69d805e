"""A library in memory: vector DBs, indexes by brute force, an embedder that hashes words."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.chunks import Chunk
from corral.api.embedder import Embedder, ModelInfo
from corral.api.embedding_index import EmbeddingIndex
from corral.api.engine import Engine
from corral.api.engine_index import EngineIndex
from corral.api.errors import NotFound, Unavailable
from corral.api.filters import Filter, matches
from corral.api.hits import Candidate, TermStatistics
from corral.api.reranker import Reranker
from corral.api.vector_dbs import VectorDB

DIMENSION = 16
REGISTRATIONS = count(1)
"""Times of registrations: each vector DB of a test is another one."""


class SharedWordsEngine(Engine):
    """Chunks and rows in dicts; keyword scores count the words that are shared."""

    def __init__(self, vector_db: VectorDB) -> None:
        super().__init__(vector_db)
        self.chunks: dict[str, Chunk] = {}
        self.rows: dict[str, NDArray[np.float32]] = {}
        self.writes = 0
        self.queries: list[tuple[str, str]] = []

    @override
    async def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        self.writes += 1
        for old in [i for i, c in self.chunks.items() if c.document_id in replace_documents]:
            del self.chunks[old]
        self.chunks |= {chunk.chunk_id: chunk for chunk in chunks}
        self.rows |= {c.chunk_id: r for c, r in zip(chunks, embeddings, strict=True)}

    @override
    async def search_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        self.queries.append(("vector", ""))
        return self._best({i: float(self.rows[i] @ embedding) for i in self.chunks}, k, filters)

    @override
    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        self.queries.append(("keyword", query_string))
        wanted = set(query_string.lower().split())
        shared = {i: len(wanted & set(c.content.lower().split())) for i, c in self.chunks.items()}
        return self._best({i: float(n) for i, n in shared.items() if n}, k, filters)

    def _best(self, raw: Mapping[str, float], k: int, filters: Filter | None) -> list[Candidate]:
        passing = [i for i in raw if matches(filters, self.chunks[i].metadata)]
        passing.sort(key=lambda i: (-raw[i], i))
        return [Candidate(i, raw[i]) for i in passing[:k]]

    @override
    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        return [
            self.chunks[i].model_copy(
                update={"embedding": self.rows[i].tolist() if include_embeddings else None}
            )
            for i in chunk_ids
            if i in self.chunks
        ]

    @override
    async def delete(self, chunk_ids: Sequence[str]) -> None:
        for chunk_id in chunk_ids:
            self.chunks.pop(chunk_id, None)

    @override
    async def count(self) -> int:
        return len(self.chunks)

    @override
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return sorted(i for i in self.chunks if i > after)[:limit]

    @override
    async def drop(self) -> None:
        self.chunks.clear()


class WordEmbedder(Embedder):
    """The words of a text, hashed into 16 numbers; notes what it was asked.

    Args:
        model: Its name.
        broken: The call that fails, counted from 1; 0 for none.
    """

    def __init__(self, model: str, broken: int = 0) -> None:
        self.info = ModelInfo(model=model, dimension=DIMENSION)
        self.broken = broken
        self.documents: list[str] = []
        self.batches: list[int] = []
        self.queries: list[str] = []

    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.batches.append(len(texts))
        if len(self.batches) == self.broken:
            raise Unavailable("the embedder is away")
        self.documents += texts
        return np.stack([embedding_of(text) for text in texts])

    async def embed_query(self, text: str) -> NDArray[np.float32]:
        self.queries.append(text)
        return embedding_of(text)


def embedding_of(text: str) -> NDArray[np.float32]:
    """Return the embedding that a WordEmbedder gives, shape (16,), never zero."""
    row = np.full(DIMENSION, 0.01, dtype=np.float32)
    for word in text.lower().split():
        row[zlib.crc32(word.encode()) % DIMENSION] += 1.0
    return row


class FakeLibrary:
    """Vector DBs by id, each with a MemoryIndex; embedders by model."""

    def __init__(self, *names: str, **settings: Any) -> None:
        self.vector_dbs: dict[str, VectorDB] = {}
        self.engines: dict[str, SharedWordsEngine] = {}
        self.indexes: dict[str, EmbeddingIndex] = {}
        self.embedders: dict[str, WordEmbedder] = {"words": WordEmbedder("words")}
        self.rerankers: dict[str, Reranker] = {}
        self.reads: list[str] = []
        for name in names or ("db",):
            self.register(name, **settings)

    def register(self, name: str, **settings: Any) -> EmbeddingIndex:
        """Register a vector DB and return its index."""
        stored = {
            "identifier": name, "provider_id": "memory", "provider_resource_id": name,
            "embedding_model": "words", "embedding_dimension": DIMENSION,
            "created_at": next(REGISTRATIONS),
        }  # fmt: skip
        self.vector_dbs[name] = VectorDB.model_validate({**stored, **settings})
        return self.use(SharedWordsEngine(self.vector_dbs[name]))

    def use(self, engine: SharedWordsEngine) -> EmbeddingIndex:
        """Give a vector DB an engine, and return the index."""
        name = engine.vector_db.identifier
        self.engines[name], self.indexes[name] = engine, EngineIndex(engine)
        return self.indexes[name]

    async def vector_db(self, vector_db_id: str) -> VectorDB:
        self.reads.append(vector_db_id)
        if vector_db_id not in self.vector_dbs:
            raise NotFound(f"There is no vector DB {vector_db_id!r}.", field="vector_db_id")
        return self.vector_dbs[vector_db_id]

    async def index(self, vector_db_id: str) -> EmbeddingIndex:
        await self.vector_db(vector_db_id)
        return self.indexes[vector_db_id]

    async def embedder(self, model: str) -> WordEmbedder:
        return self.embedders[model]

    async def embedder_of(self, vector_db: VectorDB) -> WordEmbedder:
        return await self.embedder(vector_db.embedding_model)

    async def reranker(self, model: str) -> Reranker:
        return self.rerankers[model]


class ChattyLibrary(FakeLibrary):
    """A library with a language model that gives one answer, or fails."""

    def __init__(self, answer: str | Exception, *names: str, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.answer = answer
        self.prompts: list[str] = []

    def inference_models(self) -> list[tuple[str, str]]:
        return [("llm", "tiny"), ("llm", "large")]

    async def complete(self, model: str, prompt: str) -> str:
        self.prompts.append(prompt)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer
