"""The page's sections on fidelity, speed, size, tuning, and how it all was measured."""

from __future__ import annotations

import json
from collections.abc import Sequence

from corral.bench.report import charts, views, wording
from corral.bench.report.markup import Content, Html, tag
from corral.bench.report.report import Report
from corral.bench.report.rows import BuildRow, FidelityRow, SpeedRow, TuneSection
from corral.bench.report.svg import legend
from corral.bench.report.tables import (
    Column,
    details,
    estimate,
    figure,
    figures,
    lead,
    mode_badge,
    section,
    table,
    user,
    verdict,
)

FIDELITY_SIGNS = {"agrees": "=", "approximate": "≈", "mapping": "✕"}


def fidelity(report: Report) -> Html | None:
    """Return how far the backends agree on the same vectors and texts."""
    if not report.fidelity:
        return None
    columns = [
        Column("Backend"),
        Column("Mode"),
        Column("Reference"),
        Column("Data set"),
        *figures("Chunks", "k", "Recall", "Overlap", "RBO", "Score error"),
        Column("Verdict", wraps=True),
    ]
    said = (
        "Approximate: neighbors are missed, but the scores of those found are right. "
        "Mapping: scores or ids are wrong, which is a defect."
    )
    content = table("Agreement with the reference", columns, map(_fidelity_cells, report.fidelity))
    return section("fidelity", "Fidelity", lead(said), content)


def fronts(report: Report) -> Html | None:
    """Return recall against throughput, a chart for each data set, size and concurrency."""
    panels = views.fronts(report)
    if not panels:
        return None
    order = views.backends(report)
    parts = []
    for (data_set, size, concurrency), points in panels.items():
        names = charts.legend_of([p.row.backend for p in points], order)
        title = f"{wording.count(size, 'chunk')}, {wording.count(concurrency, 'query', 'queries')}"
        caption = (user(data_set), f", {title} at once")
        chart = charts.front(points, order)
        parts.append(figure(caption, chart, legend(names), _front_table(points)))
    said = (
        "Vector search without a filter: up and to the right is better. The line joins the "
        "settings that no other beats in both; hollow marks lie behind it."
    )
    grid = tag("div", parts, class_="grid-of-charts")
    return section("fronts", "Recall against throughput", lead(said), grid)


def latencies(report: Report) -> Html | None:
    """Return serial latencies by mode, and every speed row in a table."""
    if not report.speed:
        return None
    parts: list[Content] = []
    for (data_set, size), modes in views.latencies(report).items():
        scale = charts.latency_scale([row for rows in modes.values() for row in rows])
        strips = [
            figure(mode_badge(mode), charts.latency(rows, scale, mode))
            for mode, rows in modes.items()
        ]
        parts.append(tag("h3", user(data_set), f", {wording.count(size, 'chunk')}"))
        parts.append(tag("div", strips, class_="grid-of-charts"))
    said = (
        "One query at a time, no filter. Box: half of all answers, with the median; whisker: 5th "
        "to 95th percentile; dotted tick: 99th. Figures: p50 / p95 / p99 in ms; the scale is "
        "logarithmic and common to the modes."
    )
    return section("latency", "Latency", lead(said), parts, _speed_table(report.speed))


def builds(report: Report) -> Html | None:
    """Return build time against size, and what a build takes."""
    if not report.builds:
        return None
    order = views.backends(report)
    parts = []
    for data_set, rows in views.builds(report).items():
        known = [row for row in rows if row.total_seconds is not None]
        if known:
            names = charts.legend_of([row.backend for row in known], order)
            parts.append(figure(user(data_set), charts.build(known, order), legend(names)))
    said = "From the first insert until the indexes are built; embedding excluded."
    grid = tag("div", parts, class_="grid-of-charts") if parts else None
    rows = [row for some in views.builds(report).values() for row in some]
    return section("build", "Build time and size", lead(said), grid, _build_table(rows))


def tuning(report: Report) -> Html | None:
    """Return what tuning tried and recommends."""
    parts = [_tuned(found) for found in report.tune]
    return section("tune", "Tuning", parts) if parts else None


def failures(report: Report) -> Html | None:
    """Return what could not be measured, and why."""
    if not report.failures:
        return None
    columns = [
        Column("Backend"),
        Column("Stage"),
        Column("Data set"),
        Column("Mode"),
        Column("Message", wraps=True),
    ]
    rows: list[list[Content]] = [
        [
            user(row.backend),
            user(row.stage),
            user(row.data_set or "all"),
            user(row.mode or "all"),
            user(row.message),
        ]
        for row in report.failures
    ]
    return section("failures", "Failures", table("What could not be measured", columns, rows))


def method(report: Report) -> Html:
    """Return what the run can be repeated with: command, seed, machine, versions, data hashes."""
    command = tag("pre", tag("code", user(report.command)), tabindex=0)
    facts = {
        "Seed": str(report.seed),
        "Machine": wording.machine(report),
        "Threads": ", ".join(f"{k}={v}" for k, v in report.hardware.threads.items()),
        "Embedding model": _model(report),
        "Baseline": report.baseline or "",
        "Started": f"{report.started:%Y-%m-%d %H:%M} {report.started.tzname() or ''}",
        "Took": wording.duration(report),
        "Versions": f"Corral {report.corral_version}, Python {report.python}",
    }
    pairs = [(tag("dt", name), tag("dd", user(said))) for name, said in facts.items() if said]
    notes = [tag("li", user(note)) for note in report.notes]
    return section(
        "method",
        "How it was measured",
        command,
        tag("dl", pairs, class_="facts"),
        _data_table(report) if report.data_sets else None,
        _packages(report) if report.packages else None,
        (tag("h3", "Notes"), tag("ul", notes)) if notes else None,
    )


