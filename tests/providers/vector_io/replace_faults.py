"""What holds of every backend when it carries out a write and its answer is lost; for subclasses.

A backend joins with a subclass that says how an index is opened, and how its own engine is made to
carry out what writes or deletes rows and fail all the same: a trigger in a database, or the lowest
call to the driver, patched to do its work and then raise what the driver raises.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import ProviderError
from corral.api.vector_dbs import VectorDB

from .registrations import registration

Late = Literal["write", "delete", "both"]
"""Which requests of the engine answer too late."""

OLD = {"a": "zebra old", "b": "zebra old", "c": "zebra old"}
NEW = {
    "apart": {"x": "zebra new", "y": "zebra new"},
    "overlapping": {"b": "zebra new", "c": "zebra new", "x": "zebra new", "y": "zebra new"},
    "shorter": {"a": "zebra new"},
    "empty": {},
}
"""New versions of the document, by how their chunk ids lie to the old one's."""


class ReplaceFaults(ABC):
    """A request whose answer is lost never costs the last whole version of a document."""

    @abstractmethod
    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Return the index of a vector DB, made where it is absent."""

    @abstractmethod
    def late(self, index: EmbeddingIndex, what: Late) -> AbstractContextManager[object]:
        """Return a context in which such requests are carried out and then fail."""

    @pytest.mark.parametrize("what", ["write", "delete", "both"])
    @pytest.mark.parametrize("kind", NEW)
    async def test_no_version_is_lost_when_an_answer_is(
        self, kind: str, what: Late, tmp_path: Path
    ) -> None:
        """A document is replaced, the engine does what it is told and the answer does not come: the
        old version or the new one is there, whole. Sent again, the new one is there and no other.

        If this fails: the write was undone after the old version had been deleted, or what is kept
        beside the engine did not learn what the engine had done.
        """

        index = await self.open_index(registered(), tmp_path)
        new = NEW[kind]
        await send(index, OLD)
        with self.late(index, what):
            await refused_or_done(send(index, new))
        found = await stored(index)
        assert OLD.items() <= found.items() or new.items() <= found.items(), found
        await check(index, found)
        await send(index, new)
        assert await stored(index) == new
        await check(index, new)
        await index.delete()

    @pytest.mark.parametrize("what", ["write", "delete", "both"])
    async def test_a_deletion_whose_answer_is_lost_can_be_sent_again(
        self, what: Late, tmp_path: Path
    ) -> None:
        """Counts and every leg agree on what the engine did, and the second call ends it.

        If this fails: a chunk that is gone is still counted or found.
        """

        index = await self.open_index(registered(), tmp_path)
        await send(index, OLD)
        with self.late(index, what):
            await refused_or_done(index.delete_chunks(["a", "b"]))
        await check(index, await stored(index))
        await index.delete_chunks(["a", "b"])
        await check(index, {"c": OLD["c"]})
        await index.delete()


async def send(index: EmbeddingIndex, texts: dict[str, str]) -> None:
    """Send a version of the document "d"."""
    metadata = {"document_id": "d"}
    chunks = [Chunk(chunk_id=i, content=text, metadata=metadata) for i, text in texts.items()]
    rows = np.random.default_rng(len(texts)).normal(size=(len(chunks), 2))
    await index.add_chunks(chunks, rows, replace_documents={"d"})


async def refused_or_done(work: Any) -> None:
    """Wait for work that may fail with the contract's error, and with no other."""
    try:
        await work
    except ProviderError:
        return


async def stored(index: EmbeddingIndex) -> dict[str, str]:
    """Return the text of each chunk that can be got by id."""
    return {chunk.chunk_id: chunk.content for chunk in await index.get_chunks(list("abcxy"))}


async def check(index: EmbeddingIndex, expected: dict[str, str]) -> None:
    """Compare what each leg, the count and the list of ids see."""
    assert await index.count() == len(expected)
    assert await index.chunk_ids("", limit=10) == sorted(expected)
    for mode in ("vector", "keyword", "hybrid"):
        answer = await index.query([1, 0], "zebra", k=10, mode=mode)
        assert {chunk.chunk_id: chunk.content for chunk in answer.chunks} == expected, mode


def registered() -> VectorDB:
    """Return a registration of its own."""
    return registration("farm", language="simple", created_at=time.time())


@contextmanager
def failing_afterwards(
    owner: Any, methods: Sequence[str], failure: Callable[[], Exception]
) -> Iterator[None]:
    """Have methods of a driver do their work and then raise."""

    def late(real: Callable[..., Any]) -> Callable[..., object]:
        async def awaited_and_raised(*arguments: object, **options: object) -> object:
            await real(*arguments, **options)
            raise failure()

        def done_and_raised(*arguments: object, **options: object) -> object:
            real(*arguments, **options)
            raise failure()

        return awaited_and_raised if iscoroutinefunction(real) else done_and_raised

    with pytest.MonkeyPatch.context() as patch:
        for method in methods:
            patch.setattr(owner, method, late(getattr(owner, method)))
        yield


def methods_of(what: Late, write: str, delete: str) -> list[str]:
    """Return which of two methods answer late."""
    return {"write": [write], "delete": [delete], "both": [write, delete]}[what]
