"""Statistics for comparing systems: confidence intervals and significance tests."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corral.bench.report.rows import Comparison, Estimate

RESAMPLES = 2000
"""Bootstrap samples, so that each end of a 95 % interval rests on 50 samples."""
PERMUTATIONS = 10_000
"""Sign patterns of a randomization test; p = 0.05 then has a standard error of 0.002."""
LEVEL = 0.05
SAME = 0.01
"""Smaller differences of nDCG@10 count as none, because no user notices them."""
_POWER_80 = 2.80
"""z(0.975) + z(0.80): the minimum difference, in standard errors, that 4 of 5 runs detect."""
_BLOCK = 2_000_000
"""Numbers drawn per batch."""


def bootstrap(values: ArrayLike, seed: int = 0) -> Estimate:
    """Return the mean of values with its percentile bootstrap 95 % interval.

    Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13; `RESAMPLES` samples
    of the queries with replacement. Equal values and seed give equal intervals.

    Args:
        values: One finite number per query, at least one. A single number has an interval of width
            0, which means that nothing is known.
    """
    data = np.asarray(values, np.float64)
    mean = float(data.mean())
    if data.size == 1:
        return Estimate(mean=mean, low=mean, high=mean)
    rng = np.random.default_rng(seed)
    means = [
        data[rng.integers(0, data.size, (size, data.size))].mean(axis=1)
        for size in _batches(RESAMPLES, data.size)
    ]
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    return Estimate(mean=mean, low=min(mean, float(low)), high=max(mean, float(high)))


def randomization_test(differences: ArrayLike, seed: int = 0) -> float:
    """Return the two-sided p of a paired randomization test on the mean difference.

    If both systems were the same, each difference could as well have the other sign. p is the share
    of sign patterns whose mean is at least as far from 0 as the one observed: over all patterns if
    there are at most `PERMUTATIONS` (13 queries), otherwise over the observed one and
    `PERMUTATIONS` random ones, so that p is never 0. Smucker, Allan and Carterette, "A Comparison
    of Statistical Significance Tests for Information Retrieval Evaluation", CIKM 2007, section 3.2.

    Args:
        differences: One finite number per query.
        seed: Seed of the random sign patterns.
    """
    data = np.asarray(differences, np.float64)
    data = data[data != 0]  # a zero has no sign and changes no mean
    if data.size < 2:  # with one or two sign patterns, all are equally extreme
        return 1.0
    least = abs(float(data.sum())) * (1 - 1e-12)  # sums in another order differ in the last digit
    if data.size <= math.log2(PERMUTATIONS):
        patterns = np.arange(2**data.size)[:, None] >> np.arange(data.size) & 1
        return float(np.mean(np.abs((2 * patterns - 1) @ data) >= least))
    rng = np.random.default_rng(seed)
    extreme = sum(
        int(np.sum(np.abs((2 * rng.integers(0, 2, (size, data.size)) - 1) @ data) >= least))
        for size in _batches(PERMUTATIONS, data.size)
    )
    return (extreme + 1) / (PERMUTATIONS + 1)


def _batches(samples: int, width: int) -> Iterator[int]:
    """Yield the sizes of the batches in which to draw samples of `width` numbers each."""
    most = max(1, _BLOCK // width)
    for first in range(0, samples, most):
        yield min(most, samples - first)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values after Holm's correction, in the order given.

    The smallest is multiplied by their number, the next by one less, and so on; none falls below
    an earlier one or exceeds 1. Holm, "A Simple Sequentially Rejective Multiple Test Procedure",
    Scandinavian Journal of Statistics 6, 1979.
    """
    adjusted = [0.0] * len(p_values)
    least = 0.0
    for place, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - place) * p_values[at]))
        adjusted[at] = least
    return adjusted


def compare(
    systems: Mapping[str, Mapping[str, float]],
    baseline: str,
    baseline_values: Mapping[str, float],
    seed: int = 0,
) -> dict[str, Comparison]:
    """Return each system's comparison with the baseline; Holm's correction is over all of them.

    Systems with the same differences to the baseline on each query count as one test, and systems
    without differences as none. So additional exact backends do not reduce the power for the
    others.

    Args:
        systems: Values by label and query id, without the baseline.
        baseline: Label of the baseline.
        baseline_values: Values of the baseline; only common queries count.
        seed: Seed of bootstrap and test.

    Raises:
        ValueError: A system and the baseline have no query in common.
    """
    differences = {
        label: _differences(values, baseline_values) for label, values in systems.items()
    }
    distinct = {data.tobytes(): data for data in differences.values() if data.any()}
    tests = {key: randomization_test(data, seed) for key, data in distinct.items()}
    corrected = dict(zip(tests, holm(list(tests.values())), strict=True))
    return {
        label: _comparison(
            baseline, data, tests.get(data.tobytes(), 1.0), corrected.get(data.tobytes(), 1.0), seed
        )
        for label, data in differences.items()
    }


def _differences(values: Mapping[str, float], baseline: Mapping[str, float]) -> NDArray[np.float64]:
    common = [key for key in baseline if key in values]
    if not common:
        raise ValueError("no query in common")
    return np.array([values[key] - baseline[key] for key in common])


def _comparison(
    baseline: str, data: NDArray[np.float64], p: float, p_holm: float, seed: int
) -> Comparison:
    found = bootstrap(data, seed)
    said = f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}], p {p_holm:.2g} by Holm"
    count = f"{data.size} {'query' if data.size == 1 else 'queries'}"
    verdict = _verdict(found, p_holm)
    words = {
        "better": f"better than {baseline} by {said}, {count}",
        "worse": f"worse than {baseline} by {said}, {count}",
        "same": f"the same as {baseline} within {SAME:g} at {count} ({said})",
        "not resolvable": f"not resolvable at {count} ({said}){_would_be(data)}",
    }
    return Comparison(
        baseline=baseline,
        difference=found,
        p=p,
        p_holm=p_holm,
        verdict=verdict,
        statement=words[verdict],
    )


def _verdict(difference: Estimate, p_holm: float) -> str:
    if p_holm < LEVEL:
        return "better" if difference.mean > 0 else "worse"
    if max(-difference.low, difference.high) <= SAME:
        return "same"
    return "not resolvable"


def _would_be(data: NDArray[np.float64]) -> str:
    least = detectable(data)
    return f"; a difference of {least:.3f} would be" if math.isfinite(least) else ""


def detectable(differences: NDArray[np.float64]) -> float:
    """Return the mean difference that 4 of 5 runs with this many queries would detect at 5 %.

    Uses the normal approximation and the spread of these differences; infinite for one query.
    """
    if differences.size < 2:
        return math.inf
    return _POWER_80 * float(differences.std(ddof=1)) / math.sqrt(differences.size)


def seed_of(seed: int, *names: str) -> int:
    """Return a seed for a part of a run: the same for equal names, in every process."""
    digest = hashlib.sha256("\0".join([str(seed), *names]).encode()).digest()
    return int.from_bytes(digest[:4], "big")
