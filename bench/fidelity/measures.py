"""How alike are two rankings? Sets, orders, scores."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from corral.bench.system import Ranked

PERSISTENCE = 0.9
"""p of rank-biased overlap: the first ten ranks then carry 86 % of the weight (Webber et al.,
equation 21)."""


def overlap(first: Sequence[str], second: Sequence[str], k: int) -> float:
    """Return the share of ids that both have among their first k; 1.0 where both are empty.

    The share is of the longer one, at most k, so that an answer that is too short loses.
    """
    a, b = set(first[:k]), set(second[:k])
    longest = max(len(a), len(b))
    return len(a & b) / longest if longest else 1.0


def rank_biased_overlap(
    first: Sequence[str], second: Sequence[str], p: float = PERSISTENCE
) -> float:
    """Return how alike two orders are, the first ranks counting most; 1.0 for equal ones.

    With X_d the number of ids common to the first d of both, l the longer and s the shorter length:

        RBO = (1 - p) / p * (sum_{d=1..l} X_d / d * p^d
                             + sum_{d=s+1..l} X_s (d - s) / (s d) * p^d)
              + ((X_l - X_s) / l + X_s / s) * p^l

    Webber, Moffat and Zobel, "A Similarity Measure for Indefinite Rankings", ACM TOIS 28(4), 2010,
    equation 32: agreement is extrapolated beyond what is seen, so lists of any length compare.

    Args:
        first, second: Distinct ids, best first. Two empty lists are alike, an empty one and
            another are not.
        p: In (0, 1): the chance that a reader looks at the next rank, too.
    """
    short, long = sorted((first, second), key=len)
    if not short:
        return 1.0 if not long else 0.0
    s, longest = len(short), len(long)
    common = _common(short, long)
    total = sum(common[d] / d * p**d for d in range(1, longest + 1))
    total += sum(common[s] * (d - s) / (s * d) * p**d for d in range(s + 1, longest + 1))
    rest = (common[longest] - common[s]) / longest + common[s] / s
    return (1 - p) / p * total + rest * p**longest


def score_differences(first: Ranked, second: Ranked) -> list[float]:
    """Return |score - score| for each id that both have."""
    scores = dict(second)
    return [abs(score - scores[one]) for one, score in first if one in scores]


def _common(short: Sequence[str], long: Sequence[str]) -> list[int]:
    """Return X_d for d from 0 to the longer length; the shorter list ends where it ends."""
    depths = {one: depth for depth, one in enumerate(short, start=1)}
    new = [0] * (len(long) + 1)
    for depth, one in enumerate(long, start=1):
        if one in depths:  # common from the deeper of its two places on
            new[max(depth, depths[one])] += 1
    return list(accumulate(new))
