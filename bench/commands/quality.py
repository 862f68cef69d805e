"""What `corral bench quality` does: plan, measure with a progress bar, show the table."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from corral.api.errors import InvalidRequest
from corral.bench.quality.metrics import NDCG
from corral.bench.quality.plan import make_plan
from corral.bench.quality.run import run_quality, work_of
from corral.bench.report import HTML_NAME, MARKDOWN_NAME, write_reports
from corral.bench.report.report import REPORT_NAME, Report
from corral.bench.report.rows import DataSet, Estimate, Failure, QualityRow
from corral.providers.config import data_home, load_config
from corral.server.command_line import display
from corral.server.command_line.client import CommandError
from corral.server.command_line.progress import progress

OUT = "corral-bench"
SHOWN = ("R@10", "R@100")
"""Beside nDCG@10; the report has the others."""


def run(
    home: Path | None,
    general_config: Path | None,
    data: Sequence[str],
    *,
    backends: str,
    modes: str,
    fusions: Sequence[str],
    languages: Sequence[str],
    config: Path | None,
    out: Path | None,
    **options: Any,
) -> None:
    """Measure, show the table, and fail where something could not be measured.

    Raises:
        CorralError: The plan cannot work, or nothing could be measured in the time given.
        CommandError: Something could not be measured; the report says what.
    """
    folder = home or data_home()
    plan = make_plan(
        data=data,
        backends=backends.split(","),
        modes=[mode.strip() for mode in modes.split(",")],
        fusions=fusions or ("weighted",),
        languages=_languages(languages),
        config=load_config(config or general_config, folder),
        home=folder,
        out=out or new_folder(),
        command=command_line(),
        **options,
    )
    cells, work = asyncio.run(work_of(plan))
    with progress(cells, work, work="Measuring", things="cells") as advance:
        report = asyncio.run(run_quality(plan, advance))
    write_reports(report, plan.out)
    show(report, plan.out)
    if report.failures:
        count = len(report.failures)
        failures = f"{count} failure{'s' if count > 1 else ''}"
        raise CommandError(f"Not everything could be measured: {failures}.")


def new_folder() -> Path:
    """Return a folder for a run that nobody named; it does not exist yet."""
    return Path(OUT) / f"{datetime.now(UTC):%Y%m%d-%H%M%S}"


def command_line() -> str:
    """Return the command as it can be typed again."""
    return shlex.join(["corral", *sys.argv[1:]])


def show(report: Report, out: Path) -> None:
    """Print a table for each data set, the failures, and where the report is."""
    for data in report.data_sets:
        rows = [row for row in report.quality if row.data_set == data.name]
        if rows:
            display.show(quality_table(data, rows), "")
    if report.failures:
        display.show(failures_table(report.failures), "")
    for note in report.notes:
        display.show(display.clean(note))
    names = ", ".join((HTML_NAME, MARKDOWN_NAME, REPORT_NAME))
    display.show(f"Reports in {display.clean(out)}: {names}")


def quality_table(data: DataSet, rows: Sequence[QualityRow]) -> Table:
    """Return the rows of one data set: nDCG@10 with its interval, the rest, the comparison."""
    title = f"{data.name}, {data.language}, {data.queries} queries, mean [95 % interval]"
    table = _table("backend", "mode", f"{NDCG}>", *(f"{name}>" for name in SHOWN), "compared>")
    table.title, table.title_justify = Text(display.clean(title)), "left"
    for row in rows:
        mode = f"{row.mode} {row.fusion or ''}".strip()
        others = [f"{row.metrics[other].mean:.3f}" for other in SHOWN]
        _row(table, row.backend, mode, _interval(row.metrics[NDCG]), *others, _verdict(row))
    return table


def failures_table(failures: Sequence[Failure]) -> Table:
    """Return what could not be measured, and why."""
    table = _table("failed", "mode", "data set", "while", "why")
    for failure in failures:
        place = (failure.mode or "", failure.data_set or "", failure.stage)
        _row(table, failure.backend, *place, failure.message)
    return table


def _table(*headers: str) -> Table:
    """Return an empty table; a header that ends with `>` heads numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for header in headers:
        right = header.endswith(">")
        table.add_column(
            header.rstrip(">"), overflow="fold", justify="right" if right else "left", no_wrap=right
        )
    return table


def _row(table: Table, *cells: str) -> None:
    table.add_row(*(Text(display.clean(cell)) for cell in cells))


def _interval(found: Estimate) -> str:
    return f"{found.mean:.4f} [{found.low:.3f}, {found.high:.3f}]"


def _verdict(row: QualityRow) -> str:
    if row.comparison is None:
        return "baseline"
    difference, p = row.comparison.difference.mean, row.comparison.p_holm
    return f"{row.comparison.verdict} ({difference:+.3f}, p {p:.2g})"


def _languages(given: Sequence[str]) -> dict[str, str]:
    """Return languages by name of a set, under "" for all.

    Raises:
        InvalidRequest: Two are given for one.
    """
    found: dict[str, str] = {}
    for each in given:
        name, _, language = each.rpartition("=")
        if name in found:
            raise InvalidRequest(f"--language is given twice for {name or 'all'}.")
        found[name] = language
    return found
