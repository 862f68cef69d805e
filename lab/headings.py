"""Measures the gain from headings: judged documents with and without their titles.

    python -m lab.headings data/scifact data/cisi
    python -m lab.headings --documents .

In a BEIR folder, each document's title serves as the heading path of its chunk. `--documents` takes
a clone of Corral: its Markdown is split as in an insert, and `QUESTIONS` has user questions with
the sections that answer them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk, ChunkMetadata, embedded_text
from corral.api.embedder import Embedder
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig, SearchMode, VectorDB, VectorDBRegistration
from corral.bench.data.judged import read_json_lines
from corral.bench.data.readers import read_beir
from corral.bench.quality.metrics import NDCG, measure
from corral.bench.scratch import scratch_stack, store
from corral.providers.base.config import ProviderEntry, Providers, RunConfig
from corral.providers.ingestion.read.detecting import MARKDOWN
from corral.providers.ingestion.read.parsing import parse
from corral.providers.ingestion.split.chunking import chunks_of, window_of
from corral.providers.stack.stack import Stack

K = 10
BATCH = 64
MODEL = "all-MiniLM-L6-v2"
VARIANTS = {"neither": (False, False), "keywords": (False, True), "embedded": (True, False),
            "both": (True, True)}  # fmt: skip
"""Two switches: embed a chunk's headings, and let keyword search read them."""

QUESTIONS = (
    ("How do I stop one file from filling the whole answer?", "context.md", "Chunks per document"),
    ("Can the text around a hit be shown too?", "context.md", "Neighbors"),
    ("Where do the numbers in brackets before a source come from?", "context.md", "Citations"),
    ("In which sequence are the passages printed?", "context.md", "Order"),
    ("Who counts the tokens, and with what?", "context.md", "Budget"),
    ("I see the same paragraph twice", "context.md", "Duplicates"),
    ("How do I weigh one collection more than another?", "context.md", "Several vector DBs"),
    ("What does the response say about what was left out?", "context.md", "answer's metadata"),
    ("How can I change how each result is printed?", "context.md", "Item template"),
    ("Let titles count more than bodies", "keyword-search.md", "Fields"),
    ("Does it know German plurals?", "keyword-search.md", "Stemming"),
    ("Search for an exact sequence of words", "keyword-search.md", "Phrases"),
    ("A user mistyped a name", "keyword-search.md", "Misspelled"),
    ("Results that are all alike; I want variety", "reranking.md", "Diversity"),
    ("Use a cross-encoder on another machine", "reranking.md", "A model"),
    ("Let a language model improve what the user typed", "reranking.md", "Rewriting"),
    ("How much slower does a second ordering make a query?", "reranking.md", "Cost"),
    ("How do I combine both legs with reciprocal ranks?", "retrieval.md", "Fusion"),
    ("Only documents of a certain year", "retrieval.md", "Filters"),
    ("Cut off weak results automatically", "retrieval.md", "How many"),
    ("Ask several variants of one question at once", "retrieval.md", "Several wordings"),
    ("Why was this chunk found?", "retrieval.md", "Why"),
    ("Behind a reverse proxy I get 421", "serving.md", "Address and host names"),
    ("Allow downloads from our wiki", "serving.md", "Documents by URL"),
    ("How large may a request be?", "serving.md", "Limits"),
    ("Which files must I save in case the disk dies?", "serving.md", "Backups"),
    ("The database server is gone for an hour", "serving.md", "When a backend is down"),
    ("Remove leftovers of a crash", "serving.md", "Manage the data"),
    ("When has an embedded store become too small?", "moving.md", "When to leave"),
    ("What is a score, exactly?", "concepts.md", "What a score is"),
    ("Make a first collection", "getting-started.md", "Register a vector DB"),
    ("Use the client of Llama Stack with it", "getting-started.md", "Connect a client"),
    ("Fail a pipeline if quality falls", "benchmark-reports.md", "in CI"),
    ("Which file maps raw relevance to the unit interval?", "architecture.md", "Where is"),
)
"""A question, and the file in docs/ and the heading of the section with the answer."""


@dataclass(frozen=True)
class Judged:
    """Chunks below headings, and the relevant chunks of each question."""

    name: str
    chunks: Sequence[Chunk]
    questions: dict[str, str]
    relevant: dict[str, dict[str, int]]


