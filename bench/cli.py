"""`corral bench`: options and dispatch. What each command does is in `commands`, imported late.

`corral` finds this group by the entry point `corral.commands`. `corral --help` loads it, so it
imports nothing heavier than click.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from corral.api.errors import MissingDependency

if TYPE_CHECKING:
    from corral.server.command_line.options import Target

FILE = click.Path(path_type=Path)

_COMMON = (
    click.option("--backends", default="sqlite", show_default=True, metavar="NAME,..."),
    click.option("--data", multiple=True, metavar="DIR", help="Judged data; may be repeated."),
    click.option("--modes", default="vector,keyword,hybrid", show_default=True, metavar="MODE,..."),
    click.option(
        "--filters",
        default="1%,50%",
        show_default=True,
        metavar="SHARE,...",
        help="Shares of the chunks that pass; asking without a filter comes first.",
    ),
    click.option("--embedder", "model", metavar="MODEL", help="For --data."),
    click.option("--seed", type=int, default=0, show_default=True),
    click.option("--out", type=FILE, help="[default: a new folder in ./corral-bench]"),
    click.option("--config", type=FILE, help="A run.yaml with the backends' settings."),
    click.option("--max-seconds", type=float, help="Begin nothing after so long."),
    click.option("--max-docs", "max_documents", type=int, help="Of a size or a set, at most."),
    click.option("--resume", is_flag=True, help="Go on with the run in --out."),
)


def _common(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_COMMON):
        command = option(command)
    return command


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
    _commands().quality(target.home, target.config, (*data, *more), **options)


@bench.command()
@_common
@click.option("--sizes", metavar="SIZE,...", help="Such as 1k,20k,1M. [default: 10k, or all data]")
@click.option("--concurrency", default="1,4,16,32", show_default=True, metavar="NUMBER,...")
@click.option(
    "--peers", default="", metavar="NAME,...", help="Foreign systems; all-peers; bare-engines."
)
@click.option("--server", is_flag=True, help="Also measure each backend behind a server.")
@click.option("--baseline", default="exact", show_default=True, help="What ratios are made to.")
@click.option("--rounds", type=int, default=3, show_default=True)
@click.option("--queries", type=int, default=300, show_default=True, help="Of a cell, at most.")
@click.pass_obj
def speed(target: Target, /, **options: Any) -> None:
    """Measure how fast backends are, side by side.

    NAME is a provider, `all-inline` for all that need no service, or a foreign system: exact (brute
    force), faiss-flat, langchain-faiss, lancedb, qdrant-edge, chroma-direct, haystack, txtai,
    pgvector-direct=DSN, qdrant-direct=URL, weaviate-direct=URL#GRPC_PORT, llama-stack=URL#MODEL;
    `all-peers` for those that are installed, `bare-engines` for the engines of --backends without
    Corral. Ratios are made to a backend's bare engine where it is measured, else to --baseline.

    Every system runs in a process of its own and gets the same data: seeded and shaped like a
    model's, or --data. Cells (mode, filter, questions under way at once) are measured in rounds, on
    each system in turn; at most a second each, and 300 questions.
    """
    target.local_only("bench speed")
    _commands().speed(target.home, target.config, **options)


@bench.command()
@_common
@click.option("--synthetic", metavar="SIZE,...", help="Seeded data. [default: 5k without --data]")
@click.pass_obj
def fidelity(target: Target, /, **options: Any) -> None:
    """Compare the answers of backends with brute force, and with each other.

    Tells what misses neighbors (approximate) from what returns wrong ids, scores or chunks (a
    defect in its mapping). NAME is as for `corral bench speed`.

    The exit code is 1 where something could not be measured, or a defect was found.
    """
    target.local_only("bench fidelity")
    _commands().fidelity(target.home, target.config, **options)


@bench.command()
@click.option("--count", default=100_000, show_default=True, help="Chunks in the index.")
@click.option("--server-count", default=5_000, show_default=True, help="Chunks behind the server.")
@click.option(
    "--only",
    type=click.Choice(["index", "lists", "server", "options", "scope", "ingest"]),
    help="Measure one part only.",
)
@click.pass_obj
def bounds(target: Target, /, count: int, server_count: int, only: str | None) -> None:
    """Hold speed against the bounds in docs/benchmarks.md: SQLite, the server, permissions, ingest.

    The exit code is 1 where one of them is missed.
    """
    target.local_only("bench bounds")
    from corral.bench.speed.bounds import run_bounds  # noqa: PLC0415 - start-up time

    if not run_bounds(count, server_count, only):
        raise SystemExit(1)


@bench.command()
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=20_000,
    show_default=True,
    help="Chunks in the vector DB.",
)
@click.option("--clients", default="1,4,16,64", show_default=True, metavar="NUMBER,...")
@click.option("--workers", default="1", show_default=True, metavar="NUMBER,...", help="Processes.")
@click.option(
    "--rates", default="", metavar="NUMBER,...", help="[default: of the best, 50 %, 80 %]"
)
@click.option(
    "--mode", type=click.Choice(["vector", "keyword", "hybrid", "page"]), default="hybrid",
    show_default=True, help="page: all three at once, and the RAG tool.",
)  # fmt: skip
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1),
    default=3.0,
    show_default=True,
    help="Of each measurement.",
)
@click.option("--rounds", type=click.IntRange(min=1), default=2, show_default=True)
@click.pass_obj
def users(target: Target, /, **options: Any) -> None:
    """Measure what many users of a server get: SQLite over HTTP, embedding included.

    --clients ask again as soon as they have their answer (a closed loop). --rates are questions a
    second that arrive whether the server keeps up or not (an open loop); latencies count from the
    moment a question was due. Servers with other numbers of --workers take turns.

    The exit code is 1 where the page's requests are slower than docs/benchmarks.md says.
    """
    target.local_only("bench users")
    if not _commands().users(**options):
        raise SystemExit(1)


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
    _commands().tune(target.home, target.config, **options)


@bench.command()
@click.option("--data", multiple=True, required=True, metavar="DIR", help="May be repeated.")
@click.option("--modes", default="vector,keyword,hybrid", show_default=True, metavar="MODE,...")
@click.option("--backend", default="sqlite", show_default=True, help="Where the sets are stored.")
@click.option("--embedder", "model", metavar="MODEL", help="[default: of the configuration]")
@click.option("--most", default=300, show_default=True, help="Questions of a set, at most.")
@click.option(
    "--article",
    default=1,
    show_default=True,
    help="Texts of a set that follow each other and are one article, hidden as a whole.",
)
@click.option("--min-confidence", "least", default=0.5, show_default=True, help="For the shares.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.pass_obj
def confidence(target: Target, /, **options: Any) -> None:
    """Measure whether confidence tells answered questions from others.

    Prints a Markdown table: the area under the ROC curve, with 95 % intervals, against questions of
    the other sets and against the same questions with the texts hidden that answer them.
    """
    target.local_only("bench confidence")
    _commands().confidence(target.home, target.config, **options)


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
    _commands().report(paths, **options)


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
    if not _commands().compare(first, second, **options):
        raise SystemExit(1)


def _commands() -> ModuleType:
    """Return what the commands do.

    Raises:
        MissingDependency: The extra `bench` is not installed.
    """
    try:
        from corral.bench import commands  # noqa: PLC0415 - start-up time
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("corral"):
            raise
        command = "pip install 'corral-rag[bench]'"
        raise MissingDependency("The benchmark", str(error.name), command) from None
    return commands
