"""inline::sqlite with `index: auto`: an approximate index if its recall is high enough."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError
from typing_extensions import override

from corral.api.embedding_index import EmbeddingIndex
from corral.api.engine_index import EngineIndex
from corral.api.errors import MissingDependency
from corral.api.hits import SearcherState
from corral.api.principal import Principal, Role
from corral.providers.vector_io.sqlite.config import SqliteConfig
from corral.providers.vector_io.sqlite.provider import create
from corral.providers.vector_io.store.config import ChunkFileConfig
from corral.providers.vector_io.store.engine import ChunkFileEngine
from corral.providers.vector_io.store.faiss.base import Base
from corral.providers.vector_io.store.faiss.config import IndexConfig
from corral.providers.vector_io.store.faiss.search import FaissSearch
from corral.providers.vector_io.store.provider import file_name

from .helpers import DIMENSION, found, open_index, some_chunks, vector_db

COUNT = 3000
AUTO = {"index": "auto", "approximate_from": 1000}
READER = Principal("acme", "ann@example.org", frozenset(), Role.READER)


def clustered(count: int, seed: int = 0) -> NDArray[np.float32]:
    """Return seeded embeddings around 40 centers."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(99).normal(size=(40, DIMENSION))
    rows = centers[rng.integers(40, size=count)] + 0.5 * rng.normal(size=(count, DIMENSION))
    return rows.astype(np.float32)


async def filled(folder: Path, count: int = COUNT) -> EmbeddingIndex:
    """Return an index with `index: auto` and chunks, after its builds."""
    index = await open_index(folder, config=AUTO)
    await index.add_chunks(some_chunks(count), clustered(count))
    await index.settle()
    return index


async def answers(index: EmbeddingIndex, **query: Any) -> list[Any]:
    """Return the answers to twenty questions."""
    asked = clustered(20, seed=1)
    return [found(await index.query(row, k=10, mode="vector", **query)) for row in asked]


def index_file(folder: Path) -> Path:
    """Return the path of the FAISS file."""
    return folder / file_name(vector_db()).replace(".db", ".faiss")


async def test_an_index_is_built_and_says_what_it_is(tmp_path: Path) -> None:
    """Its recall, its chunks and its name are in the state and in each answer that used it.

    If this fails: an answer is approximate, and nothing says so.
    """
    index = await filled(tmp_path)
    state = await index.searcher_state()
    assert state is not None
    assert (state.method, state.indexed, state.note) == ("faiss", COUNT, None)
    assert state.recall is not None
    assert 0.99 <= state.recall <= 1
    answer = await index.query(clustered(1)[0], k=10, mode="vector")
    assert list(answer.searchers) == [state]
    exact = await open_index(tmp_path)
    assert await exact.searcher_state() == SearcherState()
    pairs = zip(await answers(index), await answers(exact), strict=True)
    shared = [len(dict(ours).items() & dict(theirs).items()) for ours, theirs in pairs]
    assert sum(shared) >= 0.97 * 200  # ids and scores: the scores are exact


async def test_hidden_chunks_are_not_counted(tmp_path: Path) -> None:
    """Someone with a scope learns that an index was used and its recall, not its size."""
    index = (await filled(tmp_path)).scoped_to(READER)
    state = await index.searcher_state()
    assert state is not None
    assert (state.method, state.indexed, state.note) == ("faiss", None, None)
    [used] = (await index.query(clustered(1)[0], k=1, mode="vector")).searchers
    assert used.indexed is None


async def test_few_chunks_are_compared_exactly(tmp_path: Path) -> None:
    """Below `approximate_from` there is no index, and the state says from how many on there is.

    If this fails: a small vector DB misses neighbors to save a fraction of a millisecond.
    """
    index = await filled(tmp_path, 999)
    assert not index_file(tmp_path).exists()
    note = "a FAISS index is built from 1,000 chunks on"
    assert await index.searcher_state() == SearcherState(note=note)
    assert await answers(index) == await answers(await open_index(tmp_path))


FEW: list[dict[str, Any]] = [
    {"type": "lt", "key": "n", "value": 512},
    {"type": "ne", "key": "document_id", "value": "d"},  # planned as the complement of many
]


