"""What sentences of a language model before chunks add to search, and what they cost.

    python -m lab.contexts
    python -m lab.contexts data/xquad-en --documents 30 --gguf SmolLM2-135M-Instruct.Q4_1.gguf

Documents are split into small chunks; a question is answered if one of three hits is from the right
document and has one of the answers. The scripted model writes the first sentence of the document.
The made set has handbooks that name their site there and nowhere else.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import tempfile
from pathlib import Path
from typing import Any

import click

from corral.api.hits import Hit
from corral.api.rag import RAGDocument
from corral.bench.quality.statistics import bootstrap
from corral.providers import library
from lab.diversity import NARROW, PARAGRAPHS, SITES, TOPICS, Questions, judged
from lab.question_filters import config
from tests.chat_service import events, piece
from tests.providers.json_service import running_service

K, CHUNK_SIZE = 3, 48
_BEGINNING = re.compile(r"<document>\s*(.+?[.!?])\s", re.DOTALL)
MODES = ("vector", "keyword", "hybrid")


def scripted(request: dict[str, Any]) -> bytes:
    """Return a chat stream with the first sentence of the document in a prompt."""
    beginning = _BEGINNING.search(request["messages"][0]["content"])
    return events(piece(beginning.group(1) if beginning else "", "stop"))


def handbooks() -> tuple[dict[str, str], Questions]:
    """Return the made documents and the questions about their paragraphs."""
    chance = random.Random(0)
    values = iter(chance.sample(range(10_000, 99_999), len(SITES) * len(TOPICS)))
    documents, questions = {}, Questions()
    for site in SITES:
        parts = [f"This is the handbook of {site}."]
        for number, topic in enumerate(TOPICS):
            value, name = str(next(values)), NARROW.format(site=site, topic=topic)
            parts.append(PARAGRAPHS[number % len(PARAGRAPHS)].format(topic=topic, value=value))
            questions.texts[name], questions.relevant[name] = name, {site}
            questions.parts[name] = [value]
        documents[site] = "\n\n".join(parts)
    return documents, questions


async def compare(folder: Path | None, model: str, most: int, gguf: Path | None, url: str) -> None:
    """Print a row of a Markdown table for each language model and mode."""
    documents, questions = handbooks()
    if folder is not None:
        documents, kinds = judged(folder, 10**6)
        [questions] = kinds.values()
    chosen = set(random.Random(0).sample(sorted(documents), min(most, len(documents))))
    asked = [name for name, right in questions.relevant.items() if right <= chosen]
    before: dict[str, list[float]] = {}
    for writer in (None, "scripted", *(["real"] if gguf else [])):
        with tempfile.TemporaryDirectory() as home:
            async with library.open(home, config(url, gguf)) as corral:
                sizes = {"chunk_size_in_tokens": CHUNK_SIZE, "overlap_in_tokens": 0}
                chunking = {**sizes, **({"context_model": writer} if writer else {})}
                await corral.register("all", model, chunking=chunking)
                some = [RAGDocument(document_id=n, content=documents[n]) for n in sorted(chosen)]
                report = await corral.insert("all", some)
                for mode in MODES:
                    shares = []
                    for name in asked:
                        found = await corral.query(questions.texts[name], "all", k=K, mode=mode)
                        hits: list[Hit] = found.hits
                        shares.append(questions.share(name, hits))
                    pairs = zip(shares, before.setdefault(mode, shares), strict=True)
                    share, gain = bootstrap(shares), bootstrap([a - b for a, b in pairs])
                    click.echo(
                        f"| {writer or 'none'} | {mode} | {len(shares)} | {share.mean:.3f} | "
                        f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] |"
                    )
                click.echo("\n".join(report.notes))


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path, exists=True))
@click.option("--embedder", "model", default="multilingual-e5-small")
@click.option("--documents", "most", default=240, help="Documents of the set.")
@click.option("--gguf", type=click.Path(exists=True, resolve_path=True, path_type=Path))
def main(folder: Path | None, model: str, most: int, gguf: Path | None) -> None:
    """Print the share of questions with the answer in three hits, and the gain of each model."""
    os.environ["NO_PROXY"] = "127.0.0.1"
    click.echo("| model | mode | questions | share | gain |\n|---|---|---|---|---|")
    with running_service(scripted) as service:
        asyncio.run(compare(folder, model, most, gguf, service.url))


if __name__ == "__main__":
    main()
