"""Chunks as rows, and writes of several requests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.errors import Unavailable
from corral.providers.vector_io.chroma.client import ATTEMPTS, UnknownIds
from corral.providers.vector_io.chroma.keyword.journal import Writer
from corral.providers.vector_io.chroma.records import (
    Rows,
    Upsert,
    batches,
    chunks_of,
    is_marker,
    records,
)

from .fake_collection import FakeCollection


def upsert_of(*names: str, content: str = "new") -> Upsert:
    """Return a row for each name."""
    chunks = [Chunk(chunk_id=name, content=content) for name in names]
    return records(chunks, np.full((len(names), 2), 0.5, dtype=np.float32))


def texts(collection: FakeCollection) -> dict[str, str]:
    """Return the text of each chunk."""
    return {i: row[0]["content"] for i, row in collection.rows.items() if not is_marker(i)}


def test_rows_are_cut_by_number_and_by_size() -> None:
    """No batch is over a limit, none is empty, and together they are the rows in order."""
    some = upsert_of(*"abcdefg")
    assert [list(part.ids) for part in batches(some, 3, 10**6)] == [
        ["a", "b", "c"], ["d", "e", "f"], ["g"]
    ]  # fmt: skip
    size = 8 + len("new") + len("{}")
    assert [len(part) for part in batches(some, 100, 2 * size)] == [2, 2, 2, 1]
    assert [len(part) for part in batches(some, 100, 1)] == [1] * 7


@pytest.mark.parametrize("failing", range(2))
def test_a_write_of_several_requests_that_fails_is_undone(failing: int) -> None:
    """Of two requests that write any one fails: the old chunks are as before, no new one is there.

    If this fails: a failed insert leaves half a document behind.
    """
    collection = FakeCollection()
    writer = Writer(collection)
    writer.replace(upsert_of("a", "old", content="before"), [])
    collection.failures = [*[""] * failing, "upsert"]
    with pytest.raises(Unavailable):
        writer.replace(upsert_of(*"abcd"), ["old"])
    assert texts(collection) == {"a": "before", "old": "before"}
    writer.replace(upsert_of(*"abcd"), ["old"])
    assert texts(collection) == dict.fromkeys("abcd", "new")


def test_a_delete_that_fails_undoes_nothing() -> None:
    """All is written and the old chunk cannot be deleted: both versions are there, until the new
    one is sent again. Whether a delete that failed was carried out nobody can say.

    If this fails: a delete that was carried out, and whose answer was lost, costs both versions.
    """
    collection = FakeCollection()
    writer = Writer(collection)
    writer.replace(upsert_of("a", "old", content="before"), [])
    collection.failures = ["", "", "delete"]
    with pytest.raises(Unavailable):
        writer.replace(upsert_of(*"abcd"), ["old"])
    assert texts(collection) == {**dict.fromkeys("abcd", "new"), "old": "before"}
    writer.replace(upsert_of(*"abcd"), ["old"])
    assert texts(collection) == dict.fromkeys("abcd", "new")


def test_the_first_failure_is_told_when_undoing_fails_too() -> None:
    """Chroma goes away for good in the middle: the error is the contract's, and names it."""
    collection = FakeCollection()
    collection.failures = ["", "upsert", "delete", "delete"]
    with pytest.raises(Unavailable, match="down"):
        Writer(collection).replace(upsert_of(*"abcd"), [])


def test_an_upsert_leaves_nothing_of_the_old_row() -> None:
    """Every row has the same metadata keys, since Chroma merges them."""
    plain = Chunk(chunk_id="a", content="x")
    recorded = Chunk(chunk_id="a", content="x", chunk_metadata={"source": "s"})
    embedding = np.array([[1, 0]], dtype=np.float32)
    keys = {frozenset(records([c], embedding).metadatas[0]) for c in (plain, recorded)}
    assert len(keys) == 1


@pytest.mark.parametrize("refusals", [ATTEMPTS - 1, ATTEMPTS])
def test_rows_deleted_while_they_are_read_are_passed_over(
    refusals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chroma looks up ids first and embeddings then, and fails where a row is deleted in between:
    it is read again, a few times, and then the failure is told.

    If this fails: a query while others replace a document is an error.
    """
    collection, asked = FakeCollection(), []
    collection.upsert(upsert_of("a", "b"))
    get = collection.get

    def refusing(ids: Sequence[str], include: Sequence[str]) -> Rows:
        asked.append(ids)
        if len(asked) <= refusals:
            raise UnknownIds("fake: a chunk is gone")
        return get(ids, include=include)

    monkeypatch.setattr(collection, "get", refusing)
    if refusals == ATTEMPTS:
        with pytest.raises(UnknownIds):
            list(collection.read(["a", "b"], ("metadatas", "embeddings")))
        return
    [found] = collection.read(["a", "b", "c"], ("metadatas", "embeddings"))
    assert [chunk.chunk_id for chunk in chunks_of(found)] == ["a", "b"]
