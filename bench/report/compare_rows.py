"""What a comparison of two reports says, and how rows of two reports find each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from corral.bench.report.report import Report
from corral.bench.report.rows import BuildRow, Comparison, FidelityRow, QualityRow, Row, SpeedRow

Verdict = Literal["slower", "faster", "same", "not judged"]


class QualityChange(Row):
    """One system on one data set.

    Attributes:
        metrics: By name, the first report's mean, the second's, and their difference.
        comparison: Of nDCG@10, the first report being the baseline.
    """

    data_set: str
    system: str
    metrics: dict[str, tuple[float, float, float]]
    comparison: Comparison


class SpeedChange(Row):
    """One figure of speed or size.

    Attributes:
        figure: `p50_ms`, `throughput_qps`, `build_seconds` or `disk_mib`.
        ratio: The second report's over the first's.
        verdict: `slower` (for disk: larger) or `faster` beyond the tolerance, `same` within it, or
            `not judged` where the machines differ.
    """

    system: str
    figure: str
    before: float
    after: float
    ratio: float
    verdict: Verdict


class FidelityChange(Row):
    """One backend whose agreement with its reference is not what it was."""

    system: str
    before: str
    after: str


class Missing(Row):
    """A row that only one report has, and why the other lacks it where it says so."""

    section: str
    system: str
    missing_in: Literal["first", "second"]
    reason: str = ""


class ReportComparison(Row):
    """All that changed; `regressions` says in words what changed for worse."""

    tolerance: float
    quality: tuple[QualityChange, ...]
    speed: tuple[SpeedChange, ...]
    fidelity: tuple[FidelityChange, ...]
    missing: tuple[Missing, ...]
    notes: tuple[str, ...]
    regressions: tuple[str, ...]


def named(report: Report) -> Iterator[tuple[str, str, str]]:
    """Yield section, name and backend of each row that may be in another report, too."""
    for row in report.quality:
        yield "quality", quality_name(row), row.backend
    for speed in report.speed:
        yield "speed", speed_name(speed), speed.backend
    for build in report.builds:
        yield "builds", build_name(build), build.backend
    for compared in report.fidelity:
        yield "fidelity", fidelity_name(compared), compared.backend


def quality_name(row: QualityRow) -> str:
    """Return what a quality row is about; unique in a report."""
    return f"{row.data_set} {row.label}"


def speed_name(row: SpeedRow) -> str:
    """Return what a speed row is about; unique in a report."""
    what = ":".join(part for part in (row.backend, row.mode, row.fusion) if part)
    chosen = "" if row.selectivity is None else f", filter {row.selectivity:g}"
    variant = f", {row.variant}" if row.variant else ""
    setting = f"{row.size:,} chunks, {row.concurrency} at once, k {row.k}{chosen}{variant}"
    return f"{row.data_set} {what}, {setting}"


def build_name(row: BuildRow) -> str:
    """Return what a build row is about; unique in a report."""
    return f"{row.data_set} {row.backend}, {row.size:,} chunks"


def fidelity_name(row: FidelityRow) -> str:
    """Return what a fidelity row is about; unique in a report."""
    what = f"{row.backend}:{row.mode} against {row.reference}"
    return f"{row.data_set} {what}, {row.size:,} chunks, k {row.k}"
