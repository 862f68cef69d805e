"""The sections on fidelity, speed, size, tuning, and how it all was measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from corral.bench.report import charts, views, wording
from corral.bench.report.blocks import (
    Block,
    Cell,
    Chart,
    Charts,
    Column,
    Facts,
    Folded,
    Heading,
    Item,
    Items,
    Section,
    Table,
    Text,
    figures,
)
from corral.bench.report.quality_sections import mode_cell
from corral.bench.report.report import Report
from corral.bench.report.rows import (
    BuildRow,
    Failure,
    FidelityRow,
    SpeedRow,
    TuneSection,
    TuneTrial,
)
from corral.bench.report.svg import legend

FIDELITY_SIGNS = {"agrees": "=", "approximate": "≈", "mapping": "✕"}
WRONG = "!"
"""Beside the recall of answers that are not right."""


def fidelity(report: Report) -> Section | None:
    """Return how far the backends agree on the same vectors and texts."""
    lead = Text(
        "Approximate: neighbors are missed, but the scores of those found are right. "
        "Mapping: scores or ids are wrong, which is a defect."
    )
    blocks = fidelity_blocks(report)
    return Section("fidelity", "Fidelity", "Fidelity", [lead, *blocks]) if blocks else None


def fidelity_blocks(report: Report) -> list[Block]:
    """Return, for each data set, what differs as a table and what agrees as one line."""
    blocks: list[Block] = []
    for name, rows in views.fidelity_by_set(report).items():
        differ = [row for row in rows if row.verdict != "agrees"]
        agree = [row for row in rows if row.verdict == "agrees"]
        if differ:
            blocks.append(_fidelity_table(f"{name}, answers that differ", differ))
        if agree:
            said = f"{len(agree)} of {wording.count(len(rows), 'comparison')} agree"
            names = wording.listed(list(dict.fromkeys(row.backend for row in agree)))
            table = _fidelity_table(f"{name}, answers that agree", agree)
            title = f"{name}, against brute force and each other"
            blocks.append(Folded(title, [table], f"{said}: {names}", agrees=True))
    return blocks


def fronts(report: Report) -> Section | None:
    """Return recall against throughput, a chart for each data set, size and concurrency."""
    panels = views.fronts(report)
    order = views.backends(report)
    drawn = []
    for (data_set, size, concurrency), points in panels.items():
        names = charts.legend_of([p.row.backend for p in points], order)
        at_once = f"{wording.count(concurrency, 'query', 'queries')} at once"
        title = f"{data_set}, {wording.count(size, 'chunk')}, {at_once}"
        drawn.append(
            Chart(title, charts.front(points, order), legend(names), _front_table(title, points))
        )
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
    """Yield a table for each data set and size: a row for each system, mode and filter."""
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
    """Return build time against size, and what a build takes."""
    order = views.backends(report)
    drawn = []
    for data_set, rows in views.builds(report).items():
        known = [row for row in rows if row.total_seconds is not None]
        if len({row.size for row in known}) > 1:
            names = charts.legend_of([row.backend for row in known], order)
            drawn.append(Chart(data_set, charts.build(known, order), legend(names)))
    lead = Text("From the first insert until the indexes are built; embedding excluded.")
    blocks: list[Block] = [lead, *([Charts(drawn)] if drawn else []), *build_tables(report)]
    title = "Build time and size"
    return Section("build", title, "Build", blocks) if report.builds else None


def build_tables(report: Report) -> Iterable[Table]:
    """Yield what storing takes, a table for each data set and size."""
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


def tuning(report: Report) -> Section | None:
    """Return what tuning tried and recommends."""
    blocks = [block for found in report.tune for block in _tuned(found)]
    return Section("tune", "Tuning", "Tuning", blocks) if blocks else None


def tune_table(found: TuneSection, trials: Iterable[TuneTrial]) -> Table:
    """Return trials, those that were judged first, the best of the training half before others."""
    columns = [
        Column("Setting", wraps=True),
        *figures("Training half", "Held-out half", "All in 5"),
        Column("Verdict", brief="none"),
    ]
    rows: list[list[Cell | str]] = [
        [
            Cell(t.label, "← chosen" if t.label == found.chosen else ""),
            wording.estimate(t.train),
            wording.estimate(t.held_out),
            "" if t.complete_at_5 is None else f"{t.complete_at_5:.3f}",
            wording.verdict(t.comparison),
        ]
        for t in sorted(trials, key=lambda t: (t.held_out is None, -t.train.mean))
    ]
    title = f"{found.data_set} on {found.backend}"
    halves = f"{found.n_train} questions choose, {found.n_held_out} judge"
    return Table(f"{title}: {halves}", columns, rows)


def failures(report: Report) -> Section | None:
    """Return what could not be measured, and why."""
    table = failures_table(report.failures)
    return Section("failures", "Failures", "Failures", [table]) if report.failures else None


def failures_table(rows: Iterable[Failure]) -> Table:
    """Return failures with their reasons."""
    names = ("Backend", "Stage", "Data set", "Mode")
    columns = [*(Column(name, wraps=True) for name in names), Column("Message", wraps=True)]
    cells = [[r.backend, r.stage, r.data_set or "all", r.mode or "all", r.message] for r in rows]
    return Table("What could not be measured", columns, cells)


def method(report: Report) -> Section:
    """Return what the run can be repeated with: command, seed, machine, versions, data hashes."""
    dimension = report.embedding_dimension
    model = f"{report.embedding_model}, {dimension} dimensions" if dimension else None
    facts = {
        "Seed": str(report.seed),
        "Machine": wording.machine(report),
        "Threads": ", ".join(f"{k}={v}" for k, v in report.hardware.threads.items()),
        "Embedding model": model or report.embedding_model or "",
        "Baseline": report.baseline or "",
        "Started": f"{report.started:%Y-%m-%d %H:%M} {report.started.tzname() or ''}",
        "Took": wording.duration(report),
        "Versions": f"Corral {report.corral_version}, Python {report.python}",
    }
    packages = Text(", ".join(f"{name} {version}" for name, version in report.packages.items()))
    count = wording.count(len(report.packages), "package")
    blocks: list[Block] = [
        Text(report.command, "code"),
        Facts({name: said for name, said in facts.items() if said}),
        *([_data_table(report), _hash_table(report)] if report.data_sets else []),
        *([Folded("Versions", [packages], f"of {count}")] if report.packages else []),
        *([Heading("Notes")] if report.notes else []),
        *([Items([Item("", note) for note in report.notes])] if report.notes else []),
    ]
    return Section("method", "How it was measured", "Method", blocks)


def _fidelity_table(caption: str, rows: Sequence[FidelityRow]) -> Table:
    columns = [
        Column("Backend", wraps=True),
        Column("Against", wraps=True),
        Column("Mode"),
        Column("Filter"),
        *figures("k"),
        *figures("Recall", "Overlap", brief="text"),
        *figures("RBO", brief="none"),
        *figures("Score diff"),
        Column("Verdict", wraps=True, brief="below"),
    ]
    return Table(caption, columns, [_fidelity_cells(row) for row in rows])


def _fidelity_cells(row: FidelityRow) -> list[Cell | str]:
    error = row.score_difference_max
    return [
        row.backend,
        row.reference,
        mode_cell(row.mode),
        row.data_set.partition(", ")[2].removesuffix(" filter"),
        str(row.k),
        wording.estimate(row.recall_vs_exact),
        wording.estimate(row.overlap),
        wording.estimate(row.rank_biased_overlap),
        wording.NONE if error is None else f"{error:.1e}" if error else "0",
        Cell(f"{FIDELITY_SIGNS[row.verdict]} {row.verdict}", row.note, f"verdict {row.verdict}"),
    ]


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
    """Return serial latencies, and the answers a second at each concurrency."""
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
    """Return the ratio, and to what where that is not what all others are compared with."""
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


def _tuned(found: TuneSection) -> list[Block]:
    source = "made from the chunks" if found.generated else "given"
    registration = json.dumps(found.registration, indent=2, ensure_ascii=False)
    table = tune_table(found, found.trials)
    return [
        Heading(f"{found.data_set}, {found.backend}"),
        Text(f"{found.statement} (questions: {source})", "statement"),
        Text(registration, "code"),
        Folded(f"All {wording.count(len(found.trials), 'setting')}", [table]),
        *([Items([Item("", note) for note in found.notes])] if found.notes else []),
    ]


def _data_table(report: Report) -> Table:
    columns = [
        Column("Data set", wraps=True),
        Column("Kind"),
        Column("Language"),
        *figures("Documents", "Left out", "Queries", "Judgments", "MiB"),
    ]
    rows = [
        [
            found.name,
            found.kind,
            found.language,
            *(f"{n:,}" for n in (found.documents, found.cut, found.queries, found.judgements)),
            wording.number(found.bytes / 2**20),
        ]
        for found in report.data_sets
    ]
    return Table("Data", columns, rows)


def _hash_table(report: Report) -> Table:
    columns = [
        Column("Data set", wraps=True),
        Column("File", wraps=True),
        Column("sha256", wraps=True),
    ]
    rows: list[list[Cell | str]] = [
        [found.name, name, Cell(value, style="hash")]
        for found in report.data_sets
        for name, value in found.sha256.items()
    ]
    return Table("Files", columns, rows)
