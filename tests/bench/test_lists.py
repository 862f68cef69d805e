"""What `corral bench bounds --only lists` measures."""

from __future__ import annotations

from corral.bench.speed.lists import measure_lists


async def test_recall_of_lists_is_reported_with_their_time() -> None:
    """An IVF index over all chunks is asked beside the exact search of the same file.

    If this fails: what approximation misses is not measured, or no index was built.
    """
    speed, recall, built = await measure_lists(1500)
    assert "ms against" in speed.figure
    assert recall.holds, recall
    assert float(recall.figure) <= 1.0
    assert built.figure.startswith("38 lists, 1 MiB,")  # one for 39 chunks
    assert built.holds, built
