"""The second process of the suite: one for all its tests, as long as it lives and is free."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_toy_conformance import TestToy as Toy

from corral.api.testing.indexes import Handle, Indexes
from corral.api.testing.processes import second_process


@pytest.fixture
def indexes(tmp_path: Path) -> Iterator[Indexes]:
    """Open indexes of the toy suite."""
    with asyncio.Runner() as runner:
        indexes = Indexes(Toy(), tmp_path, runner)
        yield indexes
        indexes.drop_all()


@pytest.fixture
def index(indexes: Indexes) -> Handle:
    """Open an index with a chunk."""
    index = indexes.open()
    index.add_texts({"a": "zebra"})
    return index


def test_a_process_that_is_free_is_taken_again(indexes: Indexes, index: Handle) -> None:
    """Its second task sees what was written since the first.

    If this fails: each test waits for the imports of its engine, or sees the index of an earlier.
    """
    assert indexes.in_another_process(index, ("count", None)) == [1]
    process = second_process(Toy)
    index.add_texts({"b": "lion"})
    assert indexes.in_another_process(index, ("count", None)) == [2]
    assert second_process(Toy) is process


def test_a_process_that_breaks_down_fails_its_test_alone(indexes: Indexes, index: Handle) -> None:
    """The test is told how it ended; the next test gets another process."""
    with pytest.raises(AssertionError, match="the second process ended with 1"):
        indexes.in_another_process(index, ("no such step", None))
    assert indexes.in_another_process(index, ("count", None)) == [1]


def test_a_process_is_not_taken_while_it_works(indexes: Indexes, index: Handle) -> None:
    """What a test has left at work is killed, and says what it had done until then."""
    busy = indexes.begin_in_another_process(index, ("versions", ("d", 0, 10_000, 1)))
    assert busy.said() == 0
    assert not busy.serves(Toy)
    assert busy.kill()[:1] in ([], [1])
    assert indexes.in_another_process(index, ("count", None)) == [2]
