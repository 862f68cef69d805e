"""Writes are cut into requests within both limits, in order."""

from __future__ import annotations

from corral.providers.vector_io.kit.batches import batches, runs


def test_batches_keep_order_and_both_limits() -> None:
    """No batch is over a limit but for an item that is, and together they are the items.

    If this fails: a server refuses a request as too large, or a chunk is written twice or never.
    """
    sizes = [3, 3, 3, 9, 1, 1, 1, 1]
    assert list(batches(sizes, int, 100, 6)) == [[3, 3], [3], [9], [1, 1, 1, 1]]
    assert list(batches(sizes, int, 3, 100)) == [[3, 3, 3], [9, 1, 1], [1, 1]]
    assert list(batches(sizes, int, 1, 1)) == [[size] for size in sizes]


def test_nothing_makes_no_batch() -> None:
    """No items, no request.

    If this fails: an empty write is sent to a server, which refuses it.
    """
    assert list(batches([], int, 3, 3)) == []
    assert list(runs([], 3)) == []


def test_runs_hold_all_items() -> None:
    """Each run but the last is full.

    If this fails: the last chunks of a long list of ids are not read.
    """
    assert list(runs("abcdefg", 3)) == ["abc", "def", "g"]
