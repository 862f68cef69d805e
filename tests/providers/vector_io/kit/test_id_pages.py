"""Pages of ids from an engine without an order: right, and without reading all ids for each."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from corral.providers.vector_io.kit.id_pages import IdPages


class Engine:
    """Ids in any order, and how often all of them were read."""

    def __init__(self, ids: set[str]) -> None:
        self.ids = ids
        self.pages = IdPages()
        self.reads = 0
        self.version = 0

    def page(self, after: str, limit: int) -> list[str]:
        """Return a page as a provider does."""
        return self.pages.page(after, limit, self.version, self.read)

    def read(self) -> Iterator[str]:
        """Yield all ids."""
        self.reads += 1
        shuffled = list(self.ids)
        random.Random(7).shuffle(shuffled)
        yield from shuffled

    def walk(self, limit: int) -> list[str]:
        """Return all ids, page by page."""
        found, page = [], self.page("", limit)
        while len(page) == limit:
            found += page
            page = self.page(page[-1], limit)
        return found + page


def ids(count: int) -> set[str]:
    """Return so many ids."""
    return {f"c{number:04}" for number in range(count)}


@pytest.mark.parametrize("limit", [1, 7, 100, 999, 1000, 1001])
def test_a_walk_reads_once(limit: int) -> None:
    """Every id comes once, in order, whatever the page, from one reading of the engine.

    If this fails by `reads`: a copy of n chunks reads n * n / page ids.
    """
    engine = Engine(ids(1000))
    assert engine.walk(limit) == sorted(engine.ids)
    assert engine.reads <= 2  # a last full page is followed by an empty one


def test_what_is_kept_is_bounded() -> None:
    """More ids than are kept take a reading for each such number of them."""
    engine = Engine(ids(1000))
    engine.pages = IdPages(300)
    assert engine.walk(50) == sorted(engine.ids)
    assert engine.reads == 4
    assert engine.walk(300) == sorted(engine.ids)


def test_a_write_is_seen_by_the_next_page() -> None:
    """After a write of this process, a walk goes on with what is there then."""
    engine = Engine(ids(100))
    assert engine.page("", 10)[-1] == "c0009"
    engine.ids = (engine.ids | {"c0009x"}) - {"c0010"}
    engine.pages.forget()
    assert engine.page("c0009", 2) == ["c0009x", "c0011"]


def test_a_write_of_another_process_is_seen_by_the_next_page() -> None:
    """It changes the version, and what was kept under another one is not used."""
    engine = Engine(ids(100))
    assert engine.page("", 10)[-1] == "c0009"
    engine.ids.add("c0009x")
    engine.version += 1
    assert engine.page("c0009", 2) == ["c0009x", "c0010"]
    assert engine.page("c0010", 2) == ["c0011", "c0012"]
    assert engine.reads == 2


def test_a_write_during_a_reading_leaves_nothing() -> None:
    """What was read while a write went on is no ground for later pages."""
    engine = Engine(ids(100))

    def read() -> Iterator[str]:
        yield from engine.ids
        engine.ids = engine.ids - {"c0010"}
        engine.pages.forget()

    assert engine.pages.page("", 10, 0, read) == sorted(engine.ids)[:10]
    assert engine.page("c0009", 1) == ["c0011"]


def test_only_the_walk_itself_goes_on() -> None:
    """Another place, or the beginning again, is read anew: it shows what is there now."""
    engine = Engine(ids(100))
    engine.page("", 10)
    engine.ids.add("a")  # by another process
    assert engine.page("", 10)[0] == "a"
    assert engine.page("c0050", 2) == ["c0051", "c0052"]
    assert engine.reads == 3
