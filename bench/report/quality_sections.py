"""The sections on quality: findings, tables, heat map, fusion weight, queries; and on tuning."""

from __future__ import annotations

import json
from collections.abc import Iterable

from corral.bench.quality.metrics import NDCG
from corral.bench.report import by_query, charts, views, wording
from corral.bench.report.blocks import (
    Block,
    Brief,
    Cell,
    Chart,
    Charts,
    Column,
    Folded,
    Heading,
    Item,
    Items,
    Section,
    Table,
    Text,
    figures,
)
from corral.bench.report.drawing import Scale, linear
from corral.bench.report.report import Report
from corral.bench.report.rows import Failure, QualityRow, ShownDocument, TuneSection, TuneTrial
from corral.bench.report.sweep import Sweep, sweeps

BRIEF = (NDCG, "R@10", "R@100")
"""Metrics that fit a terminal."""
NO_TEXT = "(its text is not in the report)"


def findings(report: Report) -> Section | None:
    """Return the findings, in sentences; None if there are none."""
    items = [_best(rows) for rows in views.quality_by_set(report).values()]
    items += [Item(found.data_set, found.statement) for found in report.tune]
    items += [Item(name, text) for name, text in views.agreement(report).items()]
    items += [Item(name, text) for name, text in views.fastest(report).items()]
    if report.failures:
        count = wording.count(len(report.failures), "failure")
        items.append(Item("", f"{count}, each with its reason.", link="failures"))
    return (
        Section("findings", "Findings", "Findings", [Items(items, "findings")]) if items else None
    )


def quality(report: Report) -> Section | None:
    """Return a table for each data set: every system with intervals and verdicts."""
    sets = views.quality_by_set(report)
    lead = Text(
        "Means over the queries with bootstrap 95 % intervals. Against the baseline: nDCG@10, "
        "paired randomization test, p after Holm's correction. The upright line is the baseline. "
        "Backends whose answers are equal in quality share a row. Agrees with exact: the share of "
        "the 10 best by brute force that are among the first 10 hits, for the first queries."
    )
    tables = [quality_table(report, name) for name in sets]
    return Section("quality", "Quality", "Quality", [lead, *tables]) if sets else None


def quality_table(report: Report, name: str) -> Table:
    """Return the systems of one data set, the best first, and its failures."""
    rows = views.quality_by_set(report)[name]
    metrics = views.metric_names(rows)
    columns = [
        Column("System", wraps=True),
        Column("Mode"),
        *(Column(m, figures=True, brief=_brief(m)) for m in metrics[:1]),
        Column("Against the baseline", wraps=True),
        *(Column(m, figures=True, brief=_brief(m)) for m in metrics[1:]),
    ]
    shown = [row.metrics[NDCG] for row in rows if NDCG in row.metrics]
    ends = [end for one in shown for end in (one.low, one.high)]
    scale = linear(ends, 0, 1) if ends else None
    base = {row.comparison.baseline for row in rows if row.comparison}
    level = next((views.ndcg(row) for row in rows if row.label in base), None)
    cells = []
    alike = views.grouped(rows, lambda r: (views.answers_of(r), frozenset(r.metrics.items())))
    for some in alike.values():
        first = next((row for row in some if row.label in base), some[0])
        system = Cell(wording.listed([row.backend for row in some]), first.fusion or "")
        found = [_metric(first, metric, scale, level) for metric in metrics]
        said = Cell("baseline") if first.label in base else wording.verdict(first.comparison)
        cells.append([system, mode_cell(first.mode), *found[:1], said, *found[1:]])
    failed = [_failed(row) for row in views.failures_of(report, name)]
    data = next((d for d in report.data_sets if d.name == name), None)
    parts = [name, data.language if data else ""]
    parts.append(wording.count(rows[0].n_queries, "query", "queries"))
    parts.append(wording.count(data.documents, "document") if data else "")
    return Table(", ".join(part for part in parts if part), columns, cells, failed)


