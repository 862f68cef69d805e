"""An engine that returns what a test gives it, and records its calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.chunks import Chunk
from corral.api.engine import Engine
from corral.api.filters import Filter
from corral.api.hits import Candidate, KeywordLeg, TermStatistics
from corral.api.vector_dbs import VectorDB


def vector_db(**settings: Any) -> VectorDB:
    """Return a registration of dimension 2."""
    stored = {
        "identifier": "db", "provider_id": "scripted", "provider_resource_id": "db",
        "embedding_model": "m", "embedding_dimension": 2,
    }  # fmt: skip
    return VectorDB.model_validate({**stored, **settings})


def candidates(**raw_scores: float) -> list[Candidate]:
    """Return candidates without chunks, in the order given."""
    return [Candidate(chunk_id, raw) for chunk_id, raw in raw_scores.items()]


class ScriptedEngine(Engine):
    """Answers `vector` and `keyword` to every query, cut to k; stores chunks in a dict.

    Args:
        cut: True if the engine keeps to k, as it must.
    """

    def __init__(
        self,
        vector: Sequence[Candidate] = (),
        keyword: Sequence[Candidate] = (),
        *,
        cut: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(vector_db(**settings))
        self.vector, self.keyword, self.cut = vector, keyword, cut
        self.calls: list[tuple[str, Any]] = []
        self.chunks = {
            c.chunk_id: Chunk(content=f"text of {c.chunk_id}", chunk_id=c.chunk_id)
            for c in (*vector, *keyword)
        }

    @override
    async def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        self.calls.append(("add", ([c.content for c in chunks], embeddings, replace_documents)))
        self.chunks.update({chunk.chunk_id: chunk for chunk in chunks})

    @override
    async def search_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        self.calls.append(("vector", (embedding.tolist(), k, filters)))
        return self.vector[:k] if self.cut else self.vector

    @override
    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        self.calls.append(("keyword", (query_string, k, filters)))
        if not self.cut:
            return self.keyword
        if isinstance(self.keyword, KeywordLeg):
            return KeywordLeg(self.keyword[:k], self.keyword.greatest)
        return self.keyword[:k]

    @override
    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        self.calls.append(("get", (list(chunk_ids), include_embeddings)))
        found = [self.chunks[i] for i in reversed(list(chunk_ids)) if i in self.chunks]
        embedding = [0.6, 0.8] if include_embeddings else None
        return [chunk.model_copy(update={"embedding": embedding}) for chunk in found]

    @override
    async def delete(self, chunk_ids: Sequence[str]) -> None:
        self.calls.append(("delete", list(chunk_ids)))
        for chunk_id in chunk_ids:
            self.chunks.pop(chunk_id, None)

    @override
    async def count(self) -> int:
        return len(self.chunks)

    @override
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        self.calls.append(("chunk_ids", (after, limit)))
        ids = sorted(i for i in self.chunks if i > after)
        return ids[:limit] if self.cut else ids

    @override
    async def drop(self) -> None:
        self.calls.append(("drop", None))
        self.chunks.clear()

    def asked(self, call: str) -> list[Any]:
        """Return the arguments of every call with this name."""
        return [arguments for name, arguments in self.calls if name == call]
