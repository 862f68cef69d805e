"""Selects, groups and orders the rows of a report's sections. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from corral.bench.quality.metrics import AGREES, EXACT, NAMES, NDCG
from corral.bench.report import wording
from corral.bench.report.report import Report
from corral.bench.report.rows import (
    BuildRow,
    Failure,
    QualityRow,
    SpeedRow,
)

MODES = ("vector", "keyword", "hybrid")
LEAST_SAMPLES = 20
"""Minimum number of latencies for a box plot; fewer make quartiles meaningless."""

_SIZE = re.compile(r"-\d+[km]?$", re.IGNORECASE)
_Row = TypeVar("_Row")
_Key = TypeVar("_Key", bound=Hashable)


def backends(report: Report) -> list[str]:
    """Return every backend in order of first appearance, which determines chart colors."""
    sections = (report.quality, report.answers, report.speed, report.builds, report.failures)
    return list(dict.fromkeys(row.backend for rows in sections for row in rows))


def mode_order(mode: str) -> int:
    """Return a mode's sort position: vector, keyword, hybrid, then others."""
    return MODES.index(mode) if mode in MODES else len(MODES)


def metric_names(rows: Iterable[QualityRow]) -> list[str]:
    """Return the metrics of these rows, the suite's own first."""
    found = {name for row in rows for name in row.metrics}
    return [*(n for n in NAMES if n in found), *sorted(found.difference(NAMES))]


def quality_by_set(report: Report) -> dict[str, list[QualityRow]]:
    """Return the quality rows by data set, by descending nDCG@10; ties in report order."""
    groups = grouped(report.quality, lambda row: row.data_set)
    return {name: sorted(rows, key=lambda row: -ndcg(row)) for name, rows in groups.items()}


def ndcg(row: QualityRow) -> float:
    """Return a row's nDCG@10; 0 if it was not computed."""
    return row.metrics[NDCG].mean if NDCG in row.metrics else 0.0


def answers_of(row: QualityRow) -> Hashable:
    """Return mode, fusion and every query's value, which are equal for backends that agree."""
    return row.mode, row.fusion, frozenset(row.ndcg_by_query.items())


def agreement(report: Report) -> dict[str, str]:
    """Return, by data set, a sentence naming the backends that miss hits of exact search."""
    said = {}
    for name, rows in quality_by_set(report).items():
        known = [(row, row.metrics[AGREES].mean) for row in rows if AGREES in row.metrics]
        lost = [
            f"{row.backend} in {row.mode} mode ({wording.score(share)})"
            for row, share in known
            if share < EXACT
        ]
        if lost:
            said[name] = f"{wording.listed(lost)} missed some of the 10 best of exact search."
        elif known:
            count = wording.count(len(known), "comparison")
            said[name] = f"all backends agree with exact search, in {count}."
    return said


def fastest(report: Report) -> dict[str, str]:
    """Return, by data set and size, a sentence naming the fastest backend in each mode.

    It considers serial queries without a filter; reference systems count only if there are no
    others.
    """
    said = {}
    for (name, size), modes in latencies(report).items():
        parts = []
        for mode, rows in modes.items():
            rivals = [row for row in rows if row.baseline != row.backend] or rows
            first, *others = rivals
            figure = f"{wording.speed_label(first)}, p50 {wording.number(first.p50_ms, 'ms')}"
            if others:
                last = others[-1]
                slowest = f"{wording.speed_label(last)} {wording.number(last.p50_ms, 'ms')}"
                figure = f"{figure} (slowest: {slowest})"
            parts.append(f"in {mode} mode {figure}")
        said[f"{name}, {wording.count(size, 'chunk')}"] = f"fastest {'; '.join(parts)}."
    return said


def name_of(rows: Iterable[QualityRow], one: QualityRow) -> str:
    """Return `hybrid:rrf on sqlite and faiss`: a row's label with all backends that agree."""
    what = ":".join(part for part in (one.mode, one.fusion) if part)
    alike = [row.backend for row in rows if answers_of(row) == answers_of(one)]
    return f"{what} on {wording.listed(alike)}"


def failures_of(report: Report, data_set: str) -> list[Failure]:
    """Return the failures on a data set, including those of all data sets."""
    return [row for row in report.failures if row.data_set in (None, data_set)]


HeatRow = tuple[str, str, str, tuple[float | None, ...]]
"""Mode, backends that agree, fusion, and nDCG@10 on each data set; None: not measured."""


