"""Formats of figures and names in all reports."""

from __future__ import annotations

import re
from datetime import timedelta

from corral.bench.report.blocks import Cell
from corral.bench.report.report import Report
from corral.bench.report.rows import Comparison, Estimate, SpeedRow

NONE = "–"
"""Text of a cell without a measurement."""

SIGNS = {"better": "▲", "worse": "▼", "same": "=", "not resolvable": "?"}
"""Verdicts with a sign that needs no color."""

# Characters that HTML does not allow in text, and the marks that change its direction.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def clean(text: str) -> str:
    """Replace each character that must not or should not be shown with U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", text)


def score(value: float) -> str:
    """Return a metric in [0, 1] to three decimals."""
    return f"{value:.3f}"


def interval(found: Estimate) -> str:
    """Return the ends of an interval: `[0.612, 0.671]`."""
    return f"[{found.low:.3f}, {found.high:.3f}]"


def estimate(found: Estimate | None) -> Cell:
    """Return a mean with its interval; the mean alone if they are one figure."""
    if found is None:
        return Cell(NONE)
    if found.low == found.high:
        return Cell(score(found.mean))
    return Cell(score(found.mean), interval(found))


def verdict(found: Comparison | None) -> Cell:
    """Return a comparison's sign and verdict, with its difference and p as a note."""
    if found is None:
        return Cell(NONE)
    said = f"{found.difference.mean:+.3f}, {p_value(found.p_holm)}"
    style = f"verdict {found.verdict.replace(' ', '-')}"
    return Cell(f"{SIGNS[found.verdict]} {found.verdict}", said, style)


def p_value(p: float) -> str:
    """Return a p value as `p 0.031` or `p < 0.001`."""
    return "p < 0.001" if p < 0.001 else f"p {p:.2g}"


def number(value: float | None, unit: str = "") -> str:
    """Return a figure to about three significant digits, thousands grouped, with its unit."""
    if value is None:
        return NONE
    if 0 < abs(value) < 0.001:
        return f"< 0.001 {unit}".strip()
    limits = ((100, 0), (10, 1), (0.1, 2), (0, 3))
    digits = next(digits for limit, digits in limits if abs(value) >= limit)
    return f"{value:,.{digits if value else 0}f} {unit}".strip()


def short(value: float) -> str:
    """Return the label of a tick: 0.5, 20, 5k, 2M."""
    for limit, letter in ((1_000_000, "M"), (1_000, "k")):
        if abs(value) >= limit:
            return f"{value / limit:g}{letter}"
    return f"{value:.4g}"


def ratio(value: float | None) -> str:
    """Return a ratio as `1.25 x`."""
    return NONE if value is None else f"{value:.2f} ×"


def count(n: int, one: str, many: str = "") -> str:
    """Return a count with its noun: `1 query`, `300 queries`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def listed(names: list[str]) -> str:
    """Join names: `a`, `a and b`, `a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def speed_label(row: SpeedRow) -> str:
    """Return the label of a speed row within its mode: backend, fusion, variant."""
    return " ".join(part for part in (row.backend, row.fusion, row.variant) if part)


def share(value: float | None) -> str:
    """Return a share as a percentage: `1 %`."""
    return NONE if value is None else f"{value * 100:.3g} %"


def duration(report: Report) -> str:
    """Return the duration of a run, such as `2 h 05 min`, or a note that it is not finished."""
    if report.finished is None:
        return "not finished"
    return elapsed(report.finished - report.started)


def elapsed(time: timedelta) -> str:
    """Return a time span in its two largest units."""
    seconds = int(time.total_seconds())
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def machine(report: Report) -> str:
    """Return the hardware in a line."""
    found = report.hardware
    memory = "" if found.memory_mib is None else f", {found.memory_mib / 1024:.0f} GiB"
    return f"{found.cpu}, {count(found.cores, 'core')}{memory}, {found.system}"
