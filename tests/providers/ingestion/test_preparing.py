"""A registered re-ranker with `prepare` reads chunks when they are stored, on every road."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from corral.api.chunks import Chunk
from corral.api.errors import Unavailable
from corral.api.hits import Hit
from corral.api.rag import RAGDocument
from corral.api.reranker import Reranker
from corral.providers.ingestion.storing import store

from ..rag.fake_library import FakeLibrary
from ..rag.inserting import ingester

TEXT = "Cattle graze in the valley. " * 40


class Reader(Reranker):
    """Notes the texts that it reads ahead; fails if it is away."""

    def __init__(self, *, away: bool = False) -> None:
        self.texts: list[str] = []
        self.away = away

    async def rerank(
        self, query: str, hits: Sequence[Hit], k: int, *, embedding: Any = None, tenant: str = ""
    ) -> list[Hit]:
        """Change nothing."""
        return list(hits[:k])

    async def prepare(self, texts: Sequence[str], tenant: str) -> None:
        """Note the texts."""
        if self.away:
            raise Unavailable("the re-ranker is away")
        self.texts += texts


def library_of(reader: Reader, **settings: Any) -> FakeLibrary:
    """Return a library with a vector DB that is registered with the reader."""
    library = FakeLibrary("db", rerank={"type": "model", "model": "late", **settings})
    library.rerankers["late"] = reader
    return library


async def add(library: FakeLibrary, road: str) -> None:
    """Store a document, or a chunk."""
    if road == "chunk":
        await store(library, "db", [Chunk(chunk_id="c", content=TEXT)])
    else:
        await ingester().insert(library, [RAGDocument(document_id="d", content=TEXT)], "db", 32)


ROADS = pytest.mark.parametrize("road", ["chunk", "document"])


@ROADS
@pytest.mark.parametrize("asked", [True, False])
async def test_stored_texts_are_read_ahead_if_asked(road: str, asked: bool) -> None:
    """With `prepare` the model reads each stored text once; without, none.

    If this fails: the first question about a new document waits for the model.
    """
    reader = Reader()
    library = library_of(reader, prepare=asked)
    await add(library, road)
    stored = [chunk.content for chunk in library.engines["db"].chunks.values()]
    assert stored
    assert sorted(reader.texts) == (sorted(stored) if asked else [])


@ROADS
async def test_a_failing_model_stores_nothing_unless_it_may_fail(road: str) -> None:
    """`on_error: error` refuses the write; `degrade` leaves the reading to a question."""
    strict = library_of(Reader(away=True), prepare=True)
    with pytest.raises(Unavailable):
        await add(strict, road)
    assert not strict.engines["db"].chunks
    lenient = library_of(Reader(away=True), prepare=True, on_error="degrade")
    await add(lenient, road)
    assert lenient.engines["db"].chunks
