"""The sections on speed and size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from corral.bench.report import charts, views, wording
from corral.bench.report.blocks import (
    Block,
    Cell,
    Chart,
    Charts,
    Column,
    Folded,
    Heading,
    Section,
    Table,
    Text,
    figures,
)
from corral.bench.report.quality_sections import mode_cell
from corral.bench.report.report import Report
from corral.bench.report.rows import BuildRow, SpeedRow

WRONG = "!"
"""Marks the recall of inexact answers."""


def fronts(report: Report) -> Section | None:
    """Return recall against throughput, a chart for each data set, size and concurrency."""
    panels = views.fronts(report)
    order = views.backends(report)
    drawn = []
    for (data_set, size, concurrency), points in panels.items():
        names = charts.legend_of([p.row.backend for p in points], order)
        at_once = f"{wording.count(concurrency, 'query', 'queries')} at once"
        title = f"{data_set}, {wording.count(size, 'chunk')}, {at_once}"
        drawn.append(Chart(title, charts.front(points, order), names, _front_table(title, points)))
    lead = Text(
        "Vector search without a filter: up and to the right is better. The line joins the "
        "settings that no other beats in both; hollow marks lie behind it."
    )
    title = "Recall against throughput"
    return (
        Section("fronts", title, "Recall and throughput", [lead, Charts(drawn)]) if drawn else None
    )


def latencies(report: Report) -> Section | None:
    """Return serial latencies by mode, and every system's figures in tables."""
    blocks: list[Block] = []
    panels = views.latencies(report)
    for key, table in speed_tables(report):
        modes = panels.get(key, {})
        scale = charts.latency_scale([row for rows in modes.values() for row in rows])
        drawn = [
            Chart(mode, charts.latency(rows, scale, mode), style=mode_cell(mode).style)
            for mode, rows in modes.items()
        ]
        blocks.append(Heading(f"{key[0]}, {wording.count(key[1], 'chunk')}"))
        blocks += [Charts(drawn)] if drawn else []
        blocks.append(Folded("All figures", [table]))
    lead = Text(
        "One query at a time, no filter. Box: half of all answers, with the median; whisker: 5th "
        "to 95th percentile; dotted tick: 99th. Figures: p50 / p95 / p99 in ms; the scale is "
        "logarithmic and common to the modes."
    )
    return Section("latency", "Speed", "Speed", [lead, *blocks]) if blocks else None


def speed_tables(report: Report) -> Iterable[tuple[tuple[str, int], Table]]:
    """Yield a table for each data set and size, with a row for each system, mode and filter."""
    wrong = {(f.backend, f.mode) for f in report.failures if f.stage == "check"}
    for key, rows in views.grouped(report.speed, lambda row: (row.data_set, row.size)).items():
        levels = sorted({row.concurrency for row in rows})
        most = levels[-1]
        said = f"x{most}: answers a second, {most} at once"
        caption = f"{key[0]}, {wording.count(key[1], 'chunk')}, asking; {said}"
        columns = [
            Column("System", wraps=True),
            Column("Mode"),
            *figures("Filter", "p50 ms", "p95 ms"),
            *figures("p99 ms", brief="none"),
            *figures("Ratio", *(f"x{n}" for n in levels), "Recall"),
        ]
        lines = views.grouped(
            rows, lambda row: (wording.speed_label(row), row.mode, row.selectivity)
        )
        cells = [
            _speed_cells(list(some), levels, wrong, report.baseline) for some in lines.values()
        ]
        yield key, Table(caption, columns, cells)


def builds(report: Report) -> Section | None:
    """Return build time against size, and the cost of building."""
    order = views.backends(report)
    drawn = []
    for data_set, rows in views.builds(report).items():
        known = [row for row in rows if row.total_seconds is not None]
        if len({row.size for row in known}) > 1:
            names = charts.legend_of([row.backend for row in known], order)
            drawn.append(Chart(data_set, charts.build(known, order), names))
    lead = Text("From the first insert until the indexes are built; embedding excluded.")
    blocks: list[Block] = [lead, *([Charts(drawn)] if drawn else []), *build_tables(report)]
    title = "Build time and size"
    return Section("build", title, "Build", blocks) if report.builds else None


