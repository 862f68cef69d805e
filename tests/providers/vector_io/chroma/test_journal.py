"""Readers of a collection learn of every write, whoever wrote it and whenever it arrived."""

from __future__ import annotations

import time

import numpy as np
import pytest

from corral.api.errors import Unavailable
from corral.providers.vector_io.chroma.keyword import journal
from corral.providers.vector_io.chroma.keyword.journal import (
    MOST_MARKERS,
    Head,
    Writer,
    fold,
    read_head,
    read_news,
    written_since,
)
from corral.providers.vector_io.chroma.records import Upsert, is_marker

from .fake_collection import FakeCollection


def row(chunk_id: str) -> Upsert:
    """Return one row."""
    return Upsert([chunk_id], [{"content": "x"}], np.array([[1, 0]], dtype=np.float32))


def news(collection: FakeCollection, seen: Head) -> set[str]:
    """Return what a reader that has seen a version finds to be written since."""
    found = written_since(collection, seen, read_news(collection, seen))
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


def test_a_ledger_is_as_far_out_as_the_longest_marker() -> None:
    """However the lengths of embeddings differ, no ledger lies closer to the origin than they do.

    If this fails: under L2 it is nearer to rows than they are to each other, and takes the edges of
    Chroma's graph.
    """
    collection = FakeCollection()
    for length in (1, 50, 2):
        embeddings = np.array([[0, length]], dtype=np.float32)
        Writer(collection).upsert(Upsert([f"c{length}"], [{"content": "x"}], embeddings))
    fold(collection, 1)
    [ledger] = [one for one in collection.get().ids if is_marker(one)]
    found = collection.get([ledger], include=("embeddings",)).embeddings
    assert found is not None
    assert found.tolist() == [[50, 0]]


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
    assert len(head.markers) <= MOST_MARKERS + 1
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
    for _ in range(MOST_MARKERS + 1):
        writer.upsert(row("c"))
    assert read_head(collection).count == 3
    assert len(read_head(collection).markers) == 2


def test_a_version_survives_as_text() -> None:
    """What a mirror stores of a version is equal when it is read."""
    head = Head(frozenset({"b", "a"}), 7)
    assert Head.load(head.dump()) == head
    assert Head.load("[0]") == Head(frozenset(), 0)


@pytest.mark.parametrize("seed", range(20))
def test_a_fold_hides_nothing(seed: int) -> None:
    """Writers write, time out, end and are killed at random, anyone folds at any time: a reader of
    any earlier version, also one that has seen some of the folds, learns of every row since.

    If this fails: what a process wrote last is missing in another one's keyword searches.
    """
    rng = np.random.default_rng(seed)
    collection, network = FakeCollection(), FakeCollection()
    writers = [Writer(collection) for _ in range(3)]
    held: dict[str, int] = {}  # what a reader has: the number of the row's write
    seen = Head(frozenset(), 0)
    late: list[Upsert] = []
    for step in range(120):
        place, action = int(rng.integers(3)), rng.random()
        if action < 0.6:
            writers[place].upsert(row(f"c{rng.integers(12)}"))
        elif action < 0.7:  # a write whose request is on its way for a while
            sender = writers[place]
            sender._collection = network
            network.failures = ["upsert"]
            with pytest.raises(Unavailable):
                sender.upsert(row(f"late{step}"))
            network.failures = []
            sender._collection = collection
            on_its_way = Upsert(
                [f"late{step}", journal._row_id(sender._id, sender._number)],
                [
                    {"content": "x", "writer": sender._id, "number": sender._number},
                    {"marker": "corral", "writer": sender._id, "number": sender._number},
                ],
                np.array([[1, 0], [1, 0]], dtype=np.float32),
            )
            late.append(on_its_way)
        elif action < 0.8 and late:
            collection.upsert(late.pop(int(rng.integers(len(late)))))
        elif action < 0.9:  # it ends, or is killed
            if rng.random() < 0.5:
                writers[place].close()
            writers[place] = Writer(collection)
        else:
            fold(collection, int(rng.integers(3)))
        if rng.random() < 0.15:
            head = read_news(collection, seen)
            for ids in written_since(collection, seen, head):
                held.update({i: collection.rows[i][0]["number"] for i in ids})
            seen = head
            chunks = {i: m["number"] for i, (m, _) in collection.rows.items() if not is_marker(i)}
            assert held == chunks, step


def test_processes_that_end_leave_one_row() -> None:
    """A hundred writers, one after the other, each closed: one ledger. A hundred that are killed,
    and then one fold: one ledger. Neither changes the count.
    """
    collection = FakeCollection()
    for number in range(100):
        writer = Writer(collection)
        writer.upsert(row(f"c{number}"))
        writer.close()
    assert len(read_head(collection).markers) == 1
    for number in range(100):
        Writer(collection).upsert(row(f"c{number}"))
    assert len(read_head(collection).markers) == 101
    fold(collection, MOST_MARKERS)
    head = read_head(collection)
    assert (len(head.markers), head.count) == (1, 100)
    Writer(collection).close()  # which has written nothing
    assert read_head(collection) == head
