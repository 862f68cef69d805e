"""What a right answer holds, by hand: the k best, what ties with the last of them, and no more."""

from __future__ import annotations

import numpy as np
import pytest

from corral.api.vector_dbs import SearchMode
from corral.bench.truth import TIE, among_best, findable, recall

TRUTH = np.array([0.9, 0.0, 0.8, 0.8 - TIE / 2, 0.7])
ALL = np.ones(5, bool)


def test_a_tie_with_the_last_of_the_best_is_as_good() -> None:
    """Two are wanted and three are right: the third lies within a tie of the second.

    If this fails: an engine that stores single precision looks approximate, or one that misses
    neighbors looks exact.
    """
    values = findable(TRUTH, SearchMode.VECTOR, ALL)
    assert among_best(values, 2).tolist() == [True, False, True, True, False]
    assert among_best(values, 2, slack=0.0).tolist() == [True, False, True, False, False]
    assert recall(values, [0, 3], 2) == recall(values, [0, 2, 3], 2) == 1.0
    assert recall(values, [0, 3], 2, slack=0.0) == recall(values, [0, 4], 2) == 0.5
    assert recall(values, [], 2) == 0.0


@pytest.mark.parametrize(("mode", "count"), [(SearchMode.VECTOR, 4), (SearchMode.KEYWORD, 3)])
def test_what_cannot_be_found_is_not_missed(mode: SearchMode, count: int) -> None:
    """Of the four that pass, one shares no word; an answer with all the others is complete.

    If this fails: a filter, or a rare word, makes every engine look as if it missed something.
    """
    passing = np.array([False, True, True, True, True])
    values = findable(TRUTH, mode, passing)
    assert int(np.isfinite(values).sum()) == int(among_best(values, 10).sum()) == count
    assert recall(values, [2, 3, 4] if count == 3 else [1, 2, 3, 4], 10) == 1.0
    assert recall(values, [0], 10) == 0.0
    assert recall(findable(TRUTH, mode, ~ALL), [0], 10) == 1.0
