"""Standard tests: many tasks at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from corral.api.errors import NotFound
from corral.api.testing.hybrid import filled
from corral.api.testing.indexes import PLAIN, Handle, Indexes, chunk, ids
from corral.api.testing.suite import Suite

WORDS = dict.fromkeys("abc", "zebra")


class ConcurrencyTests(Suite):
    """An index is safe to call from many tasks."""

    def test_concurrent_adds_are_all_kept(self, indexes: Indexes) -> None:
        """30 tasks add two chunks each: 60 chunks, each found by word and by vector.

        If this fails: a writer read the old state and overwrote another writer's chunks.
        """
        index = indexes.open(**PLAIN)

        async def add(number: int) -> None:
            await asyncio.sleep(0)
            chunks = [chunk(f"c{number:02}{half}", f"word{number}") for half in "ab"]
            await index.index.add_chunks(chunks, [[1, 0], [0, 1]])

        indexes.together(*[add(number) for number in range(30)])
        assert index.count() == 60
        if "vector" in self.capabilities.modes:
            assert len(index.vector([1, 0], k=100).hits) == 60
        if "keyword" in self.capabilities.modes:
            for number in range(30):
                assert ids(index.keyword(f"word{number}")) == [f"c{number:02}a", f"c{number:02}b"]

    def test_concurrent_upserts_of_one_chunk_leave_one(self, indexes: Indexes) -> None:
        """20 tasks write one id: one chunk remains, with text and embedding of the same task."""
        index = indexes.open(dimension=3, **PLAIN)

        async def add(number: int) -> None:
            await asyncio.sleep(0)
            vector = [1.0, float(number), 0.0]
            await index.index.add_chunks([chunk("a", f"word{number}")], [vector])

        indexes.together(*[add(number) for number in range(20)])
        assert index.count() == 1
        [stored] = index.get("a", include_embeddings=True)
        number = int(stored.content.removeprefix("word"))
        embedding = stored.embedding or [1.0, -1.0, 0.0]
        assert round(embedding[1] / embedding[0]) == number
        if "keyword" in self.capabilities.modes:
            assert ids(index.keyword(" ".join(f"word{n}" for n in range(20)))) == ["a"]

    def test_reading_while_writing(self, indexes: Indexes) -> None:
        """Queries during adds and deletes return sorted hits and find the unchanged chunks."""
        index = indexes.open(dimension=3, **PLAIN)
        filled(index)

        async def write() -> None:
            for number in range(15):
                name = f"new{number}"
                await index.index.add_chunks([chunk(name, "w1 w2")], [[1, 2, -1]])
                await index.index.delete_chunks([name])

        async def read(mode: str) -> None:
            for _ in range(15):
                response = await index.index.query([1, 2, -1], "w1 w2", 100, mode=mode)
                assert response.scores == sorted(response.scores, reverse=True)
                if mode == "vector":
                    assert {f"c{n:02}" for n in range(80)} <= set(ids(response))
                await asyncio.sleep(0)

        indexes.together(write(), *[read(mode) for mode in self.capabilities.modes * 2])
        assert index.count() == 80

    @pytest.mark.parametrize("others", [0, 1])
    def test_dropping_under_queries(self, indexes: Indexes, others: int) -> None:
        """A query of a vector DB that is dropped answers in full or with NotFound, 10 times of 10.

        Queries of another vector DB that stays, if there is one, answer in full.

        If this fails: a connection that indexes share is closed with the first or the last index
        while calls use it; or the index releases a resource before its last call has ended.
        """
        left = [_filled_with(indexes.open(f"other{n}", **PLAIN), WORDS) for n in range(others)]
        for number in range(10):
            index = _filled_with(indexes.open(f"db{number}", **PLAIN), WORDS)
            queries = [
                _Asked(each, mode) for each in (index, *left) for mode in self.capabilities.modes
            ]

            asking = queries * 2
            started = asyncio.Barrier(len(asking) + 1)

            async def drop(
                index: Handle = index,
                queries: Sequence[_Asked] = queries,
                started: asyncio.Barrier = started,
            ) -> None:
                await started.wait()
                await indexes.dropped(index)
                for one in queries:
                    one.last = True

            indexes.together(drop(), *[one.ask(started) for one in asking])
        for index in left:
            assert index.count() == len(WORDS)

    def test_a_write_is_seen_by_the_next_query(self, indexes: Indexes) -> None:
        """Once add_chunks or delete_chunks has returned, the next query always sees the write."""
        index = indexes.open(**PLAIN)
        for number in range(20):
            index.add([chunk(f"c{number:02}", "zebra")])
            for mode in self.capabilities.modes:
                assert len(index.search(mode, [1, 0], "zebra", k=100).hits) == number + 1
        for number in range(20):
            index.remove(f"c{number:02}")
            for mode in self.capabilities.modes:
                assert len(index.search(mode, [1, 0], "zebra", k=100).hits) == 19 - number


class _Asked:
    """Queries an index until it is stopped or the index is dropped."""

    def __init__(self, handle: Handle, mode: str) -> None:
        self._handle, self._mode = handle, mode
        self.last = False

    async def ask(self, started: asyncio.Barrier) -> None:
        """Query once, wait until all other tasks have a first answer, then query repeatedly."""
        await self._answer()
        await started.wait()
        while not self.last:
            try:
                await self._answer()
            except NotFound:
                return
            await asyncio.sleep(0)

    async def _answer(self) -> None:
        response = await self._handle.index.query([1, 0], "zebra", mode=self._mode)
        assert ids(response) == list(WORDS)


def _filled_with(handle: Handle, texts: Mapping[str, str]) -> Handle:
    handle.add_texts(texts)
    return handle