def _front_table(points: Sequence[views.Point]) -> Html:
    columns = [Column("System"), *figures("Recall", "Answers/s"), Column("On the front")]
    best = sorted(points, key=lambda p: (-p.recall, -p.row.throughput_qps))
    rows: list[list[Content]] = [
        [
            user(wording.speed_label(p.row)),
            wording.score(p.recall),
            wording.number(p.row.throughput_qps),
            "yes" if p.on_front else "no",
        ]
        for p in best
    ]
    return details("Values", table("Recall and throughput", columns, rows))


def _fidelity_cells(row: FidelityRow) -> list[Content]:
    sign = tag("b", f"{FIDELITY_SIGNS[row.verdict]} {row.verdict}", class_=f"verdict {row.verdict}")
    error = row.score_difference_max
    return [
        user(row.backend),
        mode_badge(row.mode),
        user(row.reference),
        user(row.data_set),
        f"{row.size:,}",
        str(row.k),
        estimate(row.recall_vs_exact),
        estimate(row.overlap),
        estimate(row.rank_biased_overlap),
        wording.NONE if error is None else f"{error:.1e}" if error else "0",
        [sign, " ", user(row.note)],
    ]


def _speed_table(rows: Sequence[SpeedRow]) -> Html:
    columns = [
        Column("System"),
        Column("Mode"),
        Column("Data set"),
        *figures("Chunks", "Filter", "At once", "p50 ms", "p95 ms", "p99 ms", "Answers/s", "Ratio"),
    ]
    summary = f"All {wording.count(len(rows), 'measurement')} of speed"
    return details(summary, table(summary, columns, map(_speed_cells, rows)))


def _speed_cells(row: SpeedRow) -> list[Content]:
    return [
        user(wording.speed_label(row)),
        mode_badge(row.mode),
        user(row.data_set),
        f"{row.size:,}",
        wording.share(row.selectivity),
        str(row.concurrency),
        wording.number(row.p50_ms),
        wording.number(row.p95_ms),
        wording.number(row.p99_ms),
        wording.number(row.throughput_qps),
        wording.ratio(row.ratio),
    ]


def _build_table(rows: Sequence[BuildRow]) -> Html:
    columns = [
        Column("Backend"),
        Column("Data set"),
        *figures("Chunks", "Dim.", "Inserts/s", "Index s", "Searchable after s"),
        *figures("Memory MiB", "Disk MiB", "Ratio"),
    ]
    return table("What a build takes", columns, map(_build_cells, rows))


def _build_cells(row: BuildRow) -> list[Content]:
    return [
        user(row.backend),
        user(row.data_set),
        f"{row.size:,}",
        str(row.dimension),
        wording.number(row.insert_rate),
        wording.number(row.build_seconds),
        wording.number(row.seconds_until_searchable),
        wording.number(row.memory_mib),
        wording.number(row.disk_mib),
        wording.ratio(row.ratio),
    ]


def _tuned(found: TuneSection) -> Html:
    source = "made from the chunks" if found.generated else "given"
    queries = f"{found.n_train} queries to choose by, {found.n_held_out} held out, {source}."
    columns = [
        Column("Setting"),
        *figures("Training half", "Held-out half", "All in 5"),
        Column("Verdict"),
    ]
    rows: list[list[Content]] = [
        [
            [user(t.label), tag("b", " ← chosen") if t.label == found.chosen else None],
            wording.estimate(t.train),
            wording.estimate(t.held_out),
            "" if t.complete_at_5 is None else f"{t.complete_at_5:.3f}",
            verdict(t.comparison),
        ]
        for t in sorted(found.trials, key=lambda t: (t.held_out is None, -t.train.mean))
    ]
    registration = json.dumps(found.registration, indent=2, ensure_ascii=False)
    return tag(
        "article",
        tag("h3", user(found.data_set), ", ", user(found.backend)),
        tag("p", tag("strong", user(found.statement))),
        tag("p", queries, class_="note"),
        tag("pre", tag("code", user(registration)), tabindex=0),
        details(f"All {wording.count(len(rows), 'setting')}", table("Tried", columns, rows)),
        tag("ul", [tag("li", user(note)) for note in found.notes]) if found.notes else None,
    )


def _model(report: Report) -> str:
    if report.embedding_model is None:
        return ""
    dimension = report.embedding_dimension
    return report.embedding_model + (f", {dimension} dimensions" if dimension else "")


def _data_table(report: Report) -> Html:
    columns = [
        Column("Data set"),
        Column("Kind"),
        Column("Language"),
        *figures("Documents", "Left out", "Queries", "Judgments", "MiB"),
        Column("sha256"),
    ]
    rows: list[list[Content]] = [
        [
            user(found.name),
            user(found.kind),
            user(found.language),
            f"{found.documents:,}",
            f"{found.cut:,}",
            f"{found.queries:,}",
            f"{found.judgements:,}",
            wording.number(found.bytes / 2**20),
            [_hash(name, value) for name, value in found.sha256.items()],
        ]
        for found in report.data_sets
    ]
    return table("Data", columns, rows)


def _hash(name: str, value: str) -> Html:
    return tag("div", user(name), " ", tag("code", value), class_="hash")


def _packages(report: Report) -> Html:
    items = [
        tag("li", user(name), " ", tag("code", version))
        for name, version in report.packages.items()
    ]
    return details(
        f"Versions of {wording.count(len(items), 'package')}", tag("ul", items, class_="packages")
    )
