"""`corral bench`: options and dispatch. What its commands do is in `bench_*` beside it.

Nothing heavier than click is imported here, since `corral --help` loads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from corral.server.command_line.bench_speed import bounds, fidelity, speed

if TYPE_CHECKING:
    from corral.server.command_line.cli import Target

FILE = click.Path(path_type=Path)


@click.group()
def bench() -> None:
    """Measure backends and search modes, on this machine."""


@bench.command()
@click.option("--data", multiple=True, metavar="DIR...", help="See above; may be repeated.")
@click.argument("more", metavar="[DIR...]", nargs=-1)
@click.option("--backends", default="sqlite", show_default=True, metavar="NAME,...")
@click.option("--modes", default="vector,keyword,hybrid", show_default=True, metavar="MODE,...")
@click.option(
    "--fusion",
    "fusions",
    multiple=True,
    metavar="NAME|JSON",
    help="rrf, weighted, max, or JSON as for a registration's ranker; may be repeated. "
    "[default: weighted]",
)
@click.option("--embedder", "model", metavar="MODEL", help="[default: of the configuration]")
@click.option(
    "--k",
    type=int,
    default=100,
    show_default=True,
    help="Hits asked for; fusion gets more of each leg, see docs/retrieval.md.",
)
@click.option(
    "--baseline", metavar="BACKEND:MODE[:FUSION]", help="[default: the first that is measured]"
)
@click.option(
    "--language",
    "languages",
    multiple=True,
    metavar="[SET=]LANGUAGE",
    help="Of all sets or of one. [default: by the ending of a name such as xquad-de, or english]",
)
@click.option("--split", help="Judgements of a BEIR folder. [default: test, or the only ones]")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--out", type=FILE, help="[default: a new folder in ./corral-bench]")
@click.option("--config", type=FILE, help="A run.yaml with the backends' settings.")
@click.option("--max-seconds", type=float, help="Begin nothing after so long.")
@click.option("--max-docs", "max_documents", type=int, help="Of a set, at most.")
@click.option("--resume", is_flag=True, help="Go on with the run in --out.")
@click.pass_obj
def quality(
    target: Target, /, data: tuple[str, ...], more: tuple[str, ...], **options: Any
) -> None:
    """Measure how good retrieval is, on judged data.

    DIR is a folder in BEIR layout (corpus.jsonl, queries.jsonl, qrels/test.tsv) or with TREC files
    (documents.*, topics.*, qrels.*); ir_datasets:NAME is a public set; `miniature` is a small one
    that Corral makes itself.

    NAME is a provider, `all-inline` for all that need no service, a foreign system, or `all-peers`
    for those that are installed. Every query is asked on every backend in every mode. The folder
    --out gets the reports (.html, .md, .json), the TREC runs, and what a later --resume needs. The
    exit code is 1 where something could not be measured.
    """
    target.local_only("bench quality")
    from corral.server.command_line import bench_quality  # noqa: PLC0415 - start-up time

    bench_quality.run(target.home, target.config, (*data, *more), **options)


@bench.command()
@click.option("--db", help="A registered vector DB.")
@click.option("--data", metavar="DIR", help="Or a judged set, stored for the time of the run.")
@click.option("--queries", type=FILE, metavar="FILE", help="Judged questions as JSON lines.")
@click.option("--generate", type=int, metavar="N", help="Or N questions made from the chunks.")
@click.option("--backend", default="sqlite", show_default=True, help="Where --data is stored.")
@click.option("--language", help="Of --data. [default: by its name, or english]")
@click.option("--embedder", "model", metavar="MODEL", help="Of --data. [default: configured]")
@click.option("--apply", is_flag=True, help="Register what is recommended.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--out", type=FILE, help="[default: a new folder in ./corral-bench]")
@click.pass_obj
def tune(target: Target, /, **options: Any) -> None:
    """Find the search mode, fusion and re-ranker for your data.

    About 60 ways to search are tried on one half of the questions. The simplest one that is as good
    as the best is recommended, and judged on the other half, against vector and keyword search
    alone.

    A line of FILE: {"query": "...", "relevant": ["chunk or document id", ...]}.
    """
    target.local_only("bench tune")
    from corral.server.command_line import bench_tune  # noqa: PLC0415 - start-up time

    bench_tune.run(target.home, target.config, **options)


@bench.command()
@click.argument("paths", metavar="REPORT.json...", type=FILE, nargs=-1, required=True)
@click.option("--html", type=FILE, metavar="FILE", help="Write the page there.")
@click.option("--md", "markdown", type=FILE, metavar="FILE", help="Write the Markdown there.")
@click.option("--out", type=FILE, metavar="DIR", help="Write several as one report there.")
@click.pass_obj
def report(target: Target, /, paths: tuple[Path, ...], **options: Any) -> None:
    """Render a report again, for people, or make one of several.

    Without --html and --md, report.html and report.md are written beside it. The page is one file
    that loads nothing from anywhere. Several reports of one machine, such as of quality, fidelity
    and speed, become one in the folder --out.
    """
    target.local_only("bench report")
    from corral.server.command_line import bench_reports  # noqa: PLC0415 - start-up time

    bench_reports.report(paths, **options)


@bench.command()
@click.argument("first", metavar="A.json", type=FILE)
@click.argument("second", metavar="B.json", type=FILE)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=0.25,
    show_default=True,
    help="Share by which a figure of speed or size may be worse.",
)
@click.option("--allow-missing", is_flag=True, help="What B lacks is no regression.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.pass_obj
def compare(target: Target, /, first: Path, second: Path, **options: Any) -> None:
    """Compare two reports of the same data: what is worse in B than in A?

    nDCG@10 is worse where a paired randomization test over the queries says so, after Holm's
    correction. p50, throughput, build time and disk are worse beyond the tolerance, and judged only
    where both ran on like machines. Exit code 0: no regression; 1: a regression; 2: the reports
    cannot be read or compared.
    """
    target.local_only("bench compare")
    from corral.server.command_line import bench_reports  # noqa: PLC0415 - start-up time

    if not bench_reports.compare(first, second, **options):
        raise SystemExit(1)


for _command in (speed, fidelity, bounds):
    bench.add_command(_command)
