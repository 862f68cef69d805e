"""The report's charts, each a function from rows to SVG. `svg` has what they are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from corral.bench.report import by_query, views, wording
from corral.bench.report.markup import Html, tag
from corral.bench.report.rows import BuildRow, Estimate, SpeedRow
from corral.bench.report.svg import (
    COLORS,
    Plot,
    Scale,
    chart,
    figure,
    linear,
    logarithmic,
    mark,
    stretched,
)
from corral.bench.report.sweep import Sweep

LINE = 15
"""Height of a line of text in a chart, in pixels."""
STRIP = 40
"""Height of one system's latency strip, its line of text included, in pixels."""


def front(points: Sequence[views.Point], order: Sequence[str]) -> Html:
    """Return recall against throughput; the front as a line, what lies behind it hollow.

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
        mark(
            plot.across(p.recall),
            plot.down(p.row.throughput_qps),
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
    line = plot.line(best, "front") if len(best) > 1 else None
    recall = f"recall@{points[0].row.k} against the exact neighbors →"
    title = "Recall against throughput"
    return chart(plot, title, said, recall, "↑ answers per second", line, marks)


def latency(rows: Sequence[SpeedRow], scale: Scale, mode: str) -> Html:
    """Return latencies of one mode, a strip for each system.

    Box: half of all answers, its line the median; whisker: from the 5th to the 95th percentile;
    tick: the 99th. Without samples a line runs from the median to the 95th.

    Args:
        rows: At least one, in the order of the strips.
        scale: Of milliseconds, common to all modes.
    """
    height = STRIP * len(rows) + 4
    grid = [
        (
            tag("line", x1=x, x2=x, y1=0, y2=height, class_="grid"),
            tag("text", wording.short(tick), x=x, y=height + 16, text_anchor="middle"),
        )
        for tick in scale.ticks
        for x in [f"{scale.at(tick) * 100:.2f}%"]
    ]
    title = tag("text", "ms", x="100%", y=height + 34, text_anchor="end", class_="axis-title")
    strips = [_strip(row, scale, STRIP * at) for at, row in enumerate(rows)]
    fastest = wording.speed_label(rows[0])
    name = f"Latency in {mode} mode"
    said = (
        f"{len(rows)} systems; fastest at the median: {fastest}, "
        f"{wording.number(rows[0].p50_ms, 'ms')}."
    )
    axis = tag("g", grid, title, aria_hidden="true")
    return figure(name, said, height + 38, "chart strips", axis, strips)


def latency_scale(rows: Sequence[SpeedRow]) -> Scale:
    """Return the scale that holds the latencies of all these rows."""
    values = [value for row in rows for value in (row.p50_ms, row.p99_ms)]
    lowest = [found[0] for row in rows if (found := views.spread(row)) is not None]
    return logarithmic([*values, *lowest])


def sweep(found: Sweep) -> Html:
    """Return nDCG@10 over the weight of the vector leg, with intervals and references."""
    points = [point for series in found.series.values() for point in series]
    ends = [value for _, e in points for value in (e.low, e.high)]
    plot = Plot(
        Scale(0, 1, (0, 0.2, 0.4, 0.6, 0.8, 1)),
        linear([*ends, *(e.mean for e in found.references.values())], 0, 1),
    )
    alpha, best = max(points, key=lambda point: point[1].mean)
    said = f"Best at weight {alpha:g}: {wording.estimate(best).whole}."
    leader = max(found.series, key=lambda name: max(e.mean for _, e in found.series[name]))
    series = [
        _swept(plot, name, line, at, banded=name == leader)
        for at, (name, line) in enumerate(found.series.items())
    ]
    axis = "share of the vector leg →"
    name = f"Fusion weight, {found.title}"
    lines = _references(plot, found.references)
    return chart(plot, name, said, axis, "↑ nDCG@10", lines, series, class_="labeled")


def differences(changes: Sequence[by_query.Change]) -> Html:
    """Return every query's difference to the baseline as bars, the greatest win first."""
    wins = sum(change.difference > 0 for change in changes)
    losses = sum(change.difference < 0 for change in changes)
    most = max((abs(change.difference) for change in changes), default=0.0) or 1.0
    shares = [change.difference / most for change in changes]
    bars = [_bars(shares, sign=1, class_="win"), _bars(shares, sign=-1, class_="loss")]
    better = wording.count(wins, "query", "queries")
    said = f"{better} better, {losses} worse, {len(changes) - wins - losses} equal."
    drawn = stretched(100, bars, width=max(1, len(changes)))
    axis = tag("line", x1="0", x2="100%", y1=50, y2=50, class_="axis")
    return figure("Differences by query", said, 100, "chart plain", drawn, axis)


def build(rows: Sequence[BuildRow], order: Sequence[str]) -> Html:
    """Return build time against the number of chunks, both logarithmic, a line a backend."""
    known: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        seconds = row.total_seconds
        if seconds is not None:
            known.setdefault(row.backend, []).append((row.size, seconds))
    places = [place for line in known.values() for place in line]
    plot = Plot(logarithmic(x for x, _ in places), logarithmic(y for _, y in places))
    lines = [_built(plot, name, line, order.index(name)) for name, line in known.items()]
    largest = max(size for size, _ in places)
    there = {name: line[-1][1] for name, line in known.items() if line[-1][0] == largest}
    best = min(there, key=lambda name: there[name])
    said = f"At {largest:,.0f} chunks {best} is fastest: {wording.number(there[best], 's')}."
    return chart(plot, "Build time against size", said, "chunks →", "↑ seconds", lines)


