"""What `python -m lab.bounds --only lists` measures."""

from __future__ import annotations

from click.testing import CliRunner

from lab.bounds import main
from lab.lists import measure_lists


async def test_recall_of_lists_is_reported_with_their_time() -> None:
    """The index over all chunks is asked beside the exact search of the same file.

    If this fails: what approximation misses is not measured, or no index was built.
    """
    speed, recall, own, built = await measure_lists(1500)
    assert "ms against" in speed.figure
    assert recall.holds, recall
    assert float(recall.figure) <= 1.0
    assert own.holds, own
    assert built.figure.startswith("38 lists, 1 MiB,")  # one for 39 chunks
    assert built.holds, built


def test_bounds_hold_for_many_chunks() -> None:
    """Fewer than 1,000 chunks are refused.

    If this fails: a bound holds or fails by chance.
    """
    done = CliRunner().invoke(main, ["--count", "10"])
    assert (done.exit_code, "10 is not in the range" in done.stderr) == (2, True)
