"""Measures SQLite's speed and the server's overhead: medians and ratios within one run, after a
warm-up.

    python -m lab.bounds [--count 100000]

Each line names its bound; a missed one makes the exit code 1. Comparisons are interleaved query by
query, because a machine's speed drifts.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import faiss
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.vector_dbs import SearchMode
from corral.bench.data.synthetic import sentence, synthetic_embeddings, synthetic_texts
from corral.bench.scratch import DIMENSION, batches, scratch_vector_db, synthetic_chunks
from corral.bench.stopwatch import Bound, Stopwatch, clocked
from corral.providers.vector_io.sqlite.config import SqliteConfig
from corral.providers.vector_io.sqlite.provider import create
from lab.answering import measure_answers
from lab.ingesting import measure_ingest, measure_waiting
from lab.lists import measure_lists
from lab.memory import measure_memory
from lab.option_costs import measure_options
from lab.over_http import measure_server, measure_states
from lab.scope import measure_scope
from lab.throughput import measure_replicas

K = 10
QUERIES = 100
WARM_UP = 20
PARTS = (
    *("index", "lists", "server", "state", "replicas", "options"),
    *("scope", "ingest", "answers", "memory"),
)


def queries_of_common_and_rare_words(count: int) -> list[str]:
    """Return questions of 8 words; every fourth has only the 40 most common words."""
    rng = np.random.default_rng(1)
    asked = []
    for number in range(count):
        common = rng.integers(0, 40, 8)
        mixed = np.concatenate([common[:2], rng.integers(40, 5000, 6)])
        asked.append(sentence(common if number % 4 == 0 else mixed))
    return asked


async def fill(index: EmbeddingIndex, chunks: list[Chunk], vectors: NDArray[np.float32]) -> Bound:
    """Store the chunks in batches, and compare the rates of the first and the last tenth."""
    rates = []
    for part, rows in batches(chunks, vectors):
        seconds, _ = await clocked(index.add_chunks, part, rows)
        rates.append(len(part) / seconds)
    tenth = max(1, len(rates) // 10)
    first, last = float(np.median(rates[:tenth])), float(np.median(rates[-tenth:]))
    overall = float(len(rates) / np.sum(1 / np.array(rates)))
    figure = f"{overall:,.0f}/s; first tenth {first:,.0f}/s, last tenth {last:,.0f}/s"
    return Bound("insert, 60 words, given embeddings", figure, ">= 5,000/s", overall >= 5000)


async def compare_vector(
    index: EmbeddingIndex, vectors: NDArray[np.float32], asked: NDArray[np.float32]
) -> list[Bound]:
    """Ask the index and a flat FAISS index the same questions, interleaved."""
    faiss.omp_set_num_threads(1)
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    ours, theirs, common = Stopwatch(WARM_UP), Stopwatch(WARM_UP), 0
    for number, query in enumerate(asked):
        answer = await ours.call(index.query, query, k=K, mode=SearchMode.VECTOR)
        with theirs.running():
            _, rows = flat.search(query[None], K)
        if number >= WARM_UP:
            common += len({c.chunk_id for c in answer.chunks} & {f"c{row:07d}" for row in rows[0]})
    recall = common / (K * len(ours.seconds))
    return [
        Bound.ratio("vector p50 against flat faiss, one thread", ours.ms(), theirs.ms(), 0.5),
        Bound("recall_vs_exact@10", f"{recall:.4f}", "1.0", recall == 1.0),
    ]


async def compare_modes(
    index: EmbeddingIndex, asked: NDArray[np.float32], texts: list[str]
) -> list[Bound]:
    """Ask every question in all three modes, interleaved."""
    watches = {mode: Stopwatch(WARM_UP) for mode in SearchMode}
    for number in range(WARM_UP + QUERIES):
        query, text = asked[number % len(asked)], texts[number % len(texts)]
        for mode, watch in watches.items():
            await watch.call(index.query, query, text, k=K, mode=mode)
    p50 = {mode: watch.ms() for mode, watch in watches.items()}
    p95 = watches[SearchMode.KEYWORD].ms(0.95)
    keyword, slower = p50[SearchMode.KEYWORD], max(p50[SearchMode.VECTOR], p50[SearchMode.KEYWORD])
    hybrid = p50[SearchMode.HYBRID]
    legs = f"vector {p50[SearchMode.VECTOR]:.2f}, keyword {keyword:.2f}, hybrid {hybrid:.2f} ms"
    return [
        Bound(
            "hybrid p50 against its slower leg",
            f"{legs}: {hybrid / slower:.2f}x",
            "<= 1.3x",
            hybrid / slower <= 1.3,
        ),
        Bound(
            "keyword p95 against its p50, common words included",
            f"{p95:.2f} ms against {keyword:.2f} ms: {p95 / keyword:.1f}x",
            "<= 10x",
            p95 / keyword <= 10,
        ),
    ]


async def cold_keywords(index: EmbeddingIndex, texts: list[str]) -> Bound:
    """Ask each question once with an empty postings cache, to time first queries."""
    watch = Stopwatch()
    for text in texts:
        await watch.call(index.query, None, text, k=K, mode=SearchMode.KEYWORD)
    p50, p95 = watch.ms(), watch.ms(0.95)
    figure = f"p50 {p50:.1f} ms, p95 {p95:.1f} ms: {p95 / p50:.1f}x"
    return Bound("keyword, no postings in memory, each once", figure, "<= 10x", p95 / p50 <= 10)


async def after_writes(
    index: EmbeddingIndex,
    chunks: list[Chunk],
    vectors: NDArray[np.float32],
    asked: NDArray[np.float32],
    texts: list[str],
) -> list[Bound]:
    """Ask in each mode, replace a document of ten chunks, and ask again."""
    lines = []
    for mode in SearchMode:
        warm, after = Stopwatch(WARM_UP), Stopwatch(WARM_UP)
        for number in range(WARM_UP + QUERIES // 2):
            query, text = asked[number % len(asked)], texts[number % len(texts)]
            await warm.call(index.query, query, text, k=K, mode=mode)
            part = slice(10 * number, 10 * number + 10)
            await index.add_chunks(chunks[part], vectors[part])
            await after.call(index.query, query, text, k=K, mode=mode)
        what = f"{mode.value} p50 right after a write of 10 chunks, against a warm one"
        lines.append(Bound.ratio(what, after.ms(), warm.ms(), 3))
    return lines


def questions() -> tuple[NDArray[np.float32], list[str]]:
    """Return embeddings and texts of questions."""
    asked = synthetic_embeddings(QUERIES + WARM_UP)[::-1].copy()
    return asked, queries_of_common_and_rare_words(QUERIES + WARM_UP)


async def measure_index(count: int) -> list[Bound]:
    """Measure one SQLite index of `count` chunks, without a server."""
    vectors, chunks = synthetic_embeddings(count), synthetic_chunks(count)
    asked, texts = questions()
    with tempfile.TemporaryDirectory() as folder:
        provider = create("sqlite", SqliteConfig(), Path(folder))
        index = await provider.open_index(scratch_vector_db("sqlite"), create=True)
        lines = [await fill(index, chunks, vectors), await cold_keywords(index, texts)]
        lines += await compare_vector(index, vectors, asked)
        lines += await compare_modes(index, asked, texts)
        lines += await after_writes(index, chunks, vectors, asked, texts)
        await index.close()
    return lines


def show(title: str, lines: Sequence[Bound], console: Console) -> None:
    """Print the figures with their bounds."""
    table = Table("measured", "figure", "bound", "", title=title)
    for line in lines:
        table.add_row(line.what, line.figure, line.bound, "holds" if line.holds else "FAILS")
    console.print(table)


@click.command(context_settings={"show_default": True})
@click.option(
    "--count", type=click.IntRange(min=1000), default=100_000, help="Chunks in the index."
)
@click.option(
    "--server-count", type=click.IntRange(min=1), default=5_000, help="Chunks behind the server."
)
@click.option("--only", type=click.Choice(PARTS), help="Measure one part only.")
def main(count: int, server_count: int, only: str | None) -> None:
    """Check speed against the bounds in docs/benchmarks.md; exit with 1 if one is missed."""
    chunks = f"{count:,} chunks x {DIMENSION}, k={K}"
    parts: dict[str, tuple[str, Callable[[], list[Bound]]]] = {
        "options": ("what options of a query add to it", measure_options),
        "index": (f"inline::sqlite, {chunks}", lambda: asyncio.run(measure_index(count))),
        "lists": (
            f"inline::sqlite, index: auto, {chunks}",
            lambda: asyncio.run(measure_lists(count)),
        ),
        "scope": (
            f"permissions, {chunks}",
            lambda: asyncio.run(
                measure_scope(synthetic_embeddings(count), synthetic_texts(count), *questions())
            ),
        ),
        "server": (f"over HTTP, {server_count:,} chunks", lambda: measure_server(server_count)),
        "state": (
            f"where the state is, over HTTP, {server_count:,} chunks",
            lambda: measure_states(server_count),
        ),
        "replicas": (
            f"two processes against one, {server_count:,} chunks",
            lambda: measure_replicas(server_count),
        ),
        "ingest": (
            "documents in, as jobs, inline::sqlite",
            lambda: asyncio.run(measure_ingest()) + asyncio.run(measure_waiting()),
        ),
        "answers": (f"answers, {chunks}", lambda: measure_answers(count)),
        "memory": ("memory of a server", measure_memory),
    }
    console, holds = Console(width=140), True
    for name, (title, measure) in parts.items():
        if only in (None, name):
            lines = measure()
            show(title, lines, console)
            holds = holds and all(line.holds for line in lines)
    sys.exit(not holds)


if __name__ == "__main__":
    main()
