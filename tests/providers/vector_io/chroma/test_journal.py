"""Readers of a collection learn of every write, whoever wrote it and whenever it arrived."""

from __future__ import annotations

import time

import numpy as np
import pytest

from corral.providers.vector_io.chroma import journal
from corral.providers.vector_io.chroma.engine import Upsert
from corral.providers.vector_io.chroma.journal import (
    KEPT_MARKERS,
    Head,
    Writer,
    is_marker,
    read_head,
    written_since,
)

from .fake_collection import FakeCollection


def row(chunk_id: str) -> Upsert:
    """Return one row."""
    return Upsert([chunk_id], [{"content": "x"}], np.array([[1, 0]], dtype=np.float32))


def news(collection: FakeCollection, seen: Head) -> set[str]:
    """Return what a reader that has seen a version finds to be written since."""
    found = written_since(collection, seen.markers, read_head(collection))
    return {row_id for ids in found for row_id in ids}


def test_a_reader_fetches_what_was_written_since_and_nothing_else() -> None:
    """Two writers, several writes each: the news are the rows written after the reader's version.

    If this fails: an answer misses another process's write, or every query reads everything.
    """
    collection = FakeCollection()
    one, two = Writer(collection), Writer(collection)
    one.upsert(row("a"))
    two.upsert(row("b"))
    seen = read_head(collection)
    assert news(collection, Head(frozenset(), 0)) == {"a", "b"}
    assert news(collection, seen) == set()
    one.upsert(row("c"))
    one.upsert(row("a"))
    assert news(collection, seen) == {"a", "c"}
    two.upsert(row("a"))
    two.upsert(row("d"))
    assert news(collection, seen) == {"a", "c", "d"}
    assert read_head(collection) != seen


def test_markers_do_not_count_and_do_not_pile_up() -> None:
    """After 100 writes the count is that of the chunks, and a bounded number of markers lies there.

    A reader that has missed the deleted markers still learns of every row.
    """
    collection = FakeCollection()
    writer = Writer(collection)
    writer.upsert(row("first"))
    seen = read_head(collection)
    for number in range(100):
        writer.upsert(row(f"c{number}"))
    head = read_head(collection)
    assert head.count == 101
    assert len(head.markers) <= KEPT_MARKERS + 1
    assert all(is_marker(marker) for marker in head.markers)
    assert news(collection, seen) == {f"c{number}" for number in range(100)}


def test_a_write_that_arrives_late_is_seen() -> None:
    """A request that timed out, and reaches Chroma after later writes were seen, is news.

    If this fails: after a timeout a chunk may be stored that no keyword search ever finds.
    """
    collection, network = FakeCollection(), FakeCollection()
    writer = Writer(network)
    writer.upsert(row("late"))
    late = dict(network.rows)  # on its way
    network.rows = collection.rows
    writer.upsert(row("b"))
    seen = read_head(collection)
    collection.rows.update(late)
    assert news(collection, seen) == {"late"}
    seen = read_head(collection)
    for number in range(100):
        writer.upsert(row(f"c{number}"))
    assert news(collection, seen) == {f"c{number}" for number in range(100)}


def test_markers_of_processes_that_ended_are_cleared_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker of more than 30 days goes with the housekeeping of any writer; others stay."""
    collection = FakeCollection()
    month = journal.RETIRED_SECONDS * 10**9
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now - month - 10**9)
    Writer(collection).upsert(row("a"))
    monkeypatch.setattr(time, "time_ns", lambda: now - month // 2)
    Writer(collection).upsert(row("b"))
    monkeypatch.undo()
    writer = Writer(collection)
    for _ in range(KEPT_MARKERS + 1):
        writer.upsert(row("c"))
    assert read_head(collection).count == 3
    assert len(read_head(collection).markers) == 2


def test_a_version_survives_as_text() -> None:
    """What a mirror stores of a version is equal when it is read."""
    head = Head(frozenset({"b", "a"}), 7)
    assert Head.load(head.dump()) == head
    assert Head.load("[0]") == Head(frozenset(), 0)