def build_tables(report: Report) -> Iterable[Table]:
    """Yield the cost of storing, in a table for each data set and size."""
    columns = [
        Column("Backend"),
        *figures("Dim.", brief="none"),
        *figures("Inserts/s"),
        *figures("First tenth", "Last tenth", brief="none"),
        *figures("Index s", "Found after s"),
        *figures("Memory MiB", "Disk MiB"),
        Column("Ratio", figures=True, wraps=True),
    ]
    for (name, size), rows in views.grouped(
        report.builds, lambda row: (row.data_set, row.size)
    ).items():
        caption = f"{name}, {wording.count(size, 'chunk')}, storing"
        yield Table(caption, columns, [_build_cells(row, report.baseline) for row in rows])


def growth(report: Report) -> Section | None:
    """Return every figure against size, with the exponent of each system's curve."""
    order = views.backends(report)
    lead = Text(
        "Both axes are logarithmic, so a power of the size is a straight line. An exponent of 1 is "
        "proportional to the number of chunks, 0 does not depend on it."
    )
    blocks: list[Block] = [lead]
    for data_set, every in views.growth(report).items():
        drawn = [
            Chart(figure, charts.growth(figure, curves, order), charts.legend_of([*curves], order))
            for figure, curves in every.items()
        ]
        systems = sorted({name for curves in every.values() for name in curves}, key=order.index)
        rows = [
            [name, *(_exponent(curves.get(name)) for curves in every.values())] for name in systems
        ]
        columns = [Column("System", wraps=True), *figures(*every)]
        table = Table(f"{data_set}, exponents of the curves", columns, rows)
        blocks += [Heading(data_set), Charts(drawn), table]
    title = "Growth with the number of chunks"
    return Section("growth", title, "Growth", blocks) if len(blocks) > 1 else None


def _exponent(curve: views.Curve | None) -> str:
    return "" if curve is None else f"{views.exponent(curve):.2f}"


def _front_table(title: str, points: Sequence[views.Point]) -> Table:
    columns = [
        Column("System", wraps=True),
        *figures("Recall", "Answers/s"),
        Column("On the front"),
    ]
    rows = [
        [
            wording.speed_label(p.row),
            wording.score(p.recall),
            wording.number(p.row.throughput_qps),
            "yes" if p.on_front else "no",
        ]
        for p in sorted(points, key=lambda p: (-p.recall, -p.row.throughput_qps))
    ]
    return Table(title, columns, rows)


def _speed_cells(
    rows: Sequence[SpeedRow],
    levels: Sequence[int],
    wrong: set[tuple[str, str | None]],
    baseline: str | None,
) -> list[Cell | str]:
    """Return serial latencies, and answers per second at each concurrency."""
    by_level = {row.concurrency: row for row in rows}
    first = by_level[min(by_level)]
    share = "" if first.selectivity is None else wording.share(first.selectivity)
    times = (first.p50_ms, first.p95_ms, first.p99_ms)
    rates = [by_level[n].throughput_qps if n in by_level else None for n in levels]
    name = f"{first.backend} {first.variant}".strip()
    recall = "" if first.recall_vs_exact is None else wording.score(first.recall_vs_exact)
    return [
        Cell(first.backend, " ".join(filter(None, (first.fusion, first.variant)))),
        mode_cell(first.mode),
        share,
        *map(wording.number, times),
        _ratio(first, baseline),
        *map(wording.number, rates),
        Cell(recall + (WRONG if (name, first.mode) in wrong else "")),
    ]


def _ratio(row: SpeedRow | BuildRow, baseline: str | None) -> Cell:
    """Return the ratio, and its baseline if it differs from the common one."""
    other = row.baseline if row.ratio is not None and row.baseline != baseline else None
    return Cell(wording.ratio(row.ratio), other or "")


def _build_cells(row: BuildRow, baseline: str | None) -> list[Cell | str]:
    numbers = (
        row.insert_rate,
        row.first_tenth_rate,
        row.last_tenth_rate,
        row.build_seconds,
        row.seconds_until_searchable,
        row.memory_mib,
        row.disk_mib,
    )
    return [
        row.backend,
        str(row.dimension),
        *map(wording.number, numbers),
        _ratio(row, baseline),
    ]
