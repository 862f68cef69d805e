"""Copies a vector DB to each backend and back, and compares the latency of the same questions.

    python -m lab.moving [--count 20000] [--to inline::faiss ...]
    python -m lab.moving --to 'remote::opensearch={"url": "http://127.0.0.1:9200"}'

The source is in SQLite: chunks of 60 words with seeded embeddings of 384 dimensions. Times are
medians, after a warm-up; the first line of the table is the source itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from corral.api.embedding_index import EmbeddingIndex
from corral.api.vector_dbs import SearchMode, VectorDBRegistration
from corral.bench.data.synthetic import sentence, synthetic_embeddings
from corral.bench.scratch import DIMENSION, hashing, scratch_stack, store, synthetic_chunks
from corral.bench.stopwatch import Stopwatch
from corral.providers.base.config import RunConfig
from corral.providers.copying.copy import CopyReport, copy_vector_db
from corral.providers.stack.stack import Stack

QUERIES = 50
WARM_UP = 10
INLINE = (
    "inline::memory",
    "inline::faiss",
    "inline::lancedb",
    "inline::chroma",
    "inline::qdrant",
    "inline::milvus",
)


def configuration(types: Sequence[str]) -> RunConfig:
    """Return a configuration of SQLite and these provider types, with an embedder for the model.

    Args:
        types: Provider types; settings as JSON may follow after an equals sign.
    """
    vector_io: list[dict[str, Any]] = []
    for one in ("inline::sqlite", *types):
        kind, _, settings = one.partition("=")
        config = json.loads(settings or "{}")
        vector_io.append({"provider_id": kind, "provider_type": kind, "config": config})
    embedding = [hashing(DIMENSION)]
    return RunConfig.model_validate({"providers": {"vector_io": vector_io, "embedding": embedding}})


async def fill(stack: Stack, count: int) -> None:
    """Create the vector DB `source` on SQLite."""
    await stack.register(VectorDBRegistration(vector_db_id="source", embedding_model="hashing"))
    index = await stack.index("source")
    await store(index, synthetic_chunks(count), synthetic_embeddings(count))


async def medians(index: EmbeddingIndex, count: int) -> dict[str, float]:
    """Return the median milliseconds of a query in each mode, k = 10."""
    rng = np.random.default_rng(3)
    asked = synthetic_embeddings(count)[rng.integers(0, count, WARM_UP + QUERIES)]
    texts = [sentence(rng.integers(20, 2000, 6)) for _ in asked]
    watches = {mode: Stopwatch(WARM_UP) for mode in SearchMode}
    for row, text in zip(asked, texts, strict=True):
        for mode, watch in watches.items():
            await watch.call(index.query, row, text, 10, mode=mode)
    return {mode: watch.ms() for mode, watch in watches.items()}


async def measure(types: Sequence[str], count: int, table: Table) -> None:
    """Add a line for the source and for each copy to the table."""
    async with scratch_stack(configuration(types)) as stack:
        await fill(stack, count)
        add_line(table, "inline::sqlite", [], await medians(await stack.index("source"), count))
        for one in (kind.partition("=")[0] for kind in types):
            copies = [
                await copy_vector_db(stack, "source", one, provider_id=one),
                await copy_vector_db(stack, one, "back", provider_id="inline::sqlite"),
            ]
            add_line(table, one, copies, await medians(await stack.index(one), count))
            for copied in (one, "back"):
                await stack.unregister(copied)


def add_line(
    table: Table, name: str, copies: Sequence[CopyReport], times: dict[str, float]
) -> None:
    """Add a provider's figures to the table."""
    rates = [f"{one.copied / one.seconds:,.0f}" for one in copies] or ["", ""]
    table.add_row(name, *rates, *(f"{spent:.1f}" for spent in times.values()))


@click.command(context_settings={"show_default": True})
@click.option("--count", default=20_000, help="Chunks.")
@click.option(
    "--to",
    "types",
    multiple=True,
    default=INLINE,
    help="Provider types to copy to, with =SETTINGS.",
)
def main(count: int, types: tuple[str, ...]) -> None:
    """Print the speed of copying and the latency of queries for each backend."""
    copied = ("copied and verified, chunks/s", "and back")
    headers = ("provider", *copied, "vector ms", "keyword ms", "hybrid ms")
    table = Table(*headers, title=f"{count:,} chunks x {DIMENSION}, k=10, medians")
    asyncio.run(measure(types, count, table))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
