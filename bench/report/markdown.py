"""`report.md`: the report as tables, for a repository, an issue or a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from corral.bench.quality.metrics import NDCG
from corral.bench.report import views, wording
from corral.bench.report.markup import clean
from corral.bench.report.report import Report
from corral.bench.report.rows import QualityRow, TuneSection
from corral.bench.report.sweep import sweeps

_MARKUP = re.compile(r"[\\`*_\[\]|~$]|^[-+#=]|^\d+(?=[.)](?:\s|$))|[&<>@]|:(?=//)")
"""What would begin markup, mention a person or become a link by itself."""


def render(report: Report) -> str:
    """Return a report as Markdown; sections without rows are left out."""
    parts = (
        _head(report),
        _quality(report),
        _heat_map(report),
        _sweep(report),
        _queries(report),
        *map(_tuned, report.tune),
        _fidelity(report),
        _fronts(report),
        _speed(report),
        _builds(report),
        _failures(report),
        _method(report),
    )
    blocks = [block for part in parts for block in part]
    return "\n\n".join(blocks) + "\n"


def escaped(text: str) -> str:
    """Return a text that is shown as it is, in one line, whatever it holds."""
    return _MARKUP.sub(_written, " ".join(clean(text).split()))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], figures: int = 0) -> str:
    """Return a table; the last `figures` columns are right-aligned. Cells are escaped already."""
    left = len(headings) - figures
    rule = ["---"] * left + ["---:"] * figures
    lines = [headings, rule, *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _written(match: re.Match[str]) -> str:
    found = match.group()
    if found in "&<>@:":
        return f"&#{ord(found)};"
    return f"\\{found}" if not found.isdigit() else f"{found}\\"


def _head(report: Report) -> Iterator[str]:
    yield "# Corral benchmark: which mode, on which database?"
    day = f"{report.started:%Y-%m-%d}"
    yield (
        f"{day}, Corral {escaped(report.corral_version)}, {escaped(wording.machine(report))}, "
        f"{wording.duration(report)}."
    )


def _quality(report: Report) -> Iterator[str]:
    sets = views.quality_by_set(report)
    if not sets:
        return
    yield "## Quality"
    yield (
        "Means with bootstrap 95 % intervals. Against the baseline: nDCG@10, paired "
        "randomization test, p after Holm's correction."
    )
    for name, rows in sets.items():
        yield f"### {escaped(name)}, {wording.count(rows[0].n_queries, 'query', 'queries')}"
        yield _quality_table(report, name, rows)


def _quality_table(report: Report, name: str, rows: list[QualityRow]) -> str:
    metrics = views.metric_names(rows)
    base = {row.comparison.baseline for row in rows if row.comparison}
    cells = []
    for row in rows:
        found = [_estimate(row, metric) for metric in metrics]
        said = "baseline" if row.label in base else escaped(wording.verdict(row.comparison))
        system = f"{row.backend} {row.fusion or ''}".strip()
        cells.append([escaped(system), escaped(row.mode), *found, said])
    for failure in views.failures_of(report, name):
        empty = [wording.NONE] * len(metrics)
        said = f"✕ failed ({escaped(failure.stage)}): {escaped(failure.message)}"
        cells.append([escaped(failure.backend), escaped(failure.mode or "all"), *empty, said])
    return table(["System", "Mode", *metrics, "Against the baseline"], cells)


def _estimate(row: QualityRow, metric: str) -> str:
    """The mean of the metric that decides stands out."""
    mean, _, rest = wording.estimate(row.metrics.get(metric)).partition(" ")
    return f"**{mean}** {rest}".strip() if metric == NDCG else f"{mean} {rest}".strip()


def _heat_map(report: Report) -> Iterator[str]:
    found = views.heat_map(report)
    if found is None or len(found.data_sets) < 2:
        return
    yield f"## {NDCG} by system and data set"
    rows = [
        [
            escaped(row.mode),
            escaped(f"{row.backend} {row.fusion}"),
            *(wording.NONE if value is None else wording.score(value) for value in row.values),
        ]
        for row in found.rows
    ]
    headings = ["Mode", "System", *map(escaped, found.data_sets)]
    yield table(headings, rows, figures=len(found.data_sets))


def _sweep(report: Report) -> Iterator[str]:
    found = sweeps(report)
    if found:
        yield "## Fusion weight"
        yield f"{NDCG} by the share of the vector leg (0: keyword only, 1: vector only)."
    for one in found:
        yield f"### {escaped(one.title)}"
        for name, points in one.series.items():
            rows = [[f"{alpha:g}", wording.estimate(value)] for alpha, value in points]
            yield table([escaped(name), NDCG], rows, figures=1)


def _queries(report: Report) -> Iterator[str]:
    """Counts for every system; texts for the best one of each data set."""
    compared = views.compared(report)
    if compared:
        yield "## Wins and losses by query"
    for data_set, found in compared.items():
        yield f"### {escaped(data_set)}"
        rows = [[escaped(name), *_counts(changes)] for name, _, changes in found]
        yield table(["System", "Better", "Worse", "Equal"], rows, figures=3)
        best, _, changes = found[0]
        yield from _examples(f"Greatest wins of {escaped(best)}", views.wins(changes))
        yield from _examples(f"Greatest losses of {escaped(best)}", views.losses(changes))


def _examples(title: str, changes: list[views.Change]) -> Iterator[str]:
    if changes:
        rows = [
            [
                escaped(change.query_id),
                escaped(change.text),
                wording.score(change.baseline),
                wording.score(change.value),
                f"{change.difference:+.3f}",
            ]
            for change in changes[: views.EXAMPLES]
        ]
        yield f"{title}:"
        yield table(["Query", "Text", "Baseline", "Here", "Difference"], rows, figures=3)


def _counts(changes: list[views.Change]) -> list[str]:
    wins, losses = len(views.wins(changes)), len(views.losses(changes))
    return [str(wins), str(losses), str(len(changes) - wins - losses)]


def _tuned(found: TuneSection) -> Iterator[str]:
    yield f"## Tuning of {escaped(found.data_set)} on {escaped(found.backend)}"
    source = "made from the chunks" if found.generated else "given"
    queries = f"{found.n_train} queries to choose by, {found.n_held_out} held out, {source}"
    yield f"{escaped(found.statement)} ({queries})"
    trials = sorted(found.trials, key=lambda t: (t.held_out is None, -t.train.mean))
    rows = [
        [
            escaped(trial.label) + (" ← chosen" if trial.label == found.chosen else ""),
            wording.estimate(trial.train),
            wording.estimate(trial.held_out),
        ]
        for trial in trials
    ]
    yield table(["Setting", "Training half", "Held-out half"], rows, figures=2)
    if found.notes:
        yield "\n".join(f"* {escaped(note)}" for note in found.notes)


def _fidelity(report: Report) -> Iterator[str]:
    if not report.fidelity:
        return
    yield "## Fidelity"
    rows = [
        [
            escaped(row.backend),
            escaped(row.mode),
            escaped(row.reference),
            f"{escaped(row.data_set)}, {row.size:,}",
            f"{row.verdict} {escaped(row.note)}".strip(),
            wording.estimate(row.recall_vs_exact),
            wording.estimate(row.overlap),
            wording.estimate(row.rank_biased_overlap),
        ]
        for row in report.fidelity
    ]
    headings = ["Backend", "Mode", "Reference", "Data set", "Verdict", "Recall", "Overlap", "RBO"]
    yield table(headings, rows, figures=3)


def _fronts(report: Report) -> Iterator[str]:
    found = views.fronts(report)
    if found:
        yield "## Recall against throughput"
    for (data_set, size, concurrency), points in found.items():
        at_once = wording.count(concurrency, "query", "queries")
        yield f"### {escaped(data_set)}, {wording.count(size, 'chunk')}, {at_once} at once"
        rows = [
            [
                escaped(wording.speed_label(p.row)),
                "yes" if p.on_front else "no",
                wording.score(p.recall),
                wording.number(p.row.throughput_qps),
            ]
            for p in sorted(points, key=lambda p: (-p.recall, -p.row.throughput_qps))
        ]
        yield table(["System", "On the front", "Recall", "Answers/s"], rows, figures=2)


def _speed(report: Report) -> Iterator[str]:
    if not report.speed:
        return
    yield "## Speed"
    rows = [
        [
            escaped(wording.speed_label(row)),
            escaped(row.mode),
            f"{escaped(row.data_set)}, {row.size:,}",
            wording.share(row.selectivity),
            str(row.concurrency),
            *(wording.number(ms) for ms in (row.p50_ms, row.p95_ms, row.p99_ms)),
            wording.number(row.throughput_qps),
            wording.ratio(row.ratio),
        ]
        for row in report.speed
    ]
    headings = ["System", "Mode", "Data set", "Filter", "At once", "p50 ms", "p95 ms", "p99 ms"]
    yield table([*headings, "Answers/s", "Ratio"], rows, figures=7)


def _builds(report: Report) -> Iterator[str]:
    if not report.builds:
        return
    yield "## Build time and size"
    rows = [
        [
            escaped(row.backend),
            escaped(row.data_set),
            f"{row.size:,}",
            wording.number(row.total_seconds),
            wording.number(row.insert_rate),
            wording.number(row.build_seconds),
            wording.number(row.seconds_until_searchable),
            wording.number(row.memory_mib),
            wording.number(row.disk_mib),
        ]
        for rows in views.builds(report).values()
        for row in rows
    ]
    headings = ["Backend", "Data set", "Chunks", "Seconds", "Inserts/s", "Index s"]
    yield table([*headings, "Searchable after s", "Memory MiB", "Disk MiB"], rows, figures=7)


def _failures(report: Report) -> Iterator[str]:
    if not report.failures:
        return
    yield "## Failures"
    rows = [
        [
            escaped(row.backend),
            escaped(row.stage),
            escaped(row.data_set or "all"),
            escaped(row.mode or "all"),
            escaped(row.message),
        ]
        for row in report.failures
    ]
    yield table(["Backend", "Stage", "Data set", "Mode", "Message"], rows)


def _method(report: Report) -> Iterator[str]:
    yield "## How it was measured"
    yield f"Command: {escaped(report.command)}"
    facts = {
        "Seed": str(report.seed),
        "Machine": wording.machine(report),
        "Threads": ", ".join(f"{k}={v}" for k, v in report.hardware.threads.items()),
        "Embedding model": report.embedding_model or "",
        "Baseline": report.baseline or "",
        "Python": report.python,
        "Packages": ", ".join(f"{name} {version}" for name, version in report.packages.items()),
    }
    yield "\n".join(f"* {name}: {escaped(said)}" for name, said in facts.items() if said)
    if report.data_sets:
        yield table(
            ["Data set", "File", "sha256"],
            [
                [escaped(found.name), escaped(name), escaped(value)]
                for found in report.data_sets
                for name, value in found.sha256.items()
            ],
        )
    if report.notes:
        yield "\n".join(f"* {escaped(note)}" for note in report.notes)
