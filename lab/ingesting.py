"""Measures the overhead of an ingest of Markdown, and its effect on queries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np

from corral.api.chunks import embedded_text
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import SearchMode, VectorDBRegistration
from corral.bench.data.synthetic import sentence
from corral.bench.scratch import scratch_stack
from corral.bench.stopwatch import Bound, Stopwatch, clocked
from corral.providers.base.config import RunConfig
from corral.providers.ingestion.jobs.jobs import JobRequest
from corral.providers.stack.stack import Stack

ROUNDS = 8
PAGES = 8
FOLDERS = 4
PAGES_IN_FOLDER = 32
"""Folders for `measure_ingest`. Before the first and after the last batch, models idle for about 20
ms: 2 % of the time for 8 pages, half a percent here. Most folders have more pages."""
SECTIONS = 6
WORDS = 60
QUESTIONS = 20
BETWEEN_SECONDS = 0.02
"""Pause between questions, because their latency is measured, not the throughput."""
WAITING = 2.0
"""Maximum slowdown of a question while documents are ingested."""


def page(number: int, seed: int) -> str:
    """Return a page of Markdown; deterministic."""
    rng = np.random.default_rng([seed, number])
    texts = [sentence(rng.integers(0, 5000, WORDS)) for _ in range(SECTIONS)]
    return "\n\n".join([f"# Page {number}", *(f"## Part {n}\n\n{t}." for n, t in enumerate(texts))])


async def measure_ingest() -> list[Bound]:
    """Ingest folders as jobs and embed the same texts alone, interleaved, and compare the rates."""
    took, alone, count = [], [], 0
    work = np.zeros(2)  # processor seconds of the embedder alone, and of the ingest
    async with _stack() as stack:
        await ingested(stack, range(-2, 0))  # loads the model and the tokenizers
        embedder = await stack.embedder_of(await stack.vector_db("db"))
        for number in range(FOLDERS):
            pages = range(number * PAGES_IN_FOLDER, (number + 1) * PAGES_IN_FOLDER)
            seconds, processor, texts = await ingested(stack, pages)
            took.append(seconds)
            begun = time.process_time()
            alone.append((await clocked(embedder.embed_documents, texts))[0])
            work += time.process_time() - begun, processor
            count += len(texts)
    share = sum(alone) / sum(took)
    rates = f"{count / sum(took):,.0f} chunks/s of {count / sum(alone):,.0f}"
    median = np.median(np.array(alone) / np.array(took))
    figure = (
        f"{rates}: {share:.1%} (median of {FOLDERS} folders {median:.1%}; "
        f"by processor time {work[0] / work[1]:.1%})"
    )
    return [Bound("ingest of Markdown against the embedder alone", figure, ">= 95%", share >= 0.95)]


async def measure_waiting() -> list[Bound]:
    """Compare the latency of questions during an ingest and without one, interleaved."""
    quiet, busy = Stopwatch(), Stopwatch()
    async with _stack() as stack:
        await ingested(stack, range(-8, 0))
        await asked(stack, Stopwatch(), QUESTIONS)  # loads what only questions need
        for number in range(ROUNDS):
            await asked(stack, quiet, QUESTIONS)
            pages = range(number * PAGES, (number + 1) * PAGES)
            going = asyncio.create_task(ingested(stack, pages))
            while not going.done():
                await asked(stack, busy, 1)
            await going
    shares = [busy.ms(share) / quiet.ms(share) for share in (0.5, 0.95)]
    usual = f"{quiet.ms():.1f} ms and {quiet.ms(0.95):.1f} ms (p95)"
    figure = f"{usual}; while pages go in {shares[0]:.2f} and {shares[1]:.2f} times"
    holds = max(shares) <= WAITING
    return [Bound("a question during an ingest", figure, f"<= {WAITING:g} times", holds)]


@asynccontextmanager
async def _stack() -> AsyncIterator[Stack]:
    """Open a scratch stack with an empty vector DB `db` of the default model."""
    config = RunConfig()
    model = config.default_embedding_model
    async with scratch_stack(config) as stack:
        await stack.register(VectorDBRegistration(vector_db_id="db", embedding_model=model))
        yield stack


async def asked(stack: Stack, watch: Stopwatch, count: int) -> None:
    """Ask questions one after the other: each is embedded, then searched for in both legs."""
    for _ in range(count):
        number = len(watch.seconds)
        question = sentence((number * 7 + each) % 5000 for each in range(8))
        with watch.running():
            index = await stack.index("db")
            embedder = await stack.embedder_of(index.vector_db)
            embedding = await embedder.embed_query(question)
            await index.query(embedding, question, 10, mode=SearchMode.HYBRID)
        await asyncio.sleep(BETWEEN_SECONDS)


async def ingested(stack: Stack, numbers: range) -> tuple[float, float, list[str]]:
    """Ingest pages.

    Returns:
        The seconds until the last page was stored, the processor seconds, and the embedded texts.
    """
    documents = [
        RAGDocument(document_id=f"d{n}", content=page(abs(n), n < 0), mime_type="text/markdown")
        for n in numbers
    ]
    asked = [JobRequest("db", document=document) for document in documents]
    started, begun = time.time(), time.process_time()
    jobs = await stack.ingestion.submit(asked, batch=True)
    changes = stack.ingestion.changes(batch_id=jobs[0].batch_id)
    ended = [job.updated_at async for changed in changes for job in changed]
    processor = time.process_time() - begun
    index = await stack.index("db")
    ids = [i for each in documents for i in await index.document_chunk_ids(each.document_id)]
    texts = [embedded_text(chunk) for chunk in await index.get_chunks(ids)]
    return max(ended) - started, processor, texts
