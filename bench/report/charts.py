"""The report's charts, each a function from rows to a drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from corral.bench.report import by_query, views, wording
from corral.bench.report.drawing import (
    COLORS,
    Bars,
    Interval,
    Layer,
    Mark,
    Plot,
    Plotted,
    Scale,
    Strip,
    Strips,
    linear,
    logarithmic,
)
from corral.bench.report.rows import BuildRow, Estimate, SpeedRow
from corral.bench.report.sweep import Sweep


def front(points: Sequence[views.Point], order: Sequence[str]) -> Plotted:
    """Return recall against throughput, with the Pareto front as a line and other points hollow.

    Args:
        points: At least one.
        order: All backends of the report, so that each has one color everywhere.
    """
    plot = Plot(
        linear((p.recall for p in points), 0, 1),
        logarithmic(p.row.throughput_qps for p in points),
    )
    best = sorted((p.recall, p.row.throughput_qps) for p in points if p.on_front)
    marks = [
        Mark(
            p.recall,
            p.row.throughput_qps,
            order.index(p.row.backend),
            f"{wording.speed_label(p.row)}: recall {wording.score(p.recall)}, "
            f"{wording.number(p.row.throughput_qps)}/s",
            hollow=not p.on_front,
        )
        for p in points
    ]
    leader = max(points, key=lambda p: (p.recall, p.row.throughput_qps))
    said = (
        f"{len(points)} settings, {len(best)} on the front; the most recall is "
        f"{wording.score(leader.recall)} at {wording.number(leader.row.throughput_qps)} answers "
        f"a second ({wording.speed_label(leader.row)})."
    )
    titles = f"recall@{points[0].row.k} against the exact neighbors →", "↑ answers per second"
    layer = Layer(marks, best if len(best) > 1 else (), style="front")
    return Plotted("Recall against throughput", said, plot, titles, [layer])


def latency(rows: Sequence[SpeedRow], scale: Scale, mode: str) -> Strips:
    """Return latencies of one mode, a strip for each system.

    Box: half of all answers, its line the median; whisker: from the 5th to the 95th percentile;
    tick: the 99th. Without samples a line runs from the median to the 95th.

    Args:
        rows: At least one, in the order of the strips.
        scale: Scale of milliseconds, common to all modes.
    """
    said = (
        f"{len(rows)} systems; fastest at the median: {wording.speed_label(rows[0])}, "
        f"{wording.number(rows[0].p50_ms, 'ms')}."
    )
    strips = [_strip(row, scale) for row in rows]
    return Strips(f"Latency in {mode} mode", said, scale, strips)


def latency_scale(rows: Sequence[SpeedRow]) -> Scale:
    """Return the scale that covers the latencies of all these rows."""
    values = [value for row in rows for value in (row.p50_ms, row.p99_ms)]
    lowest = [found[0] for row in rows if (found := views.spread(row)) is not None]
    return logarithmic([*values, *lowest])


def sweep(found: Sweep) -> Plotted:
    """Return nDCG@10 over the weight of the vector leg, with intervals and references.

    Only the line with the highest maximum shows its intervals, because several bands would hide
    each other.
    """
    points = [point for series in found.series.values() for point in series]
    ends = [value for _, e in points for value in (e.low, e.high)]
    references = {name: e.mean for name, e in found.references.items()}
    plot = Plot(
        Scale(0, 1, (0, 0.2, 0.4, 0.6, 0.8, 1)), linear([*ends, *references.values()], 0, 1)
    )
    alpha, best = max(points, key=lambda point: point[1].mean)
    said = f"Best at weight {alpha:g}: {wording.estimate(best).whole}."
    leader = max(found.series, key=lambda name: max(e.mean for _, e in found.series[name]))
    layers = [
        Layer(
            [Mark(alpha, e.mean, at, f"{name}, {alpha:g}: {e.mean:.3f}") for alpha, e in line],
            [(alpha, e.mean) for alpha, e in line],
            [(alpha, e.low, e.high) for alpha, e in line] if name == leader else (),
            f"s{at % COLORS}",
        )
        for at, (name, line) in enumerate(found.series.items())
    ]
    titles = "share of the vector leg →", "↑ nDCG@10"
    return Plotted(f"Fusion weight, {found.title}", said, plot, titles, layers, references)


def differences(changes: Sequence[by_query.Change]) -> Bars:
    """Return every query's difference to the baseline as bars, the greatest win first."""
    wins = sum(change.difference > 0 for change in changes)
    losses = sum(change.difference < 0 for change in changes)
    most = max((abs(change.difference) for change in changes), default=0.0) or 1.0
    better = wording.count(wins, "query", "queries")
    said = f"{better} better, {losses} worse, {len(changes) - wins - losses} equal."
    return Bars("Differences by query", said, [change.difference / most for change in changes])


