"""An index of inline::faiss beside a plain copy of what is in it, for its tests."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.hits import QueryChunksResponse
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.faiss.config import FaissConfig
from corral.providers.vector_io.faiss.provider import create
from corral.providers.vector_io.store.faiss.search import FaissSearch
from corral.providers.vector_io.store.provider import file_name

from ..engines import engine_of
from ..registrations import registration

T = TypeVar("T")
DIMENSION = 16
KINDS = ("hnsw", "ivf")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine. Its result is not the task's, which 3.11 renders as a string at the end."""
    results: list[T] = []

    async def keep() -> None:
        results.append(await work)

    asyncio.run(keep())
    return results[0]


def vector_db(**settings: Any) -> VectorDB:
    """Return a registration."""
    return registration("faiss", **{"embedding_dimension": DIMENSION, **settings})


def vectors(count: int, seed: int = 0, dimension: int = DIMENSION) -> NDArray[np.float32]:
    """Return seeded embeddings in clusters, of different lengths."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(99).normal(size=(40, dimension))
    rows = centers[rng.integers(40, size=count)] + 0.5 * rng.normal(size=(count, dimension))
    return (rows * rng.uniform(0.5, 2.0, size=(count, 1))).astype(np.float32)


class Fold:
    """An index and a plain copy of what is in it, which says what exact search would find."""

    def __init__(self, folder: Path, *, kind: str = "hnsw", settings: Any = None, **config: Any):
        config = {"index": kind, "approximate_from": 500, "folder": folder, **config}
        self.vector_db = vector_db(**(settings or {}))
        self.config = FaissConfig(**config)
        self.path = folder / file_name(self.vector_db)
        self.cache = self.path.with_suffix(".faiss")
        self.rows: dict[str, NDArray[np.float32]] = {}
        self.index = self.open()

    def open(self) -> EngineIndex:
        """Open the index, as another process would."""
        provider = create("faiss", self.config, Path())
        return run(provider.open_index(self.vector_db, create=not self.path.exists()))

    @property
    def searcher(self) -> FaissSearch:
        """The searcher of the index."""
        found = engine_of(self.index).searcher
        assert isinstance(found, FaissSearch)
        return found

    def restart(self) -> None:
        """Close the index and open it again."""
        run(self.index.close())
        self.index = self.open()

    def add(self, start: int, count: int, seed: int = 0, *, settle: bool = True) -> None:
        """Add chunks with numbers from `start` on."""
        rows = vectors(count, seed, self.vector_db.embedding_dimension)
        names = [f"c{number:05}" for number in range(start, start + count)]
        chunks = [
            Chunk(chunk_id=name, content="hay", metadata={"n": int(name[1:])}) for name in names
        ]
        run(self.index.add_chunks(chunks, rows))
        self.rows.update(zip(names, rows, strict=True))
        if settle:
            run(self.index.settle())

    def delete(self, start: int, count: int) -> None:
        """Delete the chunks with numbers from `start` on."""
        names = [f"c{number:05}" for number in range(start, start + count)]
        run(self.index.delete_chunks(names))
        for name in names:
            del self.rows[name]

    def raw(self, query: NDArray[np.float32], wide: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the exact raw scores of embeddings."""
        asked = query.astype(np.float64)
        if self.vector_db.metric == "l2" and not self.vector_db.normalize:
            return np.asarray(-np.linalg.norm(wide - asked, axis=1))
        if self.vector_db.metric == "dot" and not self.vector_db.normalize:
            return np.asarray(wide @ asked)
        return np.asarray(wide @ asked / np.linalg.norm(wide, axis=1) / np.linalg.norm(asked))

    def recall(self, k: int = 10, queries: int = 40, below: int | None = None) -> float:
        """Return recall_vs_exact@k; raw scores, order and filter are checked on the way.

        Args:
            k: Hits wanted.
            queries: How many are asked.
            below: Only chunks with smaller numbers may be found.
        """
        passing = {"type": "lt", "key": "n", "value": below} if below is not None else None
        names = [name for name in self.rows if below is None or int(name[1:]) < below]
        places = {name: place for place, name in enumerate(names)}
        asked = vectors(queries, 7, self.vector_db.embedding_dimension)
        responses = self.ask_all(asked, k, passing)
        # Not before: a test replaces rows while it asks.
        wide = np.array([self.rows[name] for name in names], np.float64)
        found = 0
        for query, response in zip(asked, responses, strict=True):
            exact = self.raw(query, wide)
            hits = [places[hit.chunk.chunk_id] for hit in response.hits]
            assert len(set(hits)) == len(hits) == min(k, len(names))
            raw = [hit.explanation.legs["vector"].raw_score for hit in response.hits]
            np.testing.assert_allclose(raw, exact[hits], rtol=0, atol=1e-5)
            found += len(set(np.argsort(-exact)[:k].tolist()) & set(hits))
        return found / (queries * min(k, len(names)))

    def ask(self, query: NDArray[np.float32], k: int, filters: Any = None) -> QueryChunksResponse:
        """Search by vector."""
        return self.ask_all(query[None], k, filters)[0]

    def ask_all(
        self, queries: NDArray[np.float32], k: int, filters: Any = None
    ) -> list[QueryChunksResponse]:
        """Search by each of several vectors, one after the other, in one event loop."""

        async def each() -> list[QueryChunksResponse]:
            return [
                await self.index.query(query, k=k, mode="vector", filters=filters)
                for query in queries
            ]

        return run(each())

    def answers(self) -> list[list[tuple[str, float]]]:
        """Return what ten queries find, with scores."""
        responses = self.ask_all(vectors(10, 8), 20)
        return [[(h.chunk.chunk_id, h.score) for h in response.hits] for response in responses]


@contextmanager
def no_building(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail when an index is built, rather than loaded."""
    built: list[object] = []
    with monkeypatch.context() as patched:
        patched.setattr(FaissSearch, "build", lambda *_: built.append(1))
        yield
    assert not built
