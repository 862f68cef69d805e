"""`corral bench`: options and dispatch.

The commands are implemented in `commands`, imported late. `corral` finds this group by the entry
point `corral.commands`. `corral --help` loads this module, so it imports nothing heavier than
click.
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
    JUDGED_SETS,
    LANGUAGES,
    MAX_SECONDS,
    MODES,
    MOST_QUESTIONS,
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
    from corral.server.cli.options import Target


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
@LANGUAGES
@click.option(
    "--split", help="Judgments to use in a BEIR folder. [default: test, or the only ones]"
)
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
    (documents.*, topics.*, qrels.*); ir_datasets:NAME is a public set; `miniature` is a small set
    that Corral generates.

    NAME is a provider, `all-inline` for all that need no service, another system, or `all-peers`
    for those that are installed. Runs every query on every backend in every mode. Writes the
    reports (.html, .md, .json), the TREC runs, and the state for --resume to the folder --out.
    Exits with 1 if something could not be measured.
    """
    target.local_only("bench quality")
    commands().quality(target.home, target.config, (*data, *more), **options)


@bench.command()
@click.option(
    "--data",
    multiple=True,
    required=True,
    metavar="FILE|DIR",
    help="Questions as JSON Lines, or judged data; repeatable.",
)
@click.option("--model", "answers", required=True, help="Model that answers, such as extractive.")
@click.option("--judge", metavar="MODEL", help="Language model that judges each statement.")
@click.option(
    "--vector-db",
    "--db",
    "vector_db_ids",
    multiple=True,
    metavar="ID",
    help="A registered vector DB to ask; repeatable.",
)
@names("--backends", "NAME", "Backends that store judged data. [default: sqlite]")
@names("--modes", "MODE", "Search modes to measure.", "hybrid")
@click.option(
    "--embedder",
    metavar="MODEL",
    help="Embedding model of the judged data. [default: the configuration's]",
)
@click.option(
    "--limit", type=POSITIVE, help="Maximum number of questions per set, drawn by --seed."
)
@LANGUAGES
@together(SEED, OUT, CONFIG)
@click.pass_obj
def answers(target: Target, /, **options: Any) -> None:
    """Measure how good answers are, and their citations.

    DIR is judged data as for `bench quality`; its answers.jsonl has lines {"_id": "question id",
    "answers": ["..."]}, and an empty list for a question that nothing answers. A line of FILE, for
    --vector-db: {"question": "...", "answers": ["..."], "sources": ["document id or file name"]},
    or {"question": "...", "answerable": false}.

    Every question is asked separately, with one search before the answer. Writes the reports and
    all answers (answers/*.jsonl) to the folder --out. Exits with 1 if something could not be
    measured.
    """
    target.local_only("bench answers")
    commands().answers(target.home, target.config, **options)


@bench.command()
@together(*SHARED)
@names("--sizes", "SIZE", "Numbers of chunks, such as 1k,20k,1M. [default: 10k, or all data]")
@numbers("--concurrency", "Concurrent questions (1-256).", "1,4,16,32")
@names("--peers", "NAME", "Other systems; all-peers; bare-engines.")
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
    force), faiss-flat, langchain-faiss, lancedb-direct, qdrant-edge, chroma-direct, haystack,
    txtai, pgvector-direct=DSN, qdrant-direct=URL, weaviate-direct=URL#GRPC_PORT,
    opensearch-direct=URL, llama-stack=URL#MODEL; `all-peers` for those that are installed,
    `bare-engines` for the engines of --backends without Corral. Ratios are relative to a backend's
    bare engine if it is measured, else to --baseline.

    Every system runs in its own process and gets the same data: --data, or seeded embeddings
    distributed like a model's. Each cell (mode, filter, concurrency) is measured in rounds, on each
    system in turn, for at most a second and --queries questions.
    """
    target.local_only("bench speed")
    commands().speed(target.home, target.config, **options)


@bench.command()
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=20_000,
    show_default=True,
    help="Chunks in the vector DB.",
)
@numbers("--clients", "Numbers of clients in the closed loop.", "1,4,16,64")
@numbers("--workers", "Server processes.", "1")
@numbers(
    "--rates",
    "Questions per second in the open loop. [default: 50 % and 80 % of the highest rate]",
    "",
)
@click.option(
    "--mode", type=click.Choice(["vector", "keyword", "hybrid", "page"]), default="hybrid",
    show_default=True, help="Search mode; page: all three modes and the RAG tool at once, as the "
                            "console does.",
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
    """Measure a server's speed with many concurrent users.

    Serves SQLite over HTTP, embedding included. In the closed loop each of --clients sends its next
    question as soon as it has its answer. In the open loop --rates questions per second arrive
    whether or not the server keeps up, and latency counts from the moment a question was due.
    Servers with different numbers of --workers are measured in interleaved rounds.

    Exits with 1 if the console's requests miss the bound in docs/benchmarks.md.
    """
    target.local_only("bench users")
    if not commands().users(**options):
        raise SystemExit(1)


@bench.command()
@click.option("--db", help="A registered vector DB.")
@click.option("--data", metavar="DIR", help="Or a judged set, stored only for this run.")
@click.option("--queries", type=FILE, metavar="FILE", help="JSON Lines file of judged questions.")
@click.option(
    "--generate",
    type=click.IntRange(min=10),
    metavar="N",
    help="Or N questions made from the chunks (at least 10).",
)
@click.option("--backend", help="Backend that stores --data. [default: sqlite]")
@click.option("--language", help="Language of --data. [default: from its name, else english]")
@EMBEDDER
@click.option("--apply", is_flag=True, help="Apply the recommendation to the registration.")
@together(SEED, OUT)
@click.pass_obj
def tune(target: Target, /, **options: Any) -> None:
    """Find the search mode, fusion and re-ranker for your data.

    Tries about 60 settings on one half of the questions, and compares the simplest one that is as
    good as the best with the registered search on the other half. Recommends to change only if the
    95 % interval of the gain lies above 0; with --data, the default settings count as registered.

    A line of FILE: {"query": "...", "relevant": ["chunk or document id", ...]}. With judged
    questions it also recommends a min_confidence, which --apply registers too.
    """
    target.local_only("bench tune")
    commands().tune(target.home, target.config, **options)


@bench.command()
@JUDGED_SETS
@names("--backends", "NAME", "Backends to distribute the vector DBs over.", "sqlite")
@CONFIG
@numbers("--parts", "Numbers of vector DBs to split a set over.", "2,5,20")
@MODES
@EMBEDDER
@MOST_QUESTIONS
@SEED
@click.pass_obj
def split(target: Target, /, **options: Any) -> None:
    """Compare one vector DB with the same data split over several.

    Splits each set in blocks and at random, and prints nDCG@10 and the time of a search, and the
    same for one vector DB.
    """
    target.local_only("bench split")
    commands().split(target.home, target.config, **options)


bench.add_command(report)
bench.add_command(compare)