def build(rows: Sequence[BuildRow], order: Sequence[str]) -> Plotted:
    """Return build time against the number of chunks, both logarithmic, one line per backend."""
    known: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        seconds = row.total_seconds
        if seconds is not None:
            known.setdefault(row.backend, []).append((row.size, seconds))
    places = [place for line in known.values() for place in line]
    plot = Plot(logarithmic(x for x, _ in places), logarithmic(y for _, y in places))
    layers = [_built(name, line, order.index(name)) for name, line in known.items()]
    largest = max(size for size, _ in places)
    there = {name: line[-1][1] for name, line in known.items() if line[-1][0] == largest}
    best = min(there, key=lambda name: there[name])
    said = f"At {largest:,.0f} chunks {best} is fastest: {wording.number(there[best], 's')}."
    return Plotted("Build time against size", said, plot, ("chunks →", "↑ seconds"), layers)


def growth(figure: str, curves: Mapping[str, views.Curve], order: Sequence[str]) -> Plotted:
    """Return a figure against the number of chunks, both logarithmic, one line per system."""
    places = [place for curve in curves.values() for place in curve]
    plot = Plot(logarithmic(x for x, _ in places), logarithmic(y for _, y in places))
    layers = []
    for name, curve in curves.items():
        series = order.index(name)
        marks = [Mark(x, y, series, f"{name}: {y:.3g} at {x:,.0f} chunks") for x, y in curve]
        layers.append(Layer(marks, curve, style=f"s{series % COLORS}"))
    exponents = {name: views.exponent(curve) for name, curve in curves.items()}
    least = min(exponents, key=lambda name: exponents[name])
    summary = f"The smallest exponent is {exponents[least]:.2f}, {least}."
    return Plotted(f"{figure} against size", summary, plot, ("chunks →", f"↑ {figure}"), layers)


def interval(found: Estimate, scale: Scale, level: float | None = None) -> Interval:
    """Return a mean with its interval as a small strip for a table's cell, beside its text.

    Args:
        found: The mean and its interval.
        scale: Common to the table's rows.
        level: The baseline's mean, an upright line.
    """
    low, mean, high = (scale.at(value) * 100 for value in (found.low, found.mean, found.high))
    return Interval(low, mean, high, None if level is None else scale.at(level) * 100)


def _strip(row: SpeedRow, scale: Scale) -> Strip:
    times = (row.p50_ms, row.p95_ms, row.p99_ms)
    p50, p95, p99 = (scale.at(value) * 100 for value in times)
    spread = views.spread(row)
    if spread is not None:
        low, first, third = (scale.at(value) * 100 for value in spread)
        spread = (low, first, third)
    mode = row.mode if row.mode in views.MODES else ""
    figures = " / ".join(wording.number(value) for value in times)
    return Strip(wording.speed_label(row), figures, (p50, p95, p99), spread, mode)


def _built(name: str, line: Sequence[tuple[float, float]], series: int) -> Layer:
    marks = [Mark(x, y, series, f"{name}: {x:,.0f} chunks in {y:.3g} s") for x, y in line]
    return Layer(marks, line if len(line) > 1 else (), style=f"s{series % COLORS}")


def legend_of(names: Sequence[str], order: Sequence[str]) -> list[tuple[str, int]]:
    """Return the entries of a legend: each distinct name with the number of its series."""
    return [(name, order.index(name)) for name in sorted(set(names), key=order.index)]
