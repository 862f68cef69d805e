"""What `corral bench speed` and `fidelity` do: plan, measure with a progress bar, show tables."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from corral.api.errors import InvalidRequest
from corral.bench.commands.quality import command_line, failures_table, new_folder
from corral.bench.fidelity.plan import make_fidelity_plan
from corral.bench.fidelity.results import EXACT
from corral.bench.fidelity.run import run_fidelity
from corral.bench.report import HTML_NAME, MARKDOWN_NAME, write_reports
from corral.bench.report.report import REPORT_NAME, Report
from corral.bench.report.rows import BuildRow, Estimate, FidelityRow, SpeedRow
from corral.bench.speed.plan import make_speed_plan
from corral.bench.speed.run import run_speed
from corral.bench.speed.session import percent
from corral.providers.config import data_home, load_config
from corral.server.command_line import display
from corral.server.command_line.client import CommandError
from corral.server.command_line.progress import progress

LEGEND = "milliseconds; x4: answers a second, 4 at once"
SIZES, SYNTHETIC = "10k", "5k"
FIDELITY_COLUMNS = ("backend", "mode", "filter", "k>", "recall>", "overlap>", "RBO>", "score diff>")
PAIR_COLUMNS = ("backend", "with", "mode", "overlap>", "RBO>", "score diff>")
WRONG = "!"
"""Beside the figures of an answer that is not right."""


def speed(
    home: Path | None,
    general_config: Path | None,
    *,
    backends: str,
    peers: str,
    sizes: str | None,
    modes: str,
    filters: str,
    concurrency: str,
    data: Sequence[str],
    config: Path | None,
    out: Path | None,
    **options: Any,
) -> None:
    """Measure speed, show the tables, and fail where something could not be measured.

    Raises:
        CorralError: The plan cannot work, or nothing could be measured in the time given.
        CommandError: Something could not be measured; the report says what.
    """
    # For the processes that are started: each system works with one thread for each question.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    folder = home or data_home()
    plan = make_speed_plan(
        backends=[*_names(backends), *_names(peers)],
        sizes=_names(sizes or ("" if data else SIZES)),
        modes=_names(modes),
        filters=_names(filters),
        concurrency=_numbers(concurrency),
        data=data,
        config=load_config(config or general_config, folder),
        home=folder,
        out=out or new_folder(),
        command=command_line(),
        **options,
    )
    seconds = [plan.seconds(source, served=served) for source, served in plan.units()]
    with progress(len(seconds), _hundredths(seconds), work="Measuring", things="sizes") as advance:
        report = asyncio.run(run_speed(plan, advance))
    _finish(report, plan.out, _speed_tables(report))


def fidelity(
    home: Path | None,
    general_config: Path | None,
    *,
    backends: str,
    synthetic: str | None,
    modes: str,
    filters: str,
    data: Sequence[str],
    config: Path | None,
    out: Path | None,
    **options: Any,
) -> None:
    """Compare answers, show the tables, and fail where there is a defect or a failure.

    Raises:
        CorralError: The plan cannot work, or nothing could be measured in the time given.
        CommandError: Something could not be measured, or a backend's mapping is wrong.
    """
    folder = home or data_home()
    plan = make_fidelity_plan(
        backends=_names(backends),
        synthetic=_names(synthetic or ("" if data else SYNTHETIC)),
        modes=_names(modes),
        filters=_names(filters),
        data=data,
        config=load_config(config or general_config, folder),
        home=folder,
        out=out or new_folder(),
        command=command_line(),
        **options,
    )
    number = len(plan.backends) * len(plan.sources)
    with progress(number, plan.work(), work="Comparing", things="backends") as advance:
        report = asyncio.run(run_fidelity(plan, advance))
    _finish(report, plan.out, _fidelity_tables(report))
    broken = sorted({row.backend for row in report.fidelity if _is_broken(row)})
    if broken:
        raise CommandError(f"The mapping of {', '.join(broken)} is wrong; see the notes.")


def _finish(report: Report, out: Path, tables: Iterable[Table]) -> None:
    """Write the reports and show everything.

    Raises:
        CommandError: There are failures.
    """
    write_reports(report, out)
    for table in tables:
        display.show(table, "")
    if report.failures:
        display.show(failures_table(report.failures), "")
    for note in report.notes:
        display.show(display.clean(note))
    names = ", ".join((HTML_NAME, MARKDOWN_NAME, REPORT_NAME))
    display.show(f"Reports in {display.clean(out)}: {names}")
    if report.failures:
        count = len(report.failures)
        raise CommandError(
            f"Not everything could be measured: {count} failure{'s' if count > 1 else ''}."
        )


def _speed_tables(report: Report) -> Iterable[Table]:
    for data in report.data_sets:
        builds = [row for row in report.builds if row.data_set == data.name]
        rows = [row for row in report.speed if row.data_set == data.name]
        if builds:
            yield _build_table(f"{data.name}, {data.documents:,} chunks, storing", builds)
        wrong = {(f.backend, f.mode) for f in report.failures if f.stage == "check"}
        for variants, title in ((("",), "asking"), (("index", "http"), "asking over HTTP")):
            shown = [row for row in rows if row.variant in variants]
            if shown:
                yield _speed_table(f"{data.name}, {title}: {LEGEND}", shown, wrong)


def _build_table(title: str, rows: Sequence[BuildRow]) -> Table:
    headers = ("insert/s>", "first tenth>", "last>", "build s>", "found after s>", "MiB>", "disk>")
    table = _table(title, "backend", *headers)
    for row in rows:
        rates = (row.insert_rate, row.first_tenth_rate, row.last_tenth_rate)
        seconds = (row.build_seconds, row.seconds_until_searchable)
        weights = (row.memory_mib, row.disk_mib)
        cells = [_number(rate, 0) for rate in rates] + [_number(one, 2) for one in seconds]
        _row(table, row.backend, *cells, *(_number(one, 0) for one in weights))
    return table


def _speed_table(title: str, rows: Sequence[SpeedRow], wrong: set[tuple[str, str | None]]) -> Table:
    """Return serial latencies, and throughput at each concurrency, a line for mode and filter."""
    levels = sorted({row.concurrency for row in rows})
    headers = ("p50>", "p95>", "ratio>", *(f"x{n}>" for n in levels), "recall>")
    table = _table(title, "backend", "mode", "filter>", *headers)
    lines: dict[tuple[str, str, float | None], dict[int, SpeedRow]] = {}
    for row in rows:
        name = f"{row.backend} {row.variant}".strip()
        lines.setdefault((name, row.mode, row.selectivity), {})[row.concurrency] = row
    for (name, mode, selectivity), found in lines.items():
        first = found[min(found)]
        times = [_short(one) for one in (first.p50_ms, first.p95_ms, first.ratio)]
        rates = [_short(found[n].throughput_qps if n in found else None) for n in levels]
        mark = WRONG if (name, mode) in wrong else ""
        recall = f"{_number(first.recall_vs_exact, 3)}{mark}"
        _row(table, name, mode, percent(selectivity), *times, *rates, recall)
    return table


def _fidelity_tables(report: Report) -> Iterable[Table]:
    """Return, for each data set, all against brute force, and the pairs that differ at k = 10."""
    for data in report.data_sets:
        rows = {row: row.data_set.removeprefix(data.name) for row in report.fidelity}
        own = {row: rest for row, rest in rows.items() if rest == "" or rest.startswith(", ")}
        single = _table(f"{data.name}, against brute force", *FIDELITY_COLUMNS, "verdict")
        pairs = _table(f"{data.name}, pairs that differ, k = 10", *PAIR_COLUMNS)
        for row, rest in own.items():
            figures = _fidelity_figures(row)
            if row.reference == EXACT:
                place = (row.backend, row.mode, rest.removeprefix(", "), str(row.k))
                _row(single, *place, _mean(row.recall_vs_exact), *figures, row.verdict)
            elif row.verdict != "agrees" and (row.k, rest) == (10, ""):
                _row(pairs, row.backend, row.reference, row.mode, *figures)
        yield from (table for table in (single, pairs) if table.row_count)
    notes = dict.fromkeys(
        f"{r.backend}, {r.mode}: {r.note}" for r in filter(_is_broken, report.fidelity)
    )
    if notes:
        broken = _table("Defects", "what")
        for note in notes:
            _row(broken, note)
        yield broken


def _fidelity_figures(row: FidelityRow) -> tuple[str, str, str]:
    difference = "" if row.score_difference_max is None else f"{row.score_difference_max:.1e}"
    return _mean(row.overlap), _mean(row.rank_biased_overlap), difference


def _is_broken(row: FidelityRow) -> bool:
    return row.reference == EXACT and row.verdict == "mapping"


def _table(title: str, *headers: str) -> Table:
    """Return an empty table; a header that ends with `>` heads numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.title, table.title_justify = Text(display.clean(title)), "left"
    for header in headers:
        right = header.endswith(">")
        table.add_column(
            header.rstrip(">"),
            overflow="fold",
            justify="right" if right else "left",
            no_wrap=right or header != "what",
        )
    return table


def _row(table: Table, *cells: str) -> None:
    table.add_row(*(Text(display.clean(cell)) for cell in cells))


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _short(value: float | None) -> str:
    """Return a number with three digits that count; whole from 100 on."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _mean(value: Estimate | None) -> str:
    return "" if value is None else f"{value.mean:.4f}"


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str) -> list[int]:
    """Return numbers that are joined by commas.

    Raises:
        InvalidRequest: One is none.
    """
    try:
        return [int(one) for one in _names(text)]
    except ValueError:
        raise InvalidRequest(
            f"--concurrency {text!r} is no list of numbers.", field="concurrency"
        ) from None


def _hundredths(seconds: Sequence[float]) -> int:
    return sum(round(one * 100) for one in seconds)
