"""The page's sections on quality: what was found, the tables, the heat map, the sweep, queries."""

from __future__ import annotations

from corral.bench.quality.metrics import NDCG
from corral.bench.report import charts, views, wording
from corral.bench.report.markup import Content, Html, tag
from corral.bench.report.report import Report
from corral.bench.report.rows import Failure, QualityRow, ShownDocument
from corral.bench.report.svg import Scale, legend, linear
from corral.bench.report.sweep import sweeps
from corral.bench.report.tables import (
    Column,
    details,
    estimate,
    failure_row,
    figure,
    figures,
    lead,
    mode_badge,
    scrolling,
    section,
    table,
    user,
    verdict,
)


def findings(report: Report) -> Html | None:
    """Return what was found, in sentences; None where nothing can be said."""
    items = [_best(rows) for rows in views.quality_by_set(report).values()]
    items += [tag("li", user(found.data_set), ": ", user(found.statement)) for found in report.tune]
    broken = [row for row in report.fidelity if row.verdict == "mapping"]
    if broken:
        names = ", ".join(dict.fromkeys(row.backend for row in broken))
        items.append(tag("li", "Scores or ids are wrong: ", tag("b", user(names)), "."))
    if report.failures:
        link = tag("a", wording.count(len(report.failures), "failure"), href="#failures")
        items.append(tag("li", link, ", each with its reason."))
    return section("findings", "Findings", tag("ul", items, class_="findings")) if items else None


def quality(report: Report) -> Html | None:
    """Return a table for each data set: every backend and mode with intervals and verdicts."""
    sets = views.quality_by_set(report)
    if not sets:
        return None
    said = (
        "Means over the queries with bootstrap 95 % intervals. Against the baseline: nDCG@10, "
        "paired randomization test, p after Holm's correction. The upright line is the baseline."
    )
    tables = [_quality_table(report, name, rows) for name, rows in sets.items()]
    return section("quality", "Quality", lead(said), tables)


def heat_map(report: Report) -> Html | None:
    """Return nDCG@10 of every system on every data set as a colored table."""
    found = views.heat_map(report)
    if found is None:
        return None
    low, high = wording.score(found.low), wording.score(found.high)
    scale = tag("p", low, tag("span", class_="ramp", aria_hidden="true"), high, class_="scale")
    said = (
        "Rows alike in a column: these databases agree. Blocks that differ: the mode matters. "
        "One color scale for all."
    )
    modes = dict.fromkeys(row.mode for row in found.rows)
    blocks = [_heat_block(m, [r for r in found.rows if r.mode == m], found) for m in modes]
    grid = tag("div", blocks, class_="grid-of-charts")
    return section("heat-map", "nDCG heat map", lead(said), grid, scale)


def sweep(report: Report) -> Html | None:
    """Return nDCG@10 over the weight of the vector leg, a chart for each data set and backend."""
    found = sweeps(report)
    if not found:
        return None
    parts = [
        figure(
            user(one.title),
            charts.sweep(one),
            legend((name, at) for at, name in enumerate(one.series)),
        )
        for one in found
    ]
    said = (
        "How hybrid quality depends on the share of the vector leg. The band is the 95 % interval "
        "of the line that reaches highest; dashed lines are what stands without a weight."
    )
    return section("sweep", "Fusion weight", lead(said), tag("div", parts, class_="grid-of-charts"))


def queries(report: Report) -> Html | None:
    """Return each system's wins and losses against the baseline, with the queries' texts."""
    parts = []
    for data_set, found in views.compared(report).items():
        differ = [name for name, _, changes in found if any(one.difference for one in changes)]
        parts.append(tag("h3", user(data_set)))
        parts += [_changes(name, row, changes, name in differ[:1]) for name, row, changes in found]
    said = (
        "nDCG@10 of each query minus the baseline's. The greatest wins and losses have texts: of "
        "the query, of the first hit of each system, and of the relevant document that decided."
    )
    return section("queries", "Wins and losses by query", lead(said), parts) if parts else None


def _best(rows: list[QualityRow]) -> Html:
    """One sentence on the best system of a data set, and whether it is known to be the best."""
    best = rows[0]
    figure_ = wording.estimate(best.metrics.get(NDCG))
    said: Content = "."
    if best.comparison is not None:
        said = ("; ", user(best.comparison.statement), ".")
    elif len(rows) > 1:
        said = ", the baseline itself."
    return tag(
        "li",
        tag("b", user(best.data_set)),
        ": ",
        tag("b", user(views.name_of(rows, best))),
        f" has the highest nDCG@10, {figure_}",
        said,
    )


