"""What a re-ranking model adds to hybrid search on judged sets, and what it costs a question.

    python -m lab.second_stage --embedder bge-small-en-v1.5 data/scifact data/cacm
    python -m lab.second_stage --candidates 20 --candidates 30 --candidates 50 --weight 0.6 data/*

Each document is one chunk. Embeddings are cached in the folder --home, as are the re-ranker's, so
that the milliseconds are those of a store whose texts were re-ranked before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np

from corral.api.chunks import Chunk
from corral.api.vector_dbs import VectorDBRegistration
from corral.bench.data.embedded import Embedding
from corral.bench.data.judged import JudgedSet, language_of
from corral.bench.data.readers import read_beir
from corral.bench.quality.metrics import NDCG, measure
from corral.bench.quality.statistics import bootstrap
from corral.bench.scratch import store
from corral.providers.base.config import ProviderEntry, Providers, RunConfig
from corral.providers.rag.tool import RagTool
from corral.providers.stack.stack import Stack

K = 10
WEIGHTS = (0.4, 0.5, 0.6, 0.7, 1.0)


def configuration() -> RunConfig:
    """Return a configuration with all models of the comparison and a store in memory."""

    def entry(kind: str, *models: str) -> ProviderEntry:
        config = {"models": [{"model": each} for each in models]} if models else {}
        return ProviderEntry(provider_id=kind, provider_type=f"inline::{kind}", config=config)

    return RunConfig(
        providers=Providers(
            vector_io=[entry("memory")],
            embedding=[entry("e5"), entry("minilm"), entry("onnx", "bge-small-en-v1.5")],
            rerank=[
                entry("colbert", "answerai-colbert-small-v1"),
                entry("onnx-rerank", "ms-marco-MiniLM-L-12-v2"),
            ],
        )
    )


@asynccontextmanager
async def stored(judged: JudgedSet, model: str, home: Path) -> AsyncIterator[tuple[Stack, str]]:
    """Store a set in memory, each document as a chunk; yield the stack and the vector DB's id."""
    config, name = configuration(), f"{judged.name}-{model}"
    async with Embedding.opened(config, home, model) as embedding:
        embedded = await embedding.embed(judged)
    stack = Stack(config, home)
    try:
        registration = VectorDBRegistration(
            vector_db_id=name, embedding_model=model, language=judged.language
        )
        await stack.register(registration)
        pairs = zip(judged.documents, embedded.contents, strict=True)
        chunks = [Chunk(chunk_id=key, content=text) for key, text in pairs]
        await store(await stack.index(name), chunks, embedded.documents)
        yield stack, name
        await stack.unregister(name)
    finally:
        await stack.close()


async def compare(
    judged: JudgedSet, model: str, reranks: Sequence[dict[str, Any]], home: Path
) -> dict[str, float]:
    """Print a row of a Markdown table for each way to re-rank; return the mean nDCG@10 by way."""
    means: dict[str, float] = {}
    async with stored(judged, model, home) as (stack, name):
        retrieval = RagTool(stack).retrieval
        for rerank in reranks:
            run, took = {}, []
            for warm in (False, True):
                for key, text in judged.queries.items():
                    started = time.perf_counter()
                    found = await retrieval.search(name, text, k=K, rerank=rerank)
                    if warm:
                        took.append(time.perf_counter() - started)
                    run[key] = [hit.chunk.chunk_id for hit in found.hits]
            ndcg = bootstrap(list(measure(judged.qrels, run)[NDCG].values()))
            about = " ".join(
                str(rerank.get(each, "")) for each in ("model", "candidates", "weight")
            )
            median, way = 1000 * float(np.median(took)), about.strip() or "none"
            click.echo(
                f"| {judged.name} | {model} | {way} | {ndcg.mean:.4f} "
                f"[{ndcg.low:.3f}, {ndcg.high:.3f}] | {median:.1f} |"
            )
            means[way] = ndcg.mean
    return means


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--embedder", "model", default="multilingual-e5-small")
@click.option("--reranker", default="answerai-colbert-small-v1")
@click.option("--candidates", default=[20], multiple=True, type=int)
@click.option("--weight", "weights", default=WEIGHTS, multiple=True, type=float)
@click.option("--home", type=click.Path(path_type=Path), default=Path("corral-bench", "lab"))
def main(
    folders: Sequence[Path],
    model: str,
    reranker: str,
    candidates: Sequence[int],
    weights: Sequence[float],
    home: Path,
) -> None:
    """Print nDCG@10 with bootstrap intervals, and the median milliseconds of a question."""
    rerank = {"type": "model", "model": reranker}
    ways = [{**rerank, "candidates": n, "weight": w} for n in candidates for w in weights]
    click.echo("| set | embedder | re-ranker, candidates, weight | nDCG@10 | ms |")
    click.echo("|---|---|---|---|---|")
    read = [read_beir(folder, language_of(folder.name, {})) for folder in folders]
    sets = [asyncio.run(compare(each, model, [{"type": "none"}, *ways], home)) for each in read]
    for way in sets[0] if len(sets) > 1 else ():
        mean = float(np.mean([means[way] for means in sets]))
        click.echo(f"| mean of {len(sets)} | {model} | {way} | {mean:.4f} | |")


if __name__ == "__main__":
    main()
