"""How good is retrieval? nDCG@10 of the three modes on judged sets, by the server's own code.

    python -m corral.bench.quality DIR...                        each DIR in BEIR layout
    python -m corral.bench.quality --config run.yaml DIR...      on every vector_io provider of it

Every document is stored as one chunk through `Retrieval.store` and every query asked through
`Retrieval.search`, so what is measured is what users get. Embeddings are kept in the data folder's
`bench` and reused. Metrics come from `ir-measures` (trec_eval).
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import click
import ir_measures
import numpy as np
from ir_measures import R, nDCG
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from corral.api.chunks import Chunk
from corral.api.embedder import Embedder
from corral.api.vector_dbs import SearchMode, VectorDBRegistration
from corral.bench.datasets import JudgedSet, read_beir
from corral.providers.config import RunConfig, data_home, load_config
from corral.providers.rag.retrieval import Retrieval
from corral.providers.stack import Stack

LANGUAGES = {"xquad-de": "german", "xquad-zh": "chinese"}
"""Languages of sets that are not English, by folder name; others by --language."""
BATCH = 64
DEPTH = 100


async def embed_once(embedder: Embedder, texts: list[str], folder: Path) -> NDArray[np.float32]:
    """Return the embeddings of texts, shape (n, dimension), kept from an earlier run or new."""
    key = hashlib.sha256("\0".join([embedder.info.model, *texts]).encode()).hexdigest()[:32]
    path = folder / f"{key}.npy"
    with suppress(FileNotFoundError):
        kept: NDArray[np.float32] = np.load(path, allow_pickle=False)
        return kept
    parts = []
    for start in track(range(0, len(texts), BATCH), "embedding", console=Console(stderr=True)):
        parts.append(await embedder.embed_documents(texts[start : start + BATCH]))
    result: NDArray[np.float32] = np.concatenate(parts)
    np.save(path, result, allow_pickle=False)
    return result


async def run_set(
    stack: Stack, provider_id: str, judged: JudgedSet, model: str, language: str, cache: Path
) -> dict[SearchMode, tuple[float, float]]:
    """Store a set, ask its queries in every mode, and return (nDCG@10, recall@100) by mode."""
    registration = VectorDBRegistration(
        vector_db_id=judged.name, provider_id=provider_id, embedding_model=model, language=language
    )
    await stack.register(registration)
    vectors = await embed_once(await stack.embedder(model), list(judged.documents.values()), cache)
    chunks = [Chunk(chunk_id=key, content=text or "-") for key, text in judged.documents.items()]
    index = await stack.index(judged.name)
    for start in range(0, len(chunks), 1000):
        await index.add_chunks(chunks[start : start + 1000], vectors[start : start + 1000])
    try:
        return {mode: await _measure(Retrieval(stack), judged, mode) for mode in SearchMode}
    finally:
        await stack.unregister(judged.name)


async def _measure(
    retrieval: Retrieval, judged: JudgedSet, mode: SearchMode
) -> tuple[float, float]:
    run: dict[str, dict[str, float]] = {}
    for key, text in judged.queries.items():
        answer = await retrieval.search(judged.name, text, k=DEPTH, mode=mode)
        run[key] = {hit.chunk.chunk_id: hit.score for hit in answer.hits}
    measured = ir_measures.calc_aggregate([nDCG @ 10, R @ 100], judged.qrels, run)
    return measured[nDCG @ 10], measured[R @ 100]


async def measure_all(
    config: RunConfig, folders: list[Path], model: str, language: str | None, cache: Path
) -> Table:
    """Measure every set on every vector_io provider and return the table."""
    table = Table("set", "provider", "documents", "queries", *(m.value for m in SearchMode))
    table.title = f"nDCG@10 (recall@100), {model}"
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(config, Path(folder))
        for judged in map(read_beir, folders):
            spoken = language or LANGUAGES.get(judged.name, "english")
            for entry in config.providers.vector_io:
                found = await run_set(stack, entry.provider_id, judged, model, spoken, cache)
                counts = (str(len(judged.documents)), str(len(judged.queries)))
                cells = (f"{ndcg:.4f} ({recall:.3f})" for ndcg, recall in found.values())
                table.add_row(judged.name, entry.provider_id, *counts, *cells)
        await stack.close()
    return table


@click.command(context_settings={"show_default": True})
@click.argument(
    "folders",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option("--model", default="all-MiniLM-L6-v2", help="Embedding model.")
@click.option("--language", help="Language of all sets; by default known by the folder's name.")
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A run.yaml."
)
def main(folders: tuple[Path, ...], model: str, language: str | None, config: Path | None) -> None:
    """Print nDCG@10 and recall@100 of the three search modes on judged sets."""
    start = time.monotonic()
    cache = data_home() / "bench"
    cache.mkdir(parents=True, exist_ok=True)
    settings = load_config(config) if config else RunConfig()
    table = asyncio.run(measure_all(settings, list(folders), model, language, cache))
    console = Console(width=120)
    console.print(table)
    console.print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