@pytest.mark.parametrize("few", FEW, ids=lambda few: few["type"])
async def test_a_filter_that_leaves_few_chunks_is_exact(
    tmp_path: Path, few: dict[str, Any]
) -> None:
    """All of up to 1,024 chunks are compared, and the answer does not claim an index.

    If this fails: a question about one document depends on the lists of the whole vector DB.
    """
    index, exact = await open_index(tmp_path, config=AUTO), await open_index(tmp_path)
    chunks = [*some_chunks(COUNT), *some_chunks(1024, "e")]
    await index.add_chunks(chunks, clustered(len(chunks)))
    await index.settle()
    assert await answers(index, filters=few) == await answers(exact, filters=few)
    answer = await index.query(clustered(1)[0], k=3, mode="vector", filters=few)
    assert [each.method for each in answer.searchers] == ["exact"]
    many = {"type": "lt", "key": "n", "value": 513}
    answer = await index.query(clustered(1)[0], k=3, mode="vector", filters=many)
    assert [each.method for each in answer.searchers] == ["faiss"]


async def test_new_chunks_are_found_at_once(tmp_path: Path) -> None:
    """Chunks that are not in the index are compared exactly, and deleted ones are gone."""
    index = await filled(tmp_path)
    new = clustered(10, seed=5)
    await index.add_chunks(some_chunks(10, "new"), new)
    for number, row in enumerate(new):
        [hit] = (await index.query(row, k=1, mode="vector")).hits
        assert hit.chunk.chunk_id == f"new-{number:04d}"
    await index.delete_chunks([f"new-{number:04d}" for number in range(10)])
    [hit] = (await index.query(new[0], k=1, mode="vector")).hits
    assert hit.chunk.document_id == "d"


async def test_the_index_can_be_deleted(tmp_path: Path) -> None:
    """It is built again from the chunks, with the same recall and the same answers.

    If this fails: the file holds something that the vector DB's file does not.
    """
    index = await filled(tmp_path)
    before, state = await answers(index), await index.searcher_state()
    await index.close()
    index_file(tmp_path).unlink()
    again = await open_index(tmp_path, config=AUTO)
    await again.settle()
    assert (await answers(again), await again.searcher_state()) == (before, state)
    await again.close()
    exact = await open_index(tmp_path)
    await exact.delete()  # although this configuration has no index
    assert not list(tmp_path.iterdir())


class CountedSearch(FaissSearch):
    """Counts its builds; its index never returns the nearest chunk."""

    builds = 0

    @override
    def build(self, connection: Any, old: Base | None) -> Base:
        type(self).builds += 1
        base = super().build(connection, old)
        base.__class__ = ForgetfulBase
        return base


class ForgetfulBase(Base):
    """Leaves out the nearest position."""

    @override
    def places(self, connection: Any, query: Any, k: int, usable: Any) -> NDArray[np.int64]:
        return super().places(connection, query, k, usable)[1:]


async def forgetful(folder: Path) -> EngineIndex:
    """Return an index on the same file with such a searcher."""
    path = folder / file_name(vector_db())
    config = IndexConfig(index="ivf", approximate_from=1000)
    searcher = partial(
        CountedSearch, vector_db(), config, path.with_suffix(".faiss"), min_recall=0.99
    )
    engine = ChunkFileEngine(vector_db(), path, ChunkFileConfig(), searcher)
    engine.prepare()
    index = EngineIndex(engine)
    await index.settle()
    return index


async def test_an_index_with_a_low_recall_is_not_used(tmp_path: Path) -> None:
    """Answers stay exact, the state says why, and the index is built again at twice the chunks.

    The index here leaves out the nearest chunk, so its recall is 0.9. If this fails: answers are
    worse than the state says, or each start of a server builds an index in vain.
    """
    exact = await open_index(tmp_path)
    await exact.add_chunks(some_chunks(COUNT), clustered(COUNT))
    CountedSearch.builds = 0
    for _ in range(2):  # the second one reads the result of the first
        index = await forgetful(tmp_path)
        assert await answers(index) == await answers(exact)
        note = "recall@10 of the FAISS index is 0.9000, below 0.99"
        assert await index.searcher_state() == SearcherState(note=note)
        await index.close()
    assert CountedSearch.builds == 1
    index = await forgetful(tmp_path)
    for document, count, builds in (("e", COUNT - 1, 1), ("f", 1, 2)):
        await index.add_chunks(some_chunks(count, document), clustered(count, seed=2))
        await index.settle()
        assert CountedSearch.builds == builds
    assert (await index.query(clustered(1)[0], k=1, mode="vector")).searchers[0].method == "exact"
    await index.close()


def test_what_auto_needs_is_checked_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without FAISS, or without memory for new chunks, the configuration is refused.

    If this fails: an operator asks for an index and never gets one.
    """
    with pytest.raises(ValidationError, match="vector_memory_mib above 0"):
        SqliteConfig(index="auto", vector_memory_mib=0)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingDependency, match="faiss-cpu") as refused:
        create("sqlite", SqliteConfig(index="auto"), tmp_path)
    assert refused.value.command == "pip install 'corral-rag[faiss]'"
    create("sqlite", SqliteConfig(), tmp_path)