def _quality_table(report: Report, name: str, rows: list[QualityRow]) -> Html:
    names = [metric for metric in views.metric_names(rows) if metric != NDCG]
    headings = ["System", "Mode", NDCG, "95 % interval"]
    columns = [
        Column(headings[0]),
        Column(headings[1]),
        Column(headings[2], figures=True),
        Column(headings[3]),
        Column("Against the baseline"),
        *figures(*names),
    ]
    scale = linear((v for r in rows if NDCG in r.metrics for v in _ends(r)), 0, 1)
    base = {row.comparison.baseline for row in rows if row.comparison}
    level = next((views.ndcg(row) for row in rows if row.label in base), None)
    cells = [_quality_cells(row, names, scale, level, row.label in base) for row in rows]
    failed = [_failure(row, len(columns)) for row in views.failures_of(report, name)]
    found = next((d for d in report.data_sets if d.name == name), None)
    size = f": {wording.count(found.documents, 'document')}" if found else ""
    caption = f"{name}{size}, {wording.count(rows[0].n_queries, 'query', 'queries')}"
    return table(caption, columns, [*cells, *failed])


def _ends(row: QualityRow) -> tuple[float, float]:
    return row.metrics[NDCG].low, row.metrics[NDCG].high


def _quality_cells(
    row: QualityRow, names: list[str], scale: Scale, level: float | None, is_baseline: bool
) -> list[Content]:
    main = row.metrics.get(NDCG)
    fusion = [" ", tag("small", user(row.fusion))] if row.fusion else None
    strip = charts.interval(main, scale, level) if main else None
    return [
        [user(row.backend), fusion],
        mode_badge(row.mode),
        tag("b", wording.score(main.mean)) if main else wording.NONE,
        [strip, tag("small", wording.interval(main))] if main else wording.NONE,
        verdict(row.comparison, is_baseline=is_baseline),
        *(estimate(row.metrics.get(name)) for name in names),
    ]


def _failure(row: Failure, columns: int) -> Html:
    name = [user(row.backend), " ", tag("small", row.mode or "all modes")]
    return failure_row(name, columns, f"({row.stage}) {row.message}")


def _heat_block(mode: str, rows: list[views.HeatRow], found: views.HeatMap) -> Html:
    columns = [tag("th", user(name), scope="col") for name in found.data_sets]
    head = tag("thead", tag("tr", tag("th", "System", scope="col"), columns))
    body = tag("tbody", [_heat_row(row, found) for row in rows])
    caption = tag("caption", "nDCG@10 ", mode_badge(mode))
    content = tag("table", caption, head, body, class_="heat")
    return scrolling(f"nDCG@10, {mode}", content)


def _heat_row(row: views.HeatRow, found: views.HeatMap) -> Html:
    fusion = tag("small", user(row.fusion), class_="below") if row.fusion else None
    head = tag("th", user(row.backend), fusion, scope="row")
    return tag("tr", head, [_heat_cell(value, found) for value in row.values])


def _heat_cell(value: float | None, found: views.HeatMap) -> Html:
    if value is None:
        return tag("td", wording.NONE, class_="empty")
    share = charts.heat(value, found)
    class_ = " ".join(["cell", *(f"over-{limit}" for limit in (50, 60) if share > limit)])
    return tag("td", wording.score(value), class_=class_, style=f"--share:{share:g}%")


def _changes(name: str, row: QualityRow, found: list[views.Change], open_: bool) -> Html:
    wins, losses = views.wins(found), views.losses(found)
    equal = len(found) - len(wins) - len(losses)
    counts = f"{len(wins)} better, {len(losses)} worse, {equal} equal"
    against = row.comparison.baseline if row.comparison else ""
    summary = (tag("b", user(name)), " against ", user(against), ": ", counts)
    columns = [Column("Query", wraps=True), *figures("Baseline", "Here", "Difference")]
    parts = [
        table(title, columns, [_change_cells(change) for change in some[: views.EXAMPLES]])
        for title, some in (("Greatest wins", wins), ("Greatest losses", losses))
        if some
    ]
    sides = tag("div", parts, class_="sides")
    return details(summary, charts.differences(found), sides, open_=open_)


def _change_cells(change: views.Change) -> list[Content]:
    text = user(change.text or "(its text is not in the report)")
    documents = [_document(*one) for one in change.documents]
    found = details("Documents", tag("ul", documents)) if documents else None
    return [
        [tag("small", user(change.query_id)), " ", tag("span", text, class_="query"), found],
        wording.score(change.baseline),
        wording.score(change.value),
        f"{change.difference:+.3f}",
    ]


def _document(shown: ShownDocument, text: str) -> Html:
    """One document: whether it is relevant, where each system has it, and how it begins."""
    judged = "not judged"
    if shown.relevance is not None:
        judged = f"relevance {shown.relevance}" if shown.relevance > 0 else "not relevant"
    ranks = f"{_rank(shown.rank)} here, {_rank(shown.baseline_rank)} in the baseline"
    said = tag("small", tag("b", judged), f"; {ranks}; ", user(shown.document_id))
    return tag("li", said, tag("div", user(text or "(its text is not in the report)")))


def _rank(rank: int | None) -> str:
    return "not found" if rank is None else f"rank {rank}"