def interval(found: Estimate, scale: Scale, level: float | None = None) -> Html:
    """Return a mean with its interval as a small strip for a table's cell; its text is beside.

    Args:
        found: The mean and its interval.
        scale: Common to the table's rows.
        level: The baseline's mean, an upright line.
    """
    low, mean, high = (f"{scale.at(v) * 100:.1f}%" for v in (found.low, found.mean, found.high))
    return tag(
        "svg",
        tag("line", x1="0", x2="100%", y1=7, y2=7, class_="grid"),
        None if level is None else _upright(scale, level),
        tag("line", x1=low, x2=high, y1=7, y2=7, class_="range"),
        tag("circle", cx=mean, cy=7, r=3.5, class_="mean"),
        class_="interval",
        width="100%",
        height=14,
        aria_hidden="true",
    )


def _upright(scale: Scale, level: float) -> Html:
    place = f"{scale.at(level) * 100:.1f}%"
    return tag("line", x1=place, x2=place, y1=0, y2=14, class_="level")


def _strip(row: SpeedRow, scale: Scale, top: float) -> Html:
    middle = top + 28
    p50, p95, p99 = (f"{scale.at(v) * 100:.2f}%" for v in (row.p50_ms, row.p95_ms, row.p99_ms))
    found = views.spread(row)
    figures = " / ".join(wording.number(v) for v in (row.p50_ms, row.p95_ms, row.p99_ms))
    start, box = p50, None
    if found is not None:
        low, first, third = (scale.at(value) * 100 for value in found)
        start = f"{low:.2f}%"
        width = f"{max(third - first, 0.4):.2f}%"
        box = tag("rect", x=f"{first:.2f}%", y=middle - 7, width=width, height=14, class_="box")
    return tag(
        "g",
        tag("text", tag("tspan", wording.speed_label(row), class_="name"), x=0, y=top + 14),
        tag("text", figures, x="100%", y=top + 14, text_anchor="end", class_="figures"),
        tag("line", x1=start, x2=p95, y1=middle, y2=middle, class_="whisker"),
        box,
        tag("line", x1=p50, x2=p50, y1=middle - 7, y2=middle + 7, class_="median"),
        tag("line", x1=p95, x2=p95, y1=middle - 4, y2=middle + 4, class_="whisker"),
        tag("line", x1=p99, x2=p99, y1=middle - 4, y2=middle + 4, class_="tail"),
        class_=f"mode-{row.mode}" if row.mode in views.MODES else None,
    )


def _swept(
    plot: Plot, name: str, line: Sequence[tuple[float, Estimate]], series: int, *, banded: bool
) -> Html:
    """A line with marks; only one line has its intervals, since several bands hide each other."""
    class_ = f"s{series % COLORS}"
    band = plot.band([(alpha, e.low, e.high) for alpha, e in line], f"band {class_}")
    path = plot.line([(alpha, e.mean) for alpha, e in line], f"line {class_}")
    marks = [
        mark(plot.across(alpha), plot.down(e.mean), series, f"{name}, {alpha:g}: {e.mean:.3f}")
        for alpha, e in line
    ]
    return tag("g", band if banded else None, path, marks)


def _references(plot: Plot, found: Mapping[str, Estimate]) -> list[Html]:
    """Dashed lines, each named at its right end; names that would overlap are moved down."""
    drawn: list[Html] = []
    free = float(-LINE)
    for name, e in sorted(found.items(), key=lambda item: -item[1].mean):
        y = plot.down(e.mean)
        free = max(free + LINE, y)
        said = f"{name} {wording.score(e.mean)}"
        drawn += [
            tag("line", x1="0", x2="100%", y1=y, y2=y, class_="reference"),
            tag("svg", tag("text", said, x=8, dy=".32em"), x="100%", y=free, overflow="visible"),
        ]
    return drawn


def _bars(shares: Sequence[float], *, sign: int, class_: str) -> Html:
    """The bars of one sign as one path: there are as many as queries, in each of many charts."""
    path = "".join(
        f"M{at} 50V{50 - share * 48:.1f}h1V50z"
        for at, share in enumerate(shares)
        if share * sign > 0
    )
    return tag("path", d=path, class_=class_)


def _built(plot: Plot, name: str, line: Sequence[tuple[float, float]], series: int) -> Html:
    path = plot.line(line, f"line s{series % COLORS}") if len(line) > 1 else None
    marks = [
        mark(plot.across(x), plot.down(y), series, f"{name}: {x:,.0f} chunks in {y:.3g} s")
        for x, y in line
    ]
    return tag("g", path, marks)


def legend_of(
    names: Mapping[str, None] | Sequence[str], order: Sequence[str]
) -> list[tuple[str, int]]:
    """Return the entries of a legend: each name once, with the number of its series."""
    return [(name, order.index(name)) for name in sorted(set(names), key=order.index)]