def heat_rows(report: Report, sets: Sequence[str]) -> list[HeatRow]:
    """Return every system on these data sets, by mode, then backend."""
    order = backends(report)
    systems = grouped(report.quality, lambda row: (row.mode, row.backend, row.fusion or ""))
    rows: dict[tuple[str, str, tuple[float | None, ...]], list[str]] = {}
    for mode, backend, fusion in sorted(
        systems, key=lambda key: (mode_order(key[0]), order.index(key[1]), key[2])
    ):
        found = {row.data_set: ndcg(row) for row in systems[mode, backend, fusion]}
        values = tuple(found.get(data_set) for data_set in sets)
        rows.setdefault((mode, fusion, values), []).append(backend)
    return [(m, wording.listed(names), f, v) for (m, f, v), names in rows.items()]


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of a backend: recall against the exact neighbors, and answers per second."""

    row: SpeedRow
    recall: float
    on_front: bool


def fronts(report: Report) -> dict[tuple[str, int, int], list[Point]]:
    """Return vector mode's points without a filter, by (data set, size, concurrency).

    A point is on the front if no other point is at least as good in both recall and throughput, and
    better in one.
    """
    groups = grouped(
        [row for row in report.speed if row.mode == "vector" and row.selectivity is None],
        lambda row: (row.data_set, row.size, row.concurrency),
    )
    panels = {}
    for key, rows in sorted(groups.items()):
        known = [(r, r.recall_vs_exact) for r in rows if r.recall_vs_exact is not None]
        if known:
            panels[key] = [
                Point(row, recall, _on_front(row.throughput_qps, recall, known))
                for row, recall in known
            ]
    return panels


def latencies(report: Report) -> dict[tuple[str, int], dict[str, list[SpeedRow]]]:
    """Return serial latencies without a filter, by (data set, size) and mode, fastest first."""
    serial = [row for row in report.speed if row.concurrency == 1 and row.selectivity is None]
    panels = {}
    for key, rows in sorted(grouped(serial, lambda row: (row.data_set, row.size)).items()):
        modes = grouped(sorted(rows, key=lambda row: row.p50_ms), lambda row: row.mode)
        panels[key] = {mode: modes[mode] for mode in sorted(modes, key=mode_order)}
    return panels


def spread(row: SpeedRow) -> tuple[float, float, float] | None:
    """Return the 5th, 25th and 75th percentile of a row's samples; None for too few."""
    if len(row.samples_ms) < LEAST_SAMPLES:
        return None
    low, first, third = np.quantile(row.samples_ms, [0.05, 0.25, 0.75])
    return float(low), float(first), float(third)


def builds(report: Report) -> dict[str, list[BuildRow]]:
    """Return the build rows by data set, then by backend and size.

    Data sets of several sizes have names that end with the size (`synthetic-20k`); they are grouped
    under the name without it.
    """
    order = backends(report)
    rows = sorted(report.builds, key=lambda row: (order.index(row.backend), row.size))
    return grouped(rows, lambda row: _SIZE.sub("", row.data_set))


Curve: TypeAlias = list[tuple[float, float]]
"""A figure by the number of chunks, ascending."""


def growth(report: Report) -> dict[str, dict[str, dict[str, Curve]]]:
    """Return the curves of figures that were measured at several sizes.

    The keys are the data set without its size, the figure with its unit, and the system.
    """
    curves: dict[tuple[str, str, str], Curve] = {}

    def add(row: SpeedRow | BuildRow, figure: str, value: float | None) -> None:
        if value:
            name = _SIZE.sub("", row.data_set)
            curves.setdefault((name, figure, row.backend), []).append((row.size, value))

    for speed in sorted(report.speed, key=lambda row: (mode_order(row.mode), row.size)):
        if speed.concurrency == 1 and speed.selectivity is None:
            add(speed, f"{speed.mode} p50 ms", speed.p50_ms)
            add(speed, f"{speed.mode} p99 ms", speed.p99_ms)
    for build in sorted(report.builds, key=lambda row: row.size):
        add(build, "memory MiB", build.memory_mib)
        add(build, "disk MiB", build.disk_mib)
        add(build, "inserts per second", build.insert_rate)
    grown: dict[str, dict[str, dict[str, Curve]]] = {}
    for (name, figure, system), curve in curves.items():
        if len({size for size, _ in curve}) > 1:
            grown.setdefault(name, {}).setdefault(figure, {})[system] = curve
    return grown


def exponent(curve: Curve) -> float:
    """Return the exponent e of the best fit c n^e, by least squares of the logarithms."""
    sizes, values = np.log(curve).T
    return float(np.polyfit(sizes, values, 1)[0])


def _on_front(throughput: float, recall: float, known: list[tuple[SpeedRow, float]]) -> bool:
    return not any(
        row.throughput_qps >= throughput
        and other >= recall
        and (row.throughput_qps > throughput or other > recall)
        for row, other in known
    )


def grouped(rows: Iterable[_Row], key: Callable[[_Row], _Key]) -> dict[_Key, list[_Row]]:
    """Return the rows by key, keys and rows in order of first appearance."""
    groups: dict[_Key, list[_Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups
