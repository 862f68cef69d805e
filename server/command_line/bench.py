"""`corral bench`: options and dispatch. What its commands do is in `bench_*` beside it.

Nothing heavier than click is imported here, since `corral --help` loads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

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
    "[default: rrf]",
)
@click.option("--embedder", "model", metavar="MODEL", help="[default: of the configuration]")
@click.option("--k", type=int, default=100, show_default=True, help="Hits asked for.")
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

    Every query is asked on every backend in every mode. The folder --out gets report.json, the TREC
    runs, and what a later --resume needs. The exit code is 1 where something could not be measured.
    """
    target.local_only("bench quality")
    from corral.server.command_line import bench_quality  # noqa: PLC0415 - start-up time

    bench_quality.run(target.home, target.config, (*data, *more), **options)
