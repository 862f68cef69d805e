"""Statistics between two queries: how long they are kept, and what ends that."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from corral.providers.vector_io.kit import statistics as module
from corral.providers.vector_io.kit.statistics import KeptStatistics


class Engine:
    """Counts chunks by their words, and how often it was asked."""

    def __init__(self, *chunks: str) -> None:
        self.chunks = list(chunks)
        self.counted = 0
        self.asked: list[str] = []
        self.busy = asyncio.Event()
        self.busy.set()

    async def count(self) -> int:
        self.counted += 1
        found = len(self.chunks)
        await self.busy.wait()
        return found

    async def hold(self, terms: Sequence[str]) -> list[int]:
        self.asked += terms
        return [sum(term in chunk.split() for chunk in self.chunks) for term in terms]

    def kept(
        self, max_age_seconds: float = math.inf, *, lasts: bool = True
    ) -> KeptStatistics[int, str]:
        return KeptStatistics(self.count, self.hold, max_age_seconds, lambda _: lasts)


async def test_what_was_counted_is_not_counted_again() -> None:
    """Only terms that are new are asked for, and those that no chunk held.

    If this fails: each query counts, or a word that another process brings is not found.
    """
    engine = Engine("zebra lion", "zebra")
    kept = engine.kept()
    assert await kept.read(["zebra", "okapi"]) == (2, [2, 0])
    assert await kept.read(["okapi", "lion", "zebra"]) == (2, [0, 1, 2])
    assert (engine.counted, engine.asked) == (1, ["zebra", "okapi", "okapi", "lion"])


async def test_a_write_of_this_process_counts_at_once() -> None:
    """After `forget` everything is counted anew, terms too."""
    engine = Engine("zebra")
    kept = engine.kept()
    await kept.read(["zebra"])
    engine.chunks.append("zebra lion")
    kept.forget()
    assert await kept.read(["zebra", "lion"]) == (2, [2, 1])


async def test_a_write_during_a_count_leaves_nothing_behind() -> None:
    """What was counted while a write ended is used for that query and not kept.

    If this fails: a process does not see its own write until another one.
    """
    engine = Engine("zebra")
    kept = engine.kept()
    engine.busy.clear()
    asked = asyncio.create_task(kept.read(["zebra"]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    engine.chunks.append("zebra")
    kept.forget()
    engine.busy.set()
    await asked
    assert await kept.read(["zebra"]) == (2, [2])


@pytest.mark.parametrize(("seconds", "counted"), [(0.0, 2), (4.0, 2), (6.0, 1)])
async def test_the_age_is_bounded(
    monkeypatch: pytest.MonkeyPatch, seconds: float, counted: int
) -> None:
    """Five seconds after a count it is repeated, if that is older than the setting allows."""
    engine = Engine("zebra")
    kept = engine.kept(seconds)
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    await kept.read(["zebra"])
    engine.chunks.append("zebra")
    now[0] += 5.0
    assert await kept.read(["zebra"]) == (counted, [counted])
    assert engine.counted == counted


async def test_the_age_begins_with_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count that took three seconds of four is kept for one more.

    If this fails: on a slow server a query sees counts that are older than the setting allows.
    """
    engine = Engine("zebra")
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    kept = engine.kept(4.0)
    engine.busy.clear()
    asked = asyncio.create_task(kept.read(["zebra"]))
    await asyncio.sleep(0)
    now[0] += 3.0
    engine.busy.set()
    await asked
    engine.chunks.append("zebra")
    assert await kept.read(["zebra"]) == (1, [1])
    now[0] += 1.5
    assert await kept.read(["zebra"]) == (2, [2])


async def test_statistics_that_hide_new_chunks_are_not_kept() -> None:
    """Where they do not last they are counted for each query, unless nobody else can write."""
    engine = Engine("zebra")
    shared, own = engine.kept(60.0, lasts=False), engine.kept(lasts=False)
    for kept in (shared, shared, own, own):
        await kept.read(["zebra"])
    assert engine.counted == 3
