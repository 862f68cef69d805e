"""The commands `corral bench report` and `compare`; `reporting` has their options.

`compare --json` prints one object: `tolerance`; `quality` (data_set, system, metrics by name as
[before, after, difference], comparison with difference, p, p_holm, verdict and statement); `speed`
(system, figure, before, after, ratio, verdict); `missing` (section, system, missing_in, reason);
`notes` and `regressions`, both lists of sentences.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from corral.api.errors import InvalidRequest
from corral.bench.report import HTML_NAME, MARKDOWN_NAME, render_html, render_markdown, terminal
from corral.bench.report.combined import combined
from corral.bench.report.compare import compare_reports
from corral.bench.report.comparison import compare_blocks
from corral.bench.report.report import REPORT_NAME, read_report, write_report
from corral.bench.run import refuse_existing


def report(
    paths: Sequence[Path], *, html: Path | None, markdown: Path | None, out: Path | None
) -> None:
    """Render a report, by default to two files beside it, or combine several in `out`.

    Nothing is written if a file cannot be.

    Raises:
        InvalidRequest: A path is not a readable report, the reports cannot be combined, or a file
            cannot be written.
        Conflict: `out` holds a report already.
    """
    if out is None and len(paths) > 1:
        raise InvalidRequest(
            "To join several reports, pass --out, the folder for the result.", field="out"
        )
    parts = [(path if path.is_dir() else path.parent, read_report(path)) for path in paths]
    folder, found = parts[0]
    if out is not None:
        refuse_existing(out)
        folder, found = out, combined(parts, out)
    if html is None and markdown is None:
        html, markdown = folder / HTML_NAME, folder / MARKDOWN_NAME
    wanted = ((markdown, render_markdown), (html, render_html))
    targets = [(path, render(found)) for path, render in wanted if path is not None]
    for path, _ in targets:
        _check_writable(path, out)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_report(found, out / REPORT_NAME)
        terminal.line(f"Wrote {out / REPORT_NAME}")
    for path, text in targets:
        path.write_text(text, encoding="utf-8")
        terminal.line(f"Wrote {path}")


def compare(
    first: Path, second: Path, *, tolerance: float, allow_missing: bool, as_json: bool
) -> bool:
    """Print the changes from the first report to the second; return True if nothing is worse.

    Raises:
        InvalidRequest: A file is not a readable report, or the data differ.
    """
    found = compare_reports(
        read_report(first), read_report(second), tolerance=tolerance, allow_missing=allow_missing
    )
    if as_json:
        click.echo(found.model_dump_json(indent=1))
    else:
        tables, lines = compare_blocks(found)
        terminal.show(tables)
        terminal.line(*lines)
    return not found.regressions


def _check_writable(path: Path, out: Path | None) -> None:
    """Reject an output path that cannot be written; create `out` if it is missing."""
    there = next(place for place in (path, *path.resolve().parents) if place.exists())
    made = out is not None and path.parent.resolve() == out.resolve()
    if path.is_dir():
        wrong = "it is a folder"
    elif not made and not path.parent.is_dir():
        wrong = f"there is no folder {path.parent}"
    elif not os.access(there, os.W_OK):
        wrong = "permission denied"
    else:
        return
    raise InvalidRequest(f"{path} cannot be written: {wrong}.")