def heat_map(report: Report) -> Section | None:
    """Return nDCG@10 of every system on every data set.

    None for a single data set, which has a table.
    """
    sets = list(dict.fromkeys(row.data_set for row in report.quality))
    if len(sets) < 2:
        return None
    known = [views.ndcg(row) for row in report.quality]
    low, high = min(known), max(known)
    lead = Text(
        "Rows alike in a column: these databases agree. Tables that differ: the mode matters. "
        f"One color scale for all, from {wording.score(low)} to {wording.score(high)}."
    )
    by_mode: dict[str, list[list[Cell]]] = {}
    for mode, system, fusion, values in views.heat_rows(report, sets):
        cells = [_heat_cell(value, low, high) for value in values]
        by_mode.setdefault(mode, []).append([Cell(system, fusion), *cells])
    columns = [Column("System", wraps=True), *figures(*sets)]
    tables = [Table(f"{NDCG}, {mode}", columns, rows, heat=True) for mode, rows in by_mode.items()]
    return Section("heat-map", f"{NDCG} by system and data set", "Heat map", [lead, *tables])


def sweep(report: Report) -> Section | None:
    """Return nDCG@10 over the weight of the vector leg, a chart for each data set and backend."""
    found = sweeps(report)
    lead = Text(
        f"{NDCG} by the share of the vector leg (0: keyword only, 1: vector only). The band is the "
        "95 % interval of the line that reaches highest; dashed lines have no weight."
    )
    drawn = [
        Chart(
            one.title,
            charts.sweep(one),
            [(name, at) for at, name in enumerate(one.series)],
            _swept(one),
        )
        for one in found
    ]
    return (
        Section("sweep", "Fusion weight", "Fusion weight", [lead, Charts(drawn)]) if found else None
    )


def queries(report: Report) -> Section | None:
    """Return each system's wins and losses against the baseline, with the queries' texts."""
    lead = Text(
        "nDCG@10 of each query minus the baseline's. The greatest wins and losses have texts: of "
        "the query, of the first hit of each system, and of the relevant document that decided."
    )
    blocks: list[Block] = []
    for data_set, found in by_query.compared(report).items():
        differ = [one for one in found if any(change.difference for change in one[2])]
        same = [one[0] for one in found if one not in differ]
        blocks.append(Heading(data_set))
        blocks += [_changes(*one, is_open=one is differ[0]) for one in differ]
        if same:
            blocks.append(Text(f"No query differs: {'; '.join(same)}.", "note"))
    title = "Wins and losses by query"
    return Section("queries", title, "Queries", [lead, *blocks]) if blocks else None


def tuning(report: Report) -> Section | None:
    """Return the trials of a tuning and its recommendation."""
    blocks = [block for found in report.tune for block in _tuned(found)]
    return Section("tune", "Tuning", "Tuning", blocks) if blocks else None


