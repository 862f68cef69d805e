"""How much of the embedder's own speed an ingest of Markdown into SQLite keeps."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from corral.api.chunks import embedded_text
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import VectorDBRegistration
from corral.bench.data.datasets import word
from corral.bench.stopwatch import Bound
from corral.providers.config import RunConfig
from corral.providers.ingestion.jobs import JobRequest
from corral.providers.stack import Stack

PAGES = 16
SECTIONS = 6
WORDS = 60


def page(number: int, seed: int) -> str:
    """Return a page of Markdown, the same each time."""
    rng = np.random.default_rng([seed, number])
    texts = [" ".join(word(int(n)) for n in rng.integers(0, 5000, WORDS)) for _ in range(SECTIONS)]
    return "\n\n".join([f"# Page {number}", *(f"## Part {n}\n\n{t}." for n, t in enumerate(texts))])


async def measure_ingest(pages: int = PAGES) -> list[Bound]:
    """Ingest pages as jobs, then embed the same texts alone, and compare the rates."""
    config = RunConfig()
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(config, Path(folder))
        try:
            model = config.default_embedding_model
            await stack.register(VectorDBRegistration(vector_db_id="db", embedding_model=model))
            await ingested(stack, range(-2, 0))  # loads the model and the tokenizers
            embedder = await stack.embedder(model)
            index = await stack.index("db")
            warm = await index.count()
            started = time.perf_counter()
            await ingested(stack, range(pages))
            took = time.perf_counter() - started
            count = await index.count() - warm
            ids = await index.chunk_ids(limit=100_000)
            texts = [embedded_text(chunk) for chunk in await index.get_chunks(ids)][:count]
            started = time.perf_counter()
            await embedder.embed_documents(texts)
            alone = time.perf_counter() - started
        finally:
            await stack.close()
    share = alone / took
    figure = f"{count / took:,.0f} chunks/s of {count / alone:,.0f}: {share:.1%}"
    return [Bound("ingest of Markdown against the embedder alone", figure, ">= 95%", share >= 0.95)]


async def ingested(stack: Stack, numbers: range) -> None:
    """Ingest pages and wait until they are stored."""
    documents = [
        RAGDocument(document_id=f"d{n}", content=page(abs(n), n < 0), mime_type="text/markdown")
        for n in numbers
    ]
    asked = [JobRequest("db", document=document) for document in documents]
    jobs = await stack.ingestion.submit(asked, batch=True)
    async for _ in stack.ingestion.watch(batch_id=jobs[0].batch_id):
        pass
