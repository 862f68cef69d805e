"""Without a question, filters alone choose the chunks, in the order of a metadata field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from corral.api.checks import MAX_IDS
from corral.api.chunks import Chunk
from corral.api.errors import InvalidRequest
from corral.api.filters import Filter
from corral.api.principal import Principal, Role
from corral.api.rag import RAGQueryConfig
from corral.providers.ingestion.storing import store
from corral.providers.rag.search import Retrieval
from corral.providers.rag.tool import RagTool

from .fake_library import FakeLibrary, SharedWordsEngine

YEAR = {"key": "year"}
EVERY = {"type": "ne", "key": "never", "value": 0}


def chunk(chunk_id: str, text: str = "", **metadata: Any) -> Chunk:
    """Return a chunk."""
    return Chunk(content=text or f"text of {chunk_id}", chunk_id=chunk_id, metadata=metadata)


class TooMany(SharedWordsEngine):
    """An index with more chunks than can be ordered; it makes those that are read."""

    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return [f"n{number:06}" for number in range(limit)]

    async def chunk_ids_passing(self, after: str, limit: int, filters: Filter) -> Sequence[str]:
        return await self.chunk_ids(after, limit)

    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        return [chunk(each) for each in chunk_ids]


async def listed(library: FakeLibrary, *names: str, k: int = 100, **options: Any) -> list[str]:
    """Return the ids of what a request without a question lists."""
    found = await Retrieval(library).search_many(names or ("db",), "", k=k, **options)
    assert {each.hit.score for each in found.hits} <= {1.0}
    assert found.evidence.confidence is None
    return [each.hit.chunk.chunk_id for each in found.hits]


async def test_chunks_are_ordered_by_a_field() -> None:
    """Booleans, numbers, texts by code point; ties by id; what has no value is last both ways.

    Of a list the smallest element counts, descending the largest.

    If this fails: the order of a listing depends on the engine, or on the order of inserts.
    """
    values: dict[str, Any] = {
        "no": False, "yes": True, "b-two": 2.0, "a-two": 2, "minus": -1, "half": 2.5,
        "list": [3, -5, "x"], "huge": 10**30, "digit": "2", "upper": "B", "lower": "a", "e": "é",
        "none": None, "nested": {"a": 1}, "empty": [], "nests": [[1]],
    }  # fmt: skip
    chunks = [chunk(name, year=value) for name, value in values.items()]
    chunks.append(chunk("absent"))
    last = ["absent", "empty", "nested", "nests", "none"]
    for seed in range(3):
        library = FakeLibrary()
        shuffled = [chunks[n] for n in np.random.default_rng(seed).permutation(len(chunks))]
        await store(library, "db", shuffled)
        numbers = ["minus", "a-two", "b-two", "half", "huge"]
        rising = ["no", "yes", "list", *numbers, "digit", "upper", "lower", "e"]
        assert await listed(library, order_by=YEAR) == [*rising, *last]
        falling = [
            "e",
            "list",
            "lower",
            "upper",
            "digit",
            "huge",
            "half",
            "a-two",
            "b-two",
            "minus",
        ]
        descending = {**YEAR, "direction": "desc"}
        assert await listed(library, order_by=descending) == [*falling, "yes", "no", *last]
        assert await listed(library, order_by=descending, k=3) == falling[:3]
        assert await listed(library, filters=EVERY) == sorted([*values, "absent"])


async def test_filters_choose_and_the_order_ranks() -> None:
    """Only chunks that pass are listed; `k` counts them; nothing is embedded or searched.

    If this fails: a request without a question asks a model or an engine about an empty text.
    """
    library = FakeLibrary()
    await store(library, "db", [chunk(f"c{n}", year=n, even=n % 2 == 0) for n in range(9)])
    even = {"type": "eq", "key": "even", "value": True}
    library.embedders.clear()
    assert await listed(library, filters=even, order_by={**YEAR, "direction": "desc"}, k=2) == [
        "c8",
        "c6",
    ]
    assert library.engines["db"].queries == []


async def test_several_vector_dbs_are_one_list() -> None:
    """Chunks of all are in one order; at equal values by chunk id, then by vector DB id.

    If this fails: vector DBs follow one another, or take turns.
    """
    library = FakeLibrary("b", "a", "c")
    for name, years in (("b", [3, 1, 2]), ("a", [2, 9]), ("c", [])):
        chunks = [chunk(f"c{n}", year=year) for n, year in enumerate(years)]
        await store(library, name, chunks)
    found = await Retrieval(library).search_many(["b", "a", "c"], "", k=9, order_by=YEAR)
    places = [(each.vector_db_id, each.hit.chunk.metadata["year"]) for each in found.hits]
    assert places == [("b", 1), ("a", 2), ("b", 2), ("b", 3), ("a", 9)]
    assert [each.rank for each in found.hits] == [1, 1, 2, 3, 2]
    assert await listed(library, "b", "a", filters=EVERY) == ["c0", "c0", "c1", "c1", "c2"]


async def test_a_context_is_made_of_what_passes() -> None:
    """The RAG tool fills its budget in the order of the field, and says why each chunk is in.

    If this fails: retrieval by filter alone gives no context, or one beyond its budget.
    """
    library = FakeLibrary()
    texts = [chunk(f"c{n}", f"entry {n} " + "hay " * 20, year=2000 + n) for n in range(40)]
    await store(library, "db", texts)
    since = {"type": "gte", "key": "year", "value": 2010}
    config = {"filters": since, "order_by": {**YEAR, "direction": "desc"}, "max_chunks": 30}
    tool = RagTool(library)
    found = await tool.query(" \n", ["db"], RAGQueryConfig(**config, max_tokens_in_context=600))
    said = found.metadata
    assert said["token_count"] <= 600
    count = len(said["chunk_ids"])
    assert 3 < count < 30
    assert said["chunk_ids"] == [f"c{n}" for n in range(39, 39 - count, -1)]
    assert set(said["scores"]) == {1.0}
    assert said["dropped_by_reason"] == {"budget": 30 - count}
    assert "confidence" not in said
    whole = await tool.query("", ["db"], RAGQueryConfig(filters=since, explain=True))
    assert whole.metadata["chunk_ids"] == ["c10", "c11", "c12", "c13", "c14"]
    [step] = whole.metadata["steps"]["db"]
    assert (step["name"], step["kept"]) == ("list", 5)


async def test_duplicates_leave_no_place_free() -> None:
    """Chunks with the same text, and too many of a document, make room for those that follow.

    If this fails: a context is short though more chunks pass.
    """
    library = FakeLibrary()
    same = [chunk(f"a{n}", "the same", year=n) for n in range(20)]
    of_one = [chunk(f"b{n}", year=100 + n, document_id="d") for n in range(20)]
    others = [chunk(f"c{n}", year=200 + n) for n in range(3)]
    await store(library, "db", [*others, *of_one, *same])
    config = {"order_by": YEAR, "max_chunks": 5, "max_chunks_per_document": 2}
    found = await RagTool(library).query("", ["db"], RAGQueryConfig(**config))
    assert found.metadata["chunk_ids"] == ["a0", "b0", "b1", "c0", "c1"]
    assert found.metadata["dropped_by_reason"] == {"duplicate": 19, "document_cap": 18}


async def test_only_what_the_reader_sees_is_listed() -> None:
    """A hidden chunk is in no list, and takes nobody's place.

    If this fails: a listing shows, or counts, what is closed to the reader.
    """
    library = FakeLibrary()
    shared = [chunk(f"c{n}", year=n) for n in range(4)]
    closed = [each.model_copy(update={"acl": ["user:bob"]}) for each in shared[:3]]
    await store(library, "db", [*closed, shared[3]])
    ann = Principal("", user="ann", role=Role.READER)

    class AnnsLibrary(FakeLibrary):
        async def index(self, vector_db_id: str) -> Any:
            return library.indexes[vector_db_id].scoped_to(ann)

    assert await listed(AnnsLibrary(), order_by=YEAR, k=1) == ["c3"]
    assert await listed(AnnsLibrary(), filters=EVERY, k=1) == ["c3"]


async def test_what_cannot_be_listed_is_refused() -> None:
    """A question with an order, an order without a key or with too many chunks: the error says so.

    If this fails: an option is ignored in silence, or one request reads a whole vector DB.
    """
    library = FakeLibrary()
    await store(library, "db", [chunk("c")])
    retrieval = Retrieval(library)
    with pytest.raises(InvalidRequest, match="order_by is for requests without a question"):
        await retrieval.search("db", "hay", order_by=YEAR)
    for wrong in ({"key": ""}, {"direction": "asc"}, {"key": "a", "direction": "up"}, "year"):
        with pytest.raises(InvalidRequest, match="order_by"):
            await retrieval.search("db", "", order_by=wrong)
    with pytest.raises(InvalidRequest, match=r"The question is empty.*/v1/vector-io/list.*filters"):
        await retrieval.search("db", "")
    library.use(TooMany(library.vector_dbs["db"]))
    with pytest.raises(InvalidRequest, match=f"{MAX_IDS} or more chunks .*'db' pass"):
        await retrieval.search("db", "", order_by=YEAR)
    assert await listed(library, filters=EVERY, k=2) == ["n000000", "n000001"]
