"""`corral bench report` and `compare`: options and dispatch. Imports nothing heavier than click."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from corral.bench.options import FILE, FOLDER, commands

if TYPE_CHECKING:
    from corral.server.cli.options import Target


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
    """Render a report as HTML and Markdown, or join several.

    Without --html and --md, writes report.html and report.md next to the report. The page is one
    file that loads nothing else. --out joins several reports of one machine, such as quality
    and speed, into one in that folder.
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
    help="Share by which speed or size can get worse.",
)
@click.option("--allow-missing", is_flag=True, help="Accept rows that are missing in B.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def compare(target: Target, /, first: Path, second: Path, **options: Any) -> None:
    """Compare two reports, and report what is worse in B than in A.

    Both must cover the same data. nDCG@10 is worse if a paired randomization test over the queries
    says so, after Holm's correction. p50, throughput, build time and disk may get worse by the
    tolerance, and are compared only if both machines are alike. Exit code 0: no regression; 1: a
    regression; 2: the reports cannot be read or compared.
    """
    target.local_only("bench compare")
    if not commands("report_commands").compare(first, second, **options):
        raise SystemExit(1)