def tune_table(found: TuneSection, trials: Iterable[TuneTrial]) -> Table:
    """Return the trials, held-out ones first, then the best of the training half."""
    columns = [
        Column("Setting", wraps=True),
        *figures("Training half", "Held-out half", "All in 5"),
        Column("Verdict", brief="none"),
    ]
    rows: list[list[Cell | str]] = [
        [
            Cell(t.label, _marks(t, found)),
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


def _marks(trial: TuneTrial, found: TuneSection) -> str:
    marks = {"chosen": found.chosen, "registered": found.registered}
    names = ", ".join(name for name, label in marks.items() if label == trial.label)
    return f"← {names}" if names else ""


def mode_cell(mode: str) -> Cell:
    """Return a mode with its color."""
    return Cell(mode, style=f"badge mode-{mode if mode in views.MODES else 'other'}")


def _best(rows: list[QualityRow]) -> Item:
    """Return a sentence on the best system, with its significance."""
    best = rows[0]
    figure = wording.estimate(best.metrics.get(NDCG)).whole
    said = f"{views.name_of(rows, best)} has the highest nDCG@10, {figure}"
    if best.comparison is not None:
        return Item(best.data_set, f"{said}; {best.comparison.statement}.")
    return Item(best.data_set, said + (", the baseline itself." if len(rows) > 1 else "."))


def _brief(metric: str) -> Brief:
    return "none" if metric not in BRIEF else "all" if metric == NDCG else "text"


def _metric(row: QualityRow, metric: str, scale: Scale | None, level: float | None) -> Cell:
    """Return a mean with its interval; the deciding metric also gets a drawing."""
    found = row.metrics.get(metric)
    cell = wording.estimate(found)
    if metric != NDCG or found is None or scale is None:
        return cell
    return Cell(cell.text, cell.note, strong=True, drawing=charts.interval(found, scale, level))


def _failed(row: Failure) -> list[Cell]:
    said = Cell("✕ failed", f"({row.stage}) {row.message}", "verdict failed")
    return [Cell(row.backend), mode_cell(row.mode or "all"), said]


def _heat_cell(value: float | None, low: float, high: float) -> Cell:
    if value is None:
        return Cell(wording.NONE, style="empty")
    share = 100.0 if high <= low else round((value - low) / (high - low) * 100, 1)
    return Cell(wording.score(value), share=share)


def _swept(found: Sweep) -> Table:
    rows: list[list[Cell | str]] = [
        [name, f"{alpha:g}", wording.estimate(value)]
        for name, points in found.series.items()
        for alpha, value in points
    ]
    return Table(found.title, [Column("Setting", wraps=True), *figures("Weight", NDCG)], rows)


def _changes(name: str, row: QualityRow, found: list[by_query.Change], *, is_open: bool) -> Folded:
    wins, losses = by_query.wins(found), by_query.losses(found)
    equal = len(found) - len(wins) - len(losses)
    against = row.comparison.baseline if row.comparison else ""
    summary = f"against {against}: {len(wins)} better, {len(losses)} worse, {equal} equal"
    columns = [Column("Query", wraps=True), *figures("Baseline", "Here", "Difference")]
    tables = [
        Table(f"{title} of {name}", columns, [_change(c) for c in some[: by_query.EXAMPLES]])
        for title, some in (("Greatest wins", wins), ("Greatest losses", losses))
        if some
    ]
    chart = Chart("", charts.differences(found))
    return Folded(name, [Charts([chart]), *tables], summary, agrees=not is_open, open=is_open)


def _change(change: by_query.Change) -> list[Cell | str]:
    documents = [_document(*one) for one in change.documents]
    return [
        Cell(
            change.text or NO_TEXT,
            change.query_id,
            "query",
            more=Folded("", [Items(documents)], "Documents") if documents else None,
        ),
        wording.score(change.baseline),
        wording.score(change.value),
        f"{change.difference:+.3f}",
    ]


def _document(shown: ShownDocument, text: str) -> Item:
    """Return one document: its relevance, its rank in each system, and its beginning."""
    judged = "not judged"
    if shown.relevance is not None:
        judged = f"relevance {shown.relevance}" if shown.relevance > 0 else "not relevant"
    ranks = f"{_rank(shown.rank)} here, {_rank(shown.baseline_rank)} in the baseline"
    return Item(f"{judged}; {ranks}; {shown.document_id}", text or NO_TEXT)


def _rank(rank: int | None) -> str:
    return "not found" if rank is None else f"rank {rank}"


def _tuned(found: TuneSection) -> list[Block]:
    source = "made from the chunks" if found.generated else "given"
    registration = json.dumps(found.settings, indent=2, ensure_ascii=False)
    table = tune_table(found, found.trials)
    return [
        Heading(f"{found.data_set}, {found.backend}"),
        Text(f"{found.statement} (questions: {source})", "statement"),
        Text(registration, "code"),
        Folded(f"All {wording.count(len(found.trials), 'setting')}", [table]),
        *([Items([Item("", note) for note in found.notes])] if found.notes else []),
    ]
