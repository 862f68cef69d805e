"""Compares two reports on the same data: the changes, and the regressions.

    found = compare_reports(read_report(Path("a")), read_report(Path("b")))
    found.regressions  # the reasons for a CI to fail, in words

Quality is compared query by query: a paired randomization test on nDCG@10, with Holm's correction
over all rows, because one decision depends on them. Speed has no paired samples, so its ratios are
compared with a tolerance, and only if both machines are alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeVar

from corral.api.errors import InvalidRequest
from corral.bench.quality.metrics import AGREES, EXACT
from corral.bench.quality.statistics import compare
from corral.bench.report.comparison import (
    Missing,
    QualityChange,
    ReportComparison,
    SpeedChange,
    Verdict,
)
from corral.bench.report.report import NamedRow, Report
from corral.bench.report.rows import DataSet, QualityRow

TOLERANCE = 0.25
"""A slowdown of a quarter counts: medians of two runs on a busy machine differ by less."""

_R = TypeVar("_R", bound=NamedRow)


def compare_reports(
    first: Report,
    second: Report,
    *,
    tolerance: float = TOLERANCE,
    allow_missing: bool = False,
    seed: int = 0,
) -> ReportComparison:
    """Return the changes from the first report to the second.

    Args:
        tolerance: Share by which a figure may be slower or larger: 0.25 allows a ratio of 1.25, and
            of 1 / 1.25 for a throughput.
        allow_missing: True if a missing row in the second report is not a regression.
        seed: Seed of bootstrap and test.

    Raises:
        InvalidRequest: The data differ, the reports have no common row, or the tolerance is below
            0.
    """
    if tolerance < 0:
        raise InvalidRequest(f"The tolerance must be >= 0 (got {tolerance:g}).")
    _check_data(first.data_sets, second.data_sets)
    missing = _missing(first, second)
    quality = _quality(first, second, seed)
    like = _same_machine(first, second)
    speed = _speed(first, second, tolerance if like else None)
    if not (quality or speed):
        raise InvalidRequest(
            "The reports have no row in common.",
            hint="Compare runs of the same backends and modes on the same data.",
        )
    return ReportComparison(
        tolerance=tolerance,
        quality=tuple(quality),
        speed=tuple(speed),
        missing=tuple(missing),
        notes=tuple(_notes(first, second, like)),
        regressions=tuple(_regressions(quality, speed, () if allow_missing else missing)),
    )


def _check_data(first: Sequence[DataSet], second: Sequence[DataSet]) -> None:
    """Reject reports on different data, whose figures say nothing about the system."""
    known = {data.name: data for data in first}
    for after in second:
        before = known.get(after.name)
        if before is None:
            continue
        files = sorted({*before.sha256, *after.sha256})
        changed = [name for name in files if before.sha256.get(name) != after.sha256.get(name)]
        parts = ("documents", "queries", "judgements")
        counts = [name for name in parts if getattr(before, name) != getattr(after, name)]
        if changed or counts:
            raise InvalidRequest(
                f"Data set {after.name!r} is not the same in both reports: "
                f"{', '.join(changed or counts)} differ.",
                hint="Measure both on the same files, with the same --max-docs and --split.",
                field="data_sets",
            )


def _quality(first: Report, second: Report, seed: int) -> list[QualityChange]:
    pairs = _paired(first.quality, second.quality)
    if not pairs:
        return []
    differences = {name: _by_query(name, before, after) for name, (before, after) in pairs.items()}
    # The differences are compared with zeros, because each row has its own baseline.
    nothing = {query_id: 0.0 for values in differences.values() for query_id in values}
    found = compare(differences, "the first report", nothing, seed)
    return [
        QualityChange(
            data_set=after.data_set,
            system=after.label,
            metrics=_metrics(before, after),
            comparison=found[name],
        )
        for name, (before, after) in pairs.items()
    ]


def _metrics(before: QualityRow, after: QualityRow) -> dict[str, tuple[float, float, float]]:
    means = {
        name: (before.metrics[name].mean, found.mean)
        for name, found in after.metrics.items()
        if name in before.metrics
    }
    return {name: (old, new, new - old) for name, (old, new) in means.items()}


def _by_query(name: str, before: QualityRow, after: QualityRow) -> Mapping[str, float]:
    values = {
        query_id: value - before.ndcg_by_query[query_id]
        for query_id, value in after.ndcg_by_query.items()
        if query_id in before.ndcg_by_query
    }
    if not values:
        raise InvalidRequest(f"{name}: the reports have no query in common.")
    return values


def _speed(first: Report, second: Report, tolerance: float | None) -> list[SpeedChange]:
    """Compare figures of speed; for throughput higher is better, for all others lower."""
    changes = []
    for name, (before, after) in _paired(first.speed, second.speed).items():
        changes.append(_change(name, "p50_ms", before.p50_ms, after.p50_ms, tolerance))
        figures = before.throughput_qps, after.throughput_qps
        changes.append(_change(name, "throughput_qps", *figures, tolerance, higher_better=True))
    for name, (old, new) in _paired(first.builds, second.builds).items():
        seconds = old.total_seconds, new.total_seconds
        changes.append(_change(name, "build_seconds", *seconds, tolerance))
        changes.append(_change(name, "disk_mib", old.disk_mib, new.disk_mib, tolerance))
    return [change for change in changes if change is not None]


def _change(
    system: str,
    figure: str,
    before: float | None,
    after: float | None,
    tolerance: float | None,
    *,
    higher_better: bool = False,
) -> SpeedChange | None:
    """Return the ratio of two figures; None if one is missing or 0."""
    if not before or not after:
        return None
    ratio = after / before
    worse = 1 / ratio if higher_better else ratio
    verdict: Verdict = "same"
    if tolerance is None:
        verdict = "not judged"
    elif worse > 1 + tolerance:
        verdict = "slower"
    elif worse < 1 / (1 + tolerance):
        verdict = "faster"
    return SpeedChange(
        system=system, figure=figure, before=before, after=after, ratio=ratio, verdict=verdict
    )


def _missing(first: Report, second: Report) -> list[Missing]:
    return [*_absent(first, second, "second"), *_absent(second, first, "first")]


def _absent(
    there: Report, here: Report, missing_in: Literal["first", "second"]
) -> Iterable[Missing]:
    reasons = {failure.backend: failure.message for failure in reversed(here.failures)}
    known = {(section, row.name) for section, row in here.named}
    for section, row in there.named:
        if (section, row.name) not in known:
            reason = reasons.get(row.backend, "")
            yield Missing(section=section, system=row.name, missing_in=missing_in, reason=reason)


def _same_machine(first: Report, second: Report) -> bool:
    one, two = first.hardware, second.hardware
    return (one.cpu, one.cores, one.threads) == (two.cpu, two.cores, two.threads)


def _notes(first: Report, second: Report, like: bool) -> Iterable[str]:
    if not like and (first.speed or first.builds):
        yield (
            f"Speed was measured on different machines ({first.hardware.cpu}, "
            f"{first.hardware.cores} cores, {first.hardware.threads or 'threads not set'}; "
            f"{second.hardware.cpu}, {second.hardware.cores} cores, "
            f"{second.hardware.threads or 'threads not set'}): its ratios are not judged."
        )
    for name in ("embedding_model", "seed", "corral_version", "python"):
        before, after = getattr(first, name), getattr(second, name)
        if before != after:
            yield f"{name} was {before}, is {after}."
    shared = sorted(first.packages.keys() & second.packages.keys())
    for package in shared:
        if first.packages[package] != second.packages[package]:
            yield f"{package} was {first.packages[package]}, is {second.packages[package]}."


def _regressions(
    quality: Iterable[QualityChange],
    speed: Iterable[SpeedChange],
    missing: Iterable[Missing],
) -> Iterable[str]:
    for change in quality:
        if change.comparison.verdict == "worse":
            yield f"{change.data_set} {change.system}: {change.comparison.statement}"
        before, after, _ = change.metrics.get(AGREES, (0.0, 0.0, 0.0))
        if before >= EXACT > after:
            shares = f"{before:.3f} before, {after:.3f} now"
            yield f"{change.data_set} {change.system}: {AGREES}: {shares}"
    for figure in speed:
        if figure.verdict == "slower":
            yield f"{figure.system}: {figure.figure} {figure.ratio:.2f} times what it was"
    for row in missing:
        if row.missing_in == "second":
            why = f": {row.reason}" if row.reason else ""
            yield f"{row.system} ({row.section}) is missing{why}"


def _paired(first: Iterable[_R], second: Iterable[_R]) -> dict[str, tuple[_R, _R]]:
    before = {row.name: row for row in first}
    return {row.name: (before[row.name], row) for row in second if row.name in before}