def titled(folder: Path) -> Judged:
    """Return a judged set if its documents have titles."""
    judged = read_beir(folder)
    chunks = [
        Chunk(
            chunk_id=row["_id"],
            content=row["text"].strip() or row["title"],
            chunk_metadata=ChunkMetadata(heading_path=[row["title"]] if row["title"] else None),
        )
        for _, row in read_json_lines(folder / "corpus.jsonl")
        if row["text"].strip() or row["title"].strip()
    ]
    return Judged(folder.name, chunks, judged.queries, judged.qrels)


def documents(root: Path, vector_db: VectorDB, embedder: Embedder) -> Judged:
    """Return this project's own Markdown, split as in an insert, with `QUESTIONS`."""
    window, chunking = window_of(embedder), ChunkingConfig()
    chunks: list[Chunk] = []
    for path in sorted([*root.glob("docs/*.md"), *root.glob("rfcs/*.md"), root / "README.md"]):
        document = RAGDocument(document_id=path.relative_to(root).as_posix(), content="file")
        parsed = parse(path.read_bytes(), MARKDOWN)
        made = chunks_of(document, parsed, chunking, vector_db, lambda _: 0, window)
        chunks += [chunk.model_copy(update={"metadata": {}}) for chunk in made]
    relevant = {
        str(number): {chunk.chunk_id: 1 for chunk in chunks if _answers(chunk, file, heading)}
        for number, (_, file, heading) in enumerate(QUESTIONS)
    }
    unanswered = [QUESTIONS[int(number)][0] for number, found in relevant.items() if not found]
    if unanswered:
        raise click.ClickException(f"No section answers {unanswered[0]!r}.")
    questions = {str(number): question for number, (question, *_) in enumerate(QUESTIONS)}
    return Judged("documents", chunks, questions, relevant)


def _answers(chunk: Chunk, file: str, heading: str) -> bool:
    record = chunk.chunk_metadata
    if record is None or record.document_id != f"docs/{file}":
        return False
    lines = [line for line in chunk.content.split("\n") if line.startswith("#")]
    return any(heading in each for each in [*(record.heading_path or ()), *lines])


async def compare(judged: Judged, stack: Stack, embedder: Embedder) -> list[str]:
    """Return a row of a Markdown table for each variant: nDCG@10 by mode."""
    texts = {False: [each.content for each in judged.chunks]}
    texts[True] = [embedded_text(each) for each in judged.chunks]
    embedded = {which: await _embed(embedder, some) for which, some in texts.items()}
    questions = {name: await embedder.embed_query(text) for name, text in judged.questions.items()}
    rows = []
    for name, (in_embedding, in_keywords) in VARIANTS.items():
        db = f"{judged.name}-{name}"
        await stack.register(VectorDBRegistration(vector_db_id=db, embedding_model=MODEL))
        index = await stack.index(db)
        chunks = [each if in_keywords else _bare(each) for each in judged.chunks]
        await store(index, chunks, embedded[in_embedding])
        values = []
        for mode in SearchMode:
            run = {}
            for question, text in judged.questions.items():
                found = await index.query(questions[question], text, k=K, mode=mode)
                run[question] = [hit.chunk.chunk_id for hit in found.hits]
            values.append(float(np.mean(list(measure(judged.relevant, run)[NDCG].values()))))
        rows.append(f"| {judged.name} | {name} | {' | '.join(f'{v:.3f}' for v in values)} |")
    return rows


def _bare(chunk: Chunk) -> Chunk:
    return chunk.model_copy(update={"chunk_metadata": None})


async def _embed(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
    return np.concatenate([await embedder.embed_documents(batch) for batch in batches])


async def _run(folders: Sequence[Path], root: Path | None) -> None:
    memory = ProviderEntry(provider_id="memory", provider_type="inline::memory")
    async with scratch_stack(RunConfig(providers=Providers(vector_io=[memory]))) as stack:
        embedder = await stack.embedder(MODEL)
        click.echo("| set | headings in | vector | keyword | hybrid |\n|---|---|---|---|---|")
        for folder in folders:
            click.echo("\n".join(await compare(titled(folder), stack, embedder)))
        if root:
            sample = VectorDBRegistration(vector_db_id="sample", embedding_model=MODEL)
            own = documents(root, await stack.register(sample), embedder)
            click.echo("\n".join(await compare(own, stack, embedder)))


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--documents", "root", type=click.Path(path_type=Path, exists=True))
def main(folders: Sequence[Path], root: Path | None) -> None:
    """Compare nDCG@10 with and without the documents' titles in either leg."""
    asyncio.run(_run(folders, root))


if __name__ == "__main__":
    main()
