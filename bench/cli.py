"""`corral bench`: options and dispatch. What each command does is in `commands`, imported late.

`corral` finds this group by the entry point `corral.commands`. `corral --help` loads it, so it
imports nothing heavier than click.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from corral.bench.options import (
    BACKENDS,
    CONFIG,
    DATA,
    EMBEDDER,
    FILE,
    MAX_SECONDS,
    MODES,
    OUT,
    POSITIVE,
    RESUME,
    SEED,
    SHARED,
    commands,
    names,
    numbers,
    together,
)
from corral.bench.reporting import compare, report

if TYPE_CHECKING:
    from corral.server.command_line.options import Target


@click.group()
def bench() -> None:
    """Measure backends and search modes, on this machine."""


@bench.command()
@together(DATA, BACKENDS, MODES)
@click.argument("more", metavar="[DIR...]", nargs=-1)
@click.option(
    "--fusion",
    "fusions",
    multiple=True,
    default=("weighted",),
    metavar="NAME|JSON",
    help="rrf, weighted, max, or JSON as for a registration's ranker; repeatable. "
    "[default: weighted]",
)
@EMBEDDER
@click.option(
    "--k",
    type=int,
    default=100,
    show_default=True,
    help="Hits per search (10-1000; R@100 needs 100).",
)
@click.option(
    "--baseline",
    metavar="BACKEND:MODE[:FUSION]",
    help="System to compare the others with. [default: the first one measured]",
)
@click.option(
    "--language",
    "languages",
    multiple=True,
    metavar="[SET=]LANGUAGE",
    help="Language of all sets, or of one. [default: from a name such as xquad-de, else english]",
)
@click.option("--split", help="Judgements of a BEIR folder. [default: test, or the only ones]")
@together(SEED, OUT, CONFIG, MAX_SECONDS)
@click.option(
    "--max-docs", "max_documents", type=POSITIVE, help="Maximum number of documents per set."
)
@RESUME
@click.pass_obj
def quality(
    target: Target, /, data: tuple[str, ...], more: tuple[str, ...], **options: Any
) -> None:
    """Measure how good retrieval is, on judged data.

    DIR is a folder in BEIR layout (corpus.jsonl, queries.jsonl, qrels/test.tsv) or with TREC files
    (documents.*, topics.*, qrels.*); ir_datasets:NAME is a public set; `miniature` is a small one
    that Corral makes itself.

    NAME is a provider, `all-inline` for all that need no service, another system, or `all-peers`
    for those that are installed. Every query is asked on every backend in every mode. The folder
    --out receives the reports (.html, .md, .json), the TREC runs, and what a later --resume needs.
    Exits with 1 if something could not be measured.
    """
    target.local_only("bench quality")
    commands().quality(target.home, target.config, (*data, *more), **options)


@bench.command()
@together(*SHARED)
@names("--sizes", "SIZE", "Numbers of chunks, such as 1k,20k,1M. [default: 10k, or all data]")
@numbers("--concurrency", "Concurrent questions (1-256).", "1,4,16,32")
@names("--peers", "NAME", "Other systems; all-peers; bare-engines.")
@click.option("--server", is_flag=True, help="Also measure each backend behind a server.")
@click.option(
    "--baseline", default="exact", show_default=True, help="System to compare the others with."
)
@click.option("--rounds", type=int, default=3, show_default=True, help="Rounds of measurements.")
@click.option(
    "--queries",
    type=int,
    default=300,
    show_default=True,
    help="Maximum number of questions per cell.",
)
@click.pass_obj
def speed(target: Target, /, **options: Any) -> None:
    """Measure how fast backends are, side by side.

    NAME is a provider, `all-inline` for all that need no service, or another system: exact (brute
    force), faiss-flat, langchain-faiss, lancedb, qdrant-edge, chroma-direct, haystack, txtai,
    pgvector-direct=DSN, qdrant-direct=URL, weaviate-direct=URL#GRPC_PORT, llama-stack=URL#MODEL;
    `all-peers` for those that are installed, `bare-engines` for the engines of --backends without
    Corral. Ratios compare with a backend's bare engine if it is measured, else with --baseline.

    Every system runs in a process of its own and gets the same data: seeded and shaped like a
    model's, or --data. Each cell (mode, filter, concurrent questions) is measured in rounds, on
    each system in turn, for at most a second and --queries questions.
    """
    target.local_only("bench speed")
    commands().speed(target.home, target.config, **options)


@bench.command()
@together(*SHARED)
@names("--synthetic", "SIZE", "Seeded data. [default: 5k without --data]")
@click.pass_obj
def fidelity(target: Target, /, **options: Any) -> None:
    """Compare backends with brute force, and with each other.

    Tells backends that miss neighbors (approximate search) from those that return wrong ids, scores
    or chunks (a defect in their mapping). NAME is as for `corral bench speed`.

    Exits with 1 if something could not be measured, or a defect was found.
    """
    target.local_only("bench fidelity")
    commands().fidelity(target.home, target.config, **options)


@bench.command()
@click.option(
    "--count",
    type=click.IntRange(min=1000),
    default=100_000,
    show_default=True,
    help="Chunks in the index.",
)
@click.option(
    "--server-count",
    type=POSITIVE,
    default=5_000,
    show_default=True,
    help="Chunks behind the server.",
)
@click.option(
    "--only",
    type=click.Choice(["index", "lists", "server", "options", "scope", "ingest"]),
    help="Measure one part only.",
)
@click.pass_obj
def bounds(target: Target, /, **options: Any) -> None:
    """Check speed against the bounds in docs/benchmarks.md.

    Covers SQLite, the server, options, permissions and ingest. Exits with 1 if a bound is missed.
    """
    target.local_only("bench bounds")
    if not commands().bounds(**options):
        raise SystemExit(1)


@bench.command()
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=20_000,
    show_default=True,
    help="Chunks in the vector DB.",
)
@numbers("--clients", "Clients of the closed loop.", "1,4,16,64")
@numbers("--workers", "Server processes.", "1")
@numbers("--rates", "Questions a second in the open loop. [default: 50 % and 80 % of the best]", "")
@click.option(
    "--mode", type=click.Choice(["vector", "keyword", "hybrid", "page"]), default="hybrid",
    show_default=True, help="Search mode; page: all three at once, and the RAG tool.",
)  # fmt: skip
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1),
    default=3.0,
    show_default=True,
    help="Seconds per measurement.",
)
@click.option(
    "--rounds", type=click.IntRange(min=1), default=2, show_default=True,
    help="Rounds of measurements.",
)  # fmt: skip
@click.pass_obj
def users(target: Target, /, **options: Any) -> None:
    """Measure what many users of a server get.

    Serves SQLite over HTTP, embedding included. --clients ask again as soon as they have their
    answer (a closed loop). --rates are questions a second that arrive whether or not the server
    keeps up (an open loop); latencies count from the moment a question was due. Servers with
    different numbers of --workers take turns.

    Exits with 1 if the page's requests are slower than docs/benchmarks.md says.
    """
    target.local_only("bench users")
    if not commands().users(**options):
        raise SystemExit(1)


@bench.command()
@click.option("--db", help="A registered vector DB.")
@click.option("--data", metavar="DIR", help="Or a judged set, stored for the run only.")
@click.option("--queries", type=FILE, metavar="FILE", help="Judged questions as JSON lines.")
@click.option(
    "--generate",
    type=click.IntRange(min=10),
    metavar="N",
    help="Or N questions made from the chunks (at least 10).",
)
@click.option("--backend", help="Where --data is stored. [default: sqlite]")
@click.option("--language", help="Language of --data. [default: from its name, else english]")
@EMBEDDER
@click.option("--apply", is_flag=True, help="Apply the recommendation to the registration.")
@together(SEED, OUT)
@click.pass_obj
def tune(target: Target, /, **options: Any) -> None:
    """Find the search mode, fusion and re-ranker for your data.

    Tries about 60 ways to search on one half of the questions. Recommends the simplest one that is
    as good as the best, and judges it on the other half, against vector and keyword search alone.

    A line of FILE: {"query": "...", "relevant": ["chunk or document id", ...]}. Judged questions
    also give a min_confidence, which --apply registers with the rest.
    """
    target.local_only("bench tune")
    commands().tune(target.home, target.config, **options)


@bench.command()
@click.option(
    "--data", multiple=True, required=True, metavar="DIR", help="Judged data; repeatable."
)
@MODES
@click.option("--backend", default="sqlite", show_default=True, help="Where the sets are stored.")
@EMBEDDER
@click.option(
    "--most",
    type=POSITIVE,
    default=300,
    show_default=True,
    help="Maximum number of questions per set.",
)
@click.option(
    "--article",
    type=POSITIVE,
    default=1,
    show_default=True,
    help="Consecutive texts of a set that form one article, hidden together.",
)
@click.option(
    "--min-confidence",
    "least",
    type=click.FloatRange(0, 1),
    default=0.5,
    show_default=True,
    help="Threshold at which to report how many are refused.",
)
@SEED
@click.pass_obj
def confidence(target: Target, /, **options: Any) -> None:
    """Measure whether confidence tells answered questions from others.

    Prints a Markdown table: the area under the ROC curve, with 95 % intervals, against questions of
    the other sets and against the same questions with the texts hidden that answer them.
    """
    target.local_only("bench confidence")
    commands().confidence(target.home, target.config, **options)


bench.add_command(report)
bench.add_command(compare)
