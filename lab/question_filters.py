"""Whether a filter that a language model proposes from the question brings the right note first.

    python -m lab.question_filters
    python -m lab.question_filters --gguf SmolLM2-135M-Instruct.Q4_1.gguf

The set is made here: notes in families of six with one text but for a value. What a question says
beside that text is in the metadata alone: a kind, a year, a time or an author. The scripted model
proposes the right filter, so it shows what a perfect model adds; a real one is measured beside it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import click

from corral.api.rag import RAGDocument
from corral.providers import library
from corral.providers.base.config import RunConfig
from lab.exact_matches import FAMILIES, MEMBERS, QUESTIONS, THINGS, TOPICS
from tests.chat_service import ChatService, running_chat, said

KEYS = ["kind", "year", "day", "author"]
KINDS = ("memo", "report", "invoice", "letter", "contract", "protocol")
NAMES = ("Ines", "Karl", "Mona", "Piet", "Ruth", "Sven", "Vera", "Yann")
SURNAMES = ("Holm", "Berg", "Lind", "Falk", "Dahl", "Strand", "Ek", "Krog")
TEXT = "We wrote about {topic} of the {thing}. It took {value} minutes."


@dataclass(frozen=True)
class Asked:
    """A question, the id of the right note and the right filter."""

    question: str
    right: str
    filters: list[dict[str, Any]]


@dataclass
class Made:
    """The notes as (id, text, metadata), and the questions by the key that they are about."""

    notes: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    questions: dict[str, list[Asked]] = field(default_factory=dict)


def _kinds(chance: random.Random) -> Iterator[tuple[Any, str, str, Any]]:
    for kind in chance.sample(KINDS, MEMBERS):
        yield kind, f"Which {kind} is about {{topic}} of the {{thing}}?", "eq", kind


def _years(chance: random.Random) -> Iterator[tuple[Any, str, str, Any]]:
    first = chance.randint(2005, 2018)
    for year in range(first, first + MEMBERS):
        yield year, f"What did we write about {{topic}} of the {{thing}} in {year}?", "eq", year


def _days(chance: random.Random) -> Iterator[tuple[Any, str, str, Any]]:
    days = sorted(date(2015, 1, 1) + timedelta(days=n) for n in chance.sample(range(3600), MEMBERS))
    ends = {days[0]: ("before", "lt", days[1]), days[-1]: ("after", "gt", days[-2])}
    for day in days:
        word, kind, bound = ends.get(day, ("on", "eq", day))
        question = f"What was written {word} {bound} about {{topic}} of the {{thing}}?"
        yield str(day), question, kind, str(bound)


def _authors(chance: random.Random) -> Iterator[tuple[Any, str, str, Any]]:
    for name, surname in chance.sample(list(product(NAMES, SURNAMES)), MEMBERS):
        author = f"{name} {surname}"
        yield author, f"What does {author} say about {{topic}} of the {{thing}}?", "eq", author


FORMS: dict[str, Callable[[random.Random], Iterator[tuple[Any, str, str, Any]]]] = {
    "kind": _kinds, "year": _years, "day": _days, "author": _authors,
}  # fmt: skip
"""By key, what yields the value of each note of a family, its question and its filter."""


def made(seed: int) -> Made:
    """Return the set; equal for equal seeds."""
    chance, result = random.Random(seed), Made()
    for key, form in FORMS.items():
        asked: list[Asked] = []
        for thing, topic in chance.sample(list(product(THINGS, TOPICS)), FAMILIES):
            words = {"topic": topic, "thing": thing}
            for value, question, kind, bound in form(chance):
                note = f"{key}-{len(result.notes):03}"
                text = TEXT.format(value=chance.randint(2, 900), **words)
                result.notes.append((note, text, {key: value}))
                filters = [{"type": kind, "key": key, "value": bound}]
                asked.append(Asked(question.format(**words), note, filters))
        result.questions[key] = chance.sample(asked, QUESTIONS)
    return result


def config(url: str, gguf: Path | None) -> RunConfig:
    """Return a configuration with the scripted model, and a real one from a file."""
    chat = {"base_url": url, "models": ["scripted"]}
    inference = [{"provider_id": "chat", "provider_type": "remote::chat", "config": chat}]
    if gguf is not None:
        models = [{"model": "real", "path": str(gguf)}]
        settings = {"provider_id": "own", "provider_type": "inline::llama-cpp"}
        inference.append({**settings, "config": {"models": models}})
    embedding = [
        {"provider_id": "e5", "provider_type": "inline::e5"},
        {"provider_id": "minilm", "provider_type": "inline::minilm"},
    ]
    return RunConfig.model_validate({"providers": {"embedding": embedding, "inference": inference}})


async def measure(
    model: str, seed: int, most: int, gguf: Path | None, service: ChatService
) -> None:
    """Print a row of a Markdown table for each way to search."""
    there = made(seed)
    ways: dict[str, Any] = {"no filter": "none"}
    for name in ("scripted", *(["real"] if gguf else [])):
        ways[f"{name} model"] = {"model": name, "keys": KEYS}
    with tempfile.TemporaryDirectory() as folder:
        async with library.open(folder, config(service.url, gguf)) as corral:
            await corral.register("notes", model)
            documents = [
                RAGDocument(document_id=note, content=text, metadata=metadata)
                for note, text, metadata in there.notes
            ]
            await corral.insert("notes", documents)
            for way, auto in ways.items():
                shares, dropped, wrong = [], 0, 0
                for questions in there.questions.values():
                    first = 0
                    for each in questions[:most]:
                        service.scripts = [said(json.dumps(each.filters))]
                        answer = await corral.query(each.question, "notes", k=1, auto_filters=auto)
                        first += answer.hits[0].chunk.document_id == each.right
                        note = next(iter(answer.notes), "")
                        dropped += note.startswith(("Dropped", "Refused", "No filter"))
                        wrong += note.startswith("Filtered") and (
                            answer.hits[0].chunk.document_id != each.right
                        )
                    shares.append(first / len(questions[:most]))
                cells = " | ".join(f"{share:.2f}" for share in shares)
                mean = sum(shares) / len(shares)
                click.echo(f"| {way} | {cells} | {mean:.3f} | {dropped} | {wrong} |")


@click.command()
@click.option("--embedder", "model", default="multilingual-e5-small")
@click.option("--seed", default=0)
@click.option("--most", default=QUESTIONS, help="Questions of each kind.")
@click.option(
    "--gguf",
    type=click.Path(exists=True, resolve_path=True, path_type=Path),
    help="A real model's file.",
)
def main(model: str, seed: int, most: int, gguf: Path | None) -> None:
    """Print the share of questions with the right note first, by key.

    The last columns count questions without a usable filter, and with one that is wrong.
    """
    os.environ["NO_PROXY"] = "127.0.0.1"
    click.echo(f"| way | {' | '.join(FORMS)} | mean | unusable | wrong |")
    click.echo(f"|---|{'---|' * (len(FORMS) + 3)}")
    with running_chat() as service:
        asyncio.run(measure(model, seed, most, gguf, service))


if __name__ == "__main__":
    main()
