"""A least confidence: nothing is found where no answer is likely, and the answer says so."""

from __future__ import annotations

from typing import Any

import pytest

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.errors import InvalidRequest
from corral.api.vector_dbs import VectorDB
from corral.providers.ingestion.storing import store
from corral.providers.rag.search import Retrieval
from corral.providers.vector_io.memory.provider import memory_engine

from .fake_library import DIMENSION, FakeLibrary

TEXTS = {
    "a": "the red barn stands on the hill",
    "b": "a red fence around the barn",
    "c": "the river bank floods in spring",
    "d": "the bank lends money to the farm",
}
KNOWN, UNKNOWN = "where does the red barn stand", "who tunes the violin"


class RealLibrary(FakeLibrary):
    """Vector DBs on the memory provider's index, which knows the greatest BM25."""

    def register(self, name: str, **settings: Any) -> Any:
        """Register a vector DB and return its index."""
        stored = {
            "identifier": name, "provider_id": "memory", "provider_resource_id": name,
            "embedding_model": "words", "embedding_dimension": DIMENSION,
        }  # fmt: skip
        self.vector_dbs[name] = VectorDB.model_validate({**stored, **settings})
        self.indexes[name] = EngineIndex(memory_engine(self.vector_dbs[name]))
        return self.indexes[name]


async def library(*names: str, **settings: Any) -> RealLibrary:
    """Return vector DBs that all hold the same texts."""
    made = RealLibrary(*names, **settings)
    for name in made.vector_dbs:
        chunks = [Chunk(chunk_id=key, content=text) for key, text in TEXTS.items()]
        await store(made, name, chunks)
    return made


async def test_an_unlikely_answer_is_none() -> None:
    """Below the least confidence nothing is found, and the reason is told; above, everything is.

    If this fails: an agent is handed texts that have nothing to do with its question.
    """
    retrieval = Retrieval(await library())
    known = await retrieval.search("db", KNOWN, min_confidence=0.5)
    unknown = await retrieval.search("db", UNKNOWN, min_confidence=0.5)
    assert (known.hits[0].chunk.chunk_id, known.reason) == ("a", None)
    assert (unknown.hits, unknown.reason) == ([], "nothing_relevant")
    assert known.confidence is not None
    assert unknown.confidence is not None
    assert known.confidence > 0.5 > unknown.confidence
    [step] = [step for step in unknown.steps if step.name == "min_confidence"]
    assert (step.kept, step.removed) == (0, 4)


async def test_each_vector_db_is_judged_by_itself() -> None:
    """One without an answer gives nothing to the context, and the others theirs.

    The confidence of the whole is the largest; the reason is told only where nothing is left.
    """
    made = await library("full", "empty")
    await made.indexes["empty"].delete_chunks(list(TEXTS))
    retrieval = Retrieval(made)
    found = await retrieval.search_many(["full", "empty"], KNOWN, min_confidence=0.5)
    assert {each.vector_db_id for each in found.hits} == {"full"}
    alone = await retrieval.search_many(["full"], KNOWN)
    assert (found.evidence, found.reason) == (alone.evidence, None)
    none = await retrieval.search_many(["full", "empty"], UNKNOWN, min_confidence=0.5)
    assert (none.hits, none.reason) == ([], "nothing_relevant")


async def test_the_best_phrasing_counts() -> None:
    """Of several phrasings the one with the largest confidence decides."""
    retrieval = Retrieval(await library())
    found = await retrieval.search("db", UNKNOWN, queries=[KNOWN], min_confidence=0.5)
    alone = await retrieval.search("db", KNOWN)
    assert found.hits
    assert found.confidence == alone.confidence


async def test_a_search_that_cannot_tell_refuses_a_least_confidence() -> None:
    """Where the keyword index does not rank by BM25, keyword search has no confidence.

    If this fails: the wish is silently ignored.
    """
    plain = FakeLibrary()
    await store(plain, "db", [Chunk(chunk_id="a", content="the red barn")])
    with pytest.raises(InvalidRequest, match="no confidence") as caught:
        await Retrieval(plain).search("db", "barn", mode="keyword", min_confidence=0.5)
    assert caught.value.field == "min_confidence"
