"""`corral bench report` and `corral bench compare`: what to do with a run's `report.json`.

`compare --json` prints one object: `tolerance`; `quality` (data_set, system, metrics by name as
[before, after, difference], comparison with difference, p, p_holm, verdict and statement); `speed`
(system, figure, before, after, ratio, verdict); `fidelity` (system, before, after); `missing`
(section, system, missing_in, reason); `notes` and `regressions`, both lists of sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich import box
from rich.table import Table
from rich.text import Text

from corral.api.errors import Conflict, InvalidRequest
from corral.bench.quality.metrics import NDCG
from corral.bench.report import HTML_NAME, MARKDOWN_NAME, render_html, render_markdown
from corral.bench.report.combined import combined
from corral.bench.report.compare import compare_reports, read
from corral.bench.report.compare_rows import Missing, QualityChange, ReportComparison, SpeedChange
from corral.bench.report.report import REPORT_NAME, write_report
from corral.bench.report.wording import count, p_value
from corral.server.command_line import display


def report(
    paths: Sequence[Path], *, html: Path | None, markdown: Path | None, out: Path | None
) -> None:
    """Render a report again, without a file named both beside it; or make one of several in `out`.

    Raises:
        InvalidRequest: A path is no report, cannot be read, or they cannot be one.
        Conflict: `out` holds a report already.
        OSError: A file cannot be written.
    """
    if out is not None:
        _combine(paths, out)
        paths = [out]
    elif len(paths) > 1:
        raise InvalidRequest("Several reports become one in the folder --out.", field="out")
    found, folder = read(paths[0]), _folder(paths[0])
    if html is None and markdown is None:
        html, markdown = folder / HTML_NAME, folder / MARKDOWN_NAME
    for target, render in ((markdown, render_markdown), (html, render_html)):
        if target is not None:
            target.write_text(render(found), encoding="utf-8")
            click.echo(f"Wrote {display.clean(target)}")


def _combine(paths: Sequence[Path], out: Path) -> None:
    if (out / REPORT_NAME).exists():
        raise Conflict(f"{out} holds a report already.", hint="Name another --out.", field="out")
    whole = combined([(_folder(path), read(path)) for path in paths], out)
    out.mkdir(parents=True, exist_ok=True)
    write_report(whole, out)
    click.echo(f"Wrote {display.clean(out / REPORT_NAME)}")


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def compare(
    first: Path, second: Path, *, tolerance: float, allow_missing: bool, as_json: bool
) -> bool:
    """Print what changed from the first report to the second; return whether nothing got worse.

    Raises:
        InvalidRequest: A file is no report, cannot be read, or is of other data.
    """
    found = compare_reports(
        read(first), read(second), tolerance=tolerance, allow_missing=allow_missing
    )
    if as_json:
        click.echo(found.model_dump_json(indent=1))
    else:
        _show(found)
    return not found.regressions


def _show(found: ReportComparison) -> None:
    changed = [change for change in found.quality if any(_differences(change))]
    faster = [change for change in found.speed if change.verdict != "same"]
    if changed:
        display.show(_quality_table(changed), "")
    if faster:
        display.show(_speed_table(faster), "")
    if found.missing:
        display.show(_missing_table(found.missing), "")
    equal = len(found.quality) - len(changed), len(found.speed) - len(faster)
    display.show(
        f"Unchanged: quality of {count(equal[0], 'system')}, {count(equal[1], 'figure')} of speed "
        f"(tolerance {found.tolerance:.0%})."
    )
    for note in found.notes:
        display.show(f"Note: {display.clean(note)}")
    for regression in found.regressions:
        display.show(f"Regression: {display.clean(regression)}")
    if not found.regressions:
        display.show("No regression.")


def _differences(change: QualityChange) -> list[float]:
    return [difference for _, _, difference in change.metrics.values()]


def _quality_table(changes: Sequence[QualityChange]) -> Table:
    names = [n for n in dict.fromkeys(n for c in changes for n in c.metrics) if n != NDCG]
    table = _table("quality of", f"{NDCG}>", "change>", *(f"{name}>" for name in names), "is", "p>")
    for change in changes:
        before, after, _ = change.metrics.get(NDCG, (0.0, 0.0, 0.0))
        others = (f"{change.metrics[n][2]:+.3f}" if n in change.metrics else "" for n in names)
        found = change.comparison
        means = f"{before:.3f} > {after:.3f}" if NDCG in change.metrics else ""
        _row(
            table,
            f"{change.data_set} {change.system}",
            means,
            f"{found.difference.mean:+.3f}",
            *others,
            found.verdict,
            p_value(found.p_holm).removeprefix("p "),
        )
    return table


def _speed_table(changes: Sequence[SpeedChange]) -> Table:
    table = _table("speed of", "figure", "before>", "after>", "ratio>", "is")
    for change in changes:
        figures = f"{change.before:.4g}", f"{change.after:.4g}", f"{change.ratio:.2f}"
        _row(table, change.system, change.figure, *figures, change.verdict)
    return table


def _missing_table(rows: Sequence[Missing]) -> Table:
    table = _table("only in one report", "section", "missing in", "why")
    for row in rows:
        _row(table, row.system, row.section, f"the {row.missing_in}", row.reason)
    return table


def _table(*headers: str) -> Table:
    """Return an empty table; a header that ends with `>` heads numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for header in headers:
        right = header.endswith(">")
        table.add_column(header.rstrip(">"), overflow="fold", justify="right" if right else "left")
    return table


def _row(table: Table, *cells: str) -> None:
    table.add_row(*(Text(display.clean(cell)) for cell in cells))
