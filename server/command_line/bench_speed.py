"""`corral bench speed`, `fidelity` and `bounds`: options. What they do is in `bench_speed_run`.

Nothing heavier than click is imported here, since `corral --help` loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from corral.server.command_line.cli import Target

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


@click.command()
@_common
@click.option("--sizes", metavar="SIZE,...", help="Such as 1k,20k,1M. [default: 10k, or all data]")
@click.option("--concurrency", default="1,4,16,32", show_default=True, metavar="NUMBER,...")
@click.option("--peers", default="", metavar="NAME,...", help="Foreign systems; all-peers.")
@click.option("--server", is_flag=True, help="Also measure each backend behind a server.")
@click.option("--baseline", default="exact", show_default=True, help="What ratios are made to.")
@click.option("--rounds", type=int, default=3, show_default=True)
@click.option("--queries", type=int, default=300, show_default=True, help="Of a cell, at most.")
@click.pass_obj
def speed(target: Target, /, **options: Any) -> None:
    """Measure how fast backends are, side by side.

    NAME is a provider, `all-inline` for all that need no service, or a foreign system: exact (brute
    force), faiss-flat, langchain-faiss, lancedb, qdrant-edge, chroma-direct, haystack, txtai,
    pgvector-direct=DSN, llama-stack=URL#MODEL; `all-peers` for those that are installed.

    Every system runs in a process of its own and gets the same data: seeded and shaped like a
    model's, or --data. Cells (mode, filter, questions under way at once) are measured in rounds, on
    each system in turn; at most a second each, and 300 questions.
    """
    target.local_only("bench speed")
    from corral.server.command_line import bench_speed_run  # noqa: PLC0415 - start-up time

    bench_speed_run.speed(target.home, target.config, **options)


@click.command()
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
    from corral.server.command_line import bench_speed_run  # noqa: PLC0415 - start-up time

    bench_speed_run.fidelity(target.home, target.config, **options)


@click.command()
@click.option("--count", default=100_000, show_default=True, help="Chunks in the index.")
@click.option("--server-count", default=5_000, show_default=True, help="Chunks behind the server.")
@click.option(
    "--only", type=click.Choice(["index", "server", "options"]), help="Measure one part only."
)
@click.pass_obj
def bounds(target: Target, /, count: int, server_count: int, only: str | None) -> None:
    """Hold SQLite's and the server's speed against the bounds that the README states.

    The exit code is 1 where one of them is missed.
    """
    target.local_only("bench bounds")
    from corral.bench.speed.bounds import run_bounds  # noqa: PLC0415 - start-up time

    if not run_bounds(count, server_count, only):
        raise SystemExit(1)
