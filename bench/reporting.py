"""`corral bench report` and `compare`: options and dispatch. Imports nothing heavier than click."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from corral.bench.options import FILE, FOLDER, commands

if TYPE_CHECKING:
    from corral.server.command_line.options import Target


@click.command()
@click.argument("paths", metavar="REPORT.json...", type=FILE, nargs=-1, required=True)
@click.option("--html", type=FILE, metavar="FILE", help="Write the page to this file.")
@click.option(
    "--md", "markdown", type=FILE, metavar="FILE", help="Write the Markdown to this file."
)
@click.option(
    "--out", type=FOLDER, metavar="DIR", help="Join several reports into one in this folder."
)
@click.pass_obj
def report(target: Target, /, paths: tuple[Path, ...], **options: Any) -> None:
    """Render a report again, for people, or make one of several.

    Without --html and --md, report.html and report.md are written beside it. The page is one file
    that loads nothing from anywhere. Several reports of one machine, such as of quality, fidelity
    and speed, become one in the folder --out.
    """
    target.local_only("bench report")
    commands("report_commands").report(paths, **options)


@click.command()
@click.argument("first", metavar="A.json", type=FILE)
@click.argument("second", metavar="B.json", type=FILE)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=0.25,
    show_default=True,
    help="Share by which speed or size may get worse.",
)
@click.option("--allow-missing", is_flag=True, help="Do not count what B lacks as a regression.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def compare(target: Target, /, first: Path, second: Path, **options: Any) -> None:
    """Compare two reports: what is worse in B than in A?

    Both must cover the same data. nDCG@10 is worse if a paired randomization test over the queries
    says so, after Holm's correction. p50, throughput, build time and disk are worse beyond the
    tolerance, and judged only if both ran on like machines. Exit code 0: no regression; 1: a
    regression; 2: the reports cannot be read or compared.
    """
    target.local_only("bench compare")
    if not commands("report_commands").compare(first, second, **options):
        raise SystemExit(1)
