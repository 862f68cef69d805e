"""The comparison of two reports: as rows, and as tables and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from corral.bench.quality.metrics import NDCG
from corral.bench.report.blocks import Column, Table, figures
from corral.bench.report.rows import Comparison, Row
from corral.bench.report.wording import count, p_value

Verdict = Literal["slower", "faster", "same", "not judged"]


class QualityChange(Row):
    """One system on one data set.

    Attributes:
        metrics: By name, the first report's mean, the second's, and their difference.
        comparison: Comparison of nDCG@10, with the first report as the baseline.
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


class Missing(Row):
    """A row that only one report has, and the other's reason for lacking it, if known."""

    section: str
    system: str
    missing_in: Literal["first", "second"]
    reason: str = ""


class ReportComparison(Row):
    """The result of a comparison; `regressions` describes in words what became worse."""

    tolerance: float
    quality: tuple[QualityChange, ...]
    speed: tuple[SpeedChange, ...]
    missing: tuple[Missing, ...]
    notes: tuple[str, ...]
    regressions: tuple[str, ...]


def compare_blocks(found: ReportComparison) -> tuple[list[Table], list[str]]:
    """Return the tables of changes, and the lines after them."""
    changed = [one for one in found.quality if any(d for _, _, d in one.metrics.values())]
    faster = [one for one in found.speed if one.verdict != "same"]
    tables = [_quality(changed), _speed(faster), _missing(found.missing)]
    equal = len(found.quality) - len(changed), len(found.speed) - len(faster)
    lines = [
        f"Unchanged: quality of {count(equal[0], 'system')}, {count(equal[1], 'figure')} of speed "
        f"(tolerance {found.tolerance:.0%}).",
        *(f"Note: {note}" for note in found.notes),
        *(f"Regression: {regression}" for regression in found.regressions),
        *([] if found.regressions else ["No regression."]),
    ]
    return [table for table in tables if table.rows], lines


def _quality(changes: Sequence[QualityChange]) -> Table:
    names = [n for n in dict.fromkeys(n for c in changes for n in c.metrics) if n != NDCG]
    columns = [
        Column("quality of", wraps=True),
        *figures(NDCG, "change", *names),
        Column("is"),
        *figures("p"),
    ]
    rows = []
    for change in changes:
        before, after, _ = change.metrics.get(NDCG, (0.0, 0.0, 0.0))
        others = (f"{change.metrics[n][2]:+.3f}" if n in change.metrics else "" for n in names)
        found = change.comparison
        rows.append(
            [
                f"{change.data_set} {change.system}",
                f"{before:.3f} > {after:.3f}" if NDCG in change.metrics else "",
                f"{found.difference.mean:+.3f}",
                *others,
                found.verdict,
                p_value(found.p_holm).removeprefix("p "),
            ]
        )
    return Table("Quality that changed", columns, rows)


def _speed(changes: Sequence[SpeedChange]) -> Table:
    columns = [
        Column("speed of", wraps=True),
        Column("figure"),
        *figures("before", "after", "ratio"),
        Column("is"),
    ]
    rows = [
        [c.system, c.figure, f"{c.before:.4g}", f"{c.after:.4g}", f"{c.ratio:.2f}", c.verdict]
        for c in changes
    ]
    return Table("Speed that changed", columns, rows)


def _missing(rows: Sequence[Missing]) -> Table:
    names = ("only in one report", "section", "missing in", "why")
    cells = [[row.system, row.section, f"the {row.missing_in}", row.reason] for row in rows]
    return Table("Missing", [Column(name, wraps=True) for name in names], cells)
