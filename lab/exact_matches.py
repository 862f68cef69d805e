"""Whether the text with the question's own identifier, version, date or quoted name comes first.

    python -m lab.exact_matches

The set is made here: notes of four kinds, in families of six that differ in nothing but that name
and a value, and 50 questions of each kind. Only the note with exactly the name is right.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import product
from typing import Any

import click

from corral.api.rag import RAGDocument
from corral.providers import library

FAMILIES, MEMBERS, QUESTIONS = 20, 6, 50
"""Of each kind: families of notes, notes of a family, questions."""
WAYS: dict[str, dict[str, Any]] = {
    "vector": {"mode": "vector"}, "keyword": {"mode": "keyword"}, "hybrid": {},
    **{f"hybrid, alpha {alpha:g}": {"ranker": {"type": "weighted", "alpha": alpha}}
       for alpha in (0.4, 0.3, 0.2)},
}  # fmt: skip
THINGS = (
    "barn door", "feed mixer", "hay press", "milk cooler", "fence charger", "egg sorter",
    "water trough", "wool shears", "grain silo", "cattle scale",
)  # fmt: skip
TOPICS = ("a loose hinge", "a late delivery", "a wrong invoice", "a noisy motor", "a torn belt")
COLORS = ("Blue", "Red", "Grey", "White", "Green", "Golden", "Black", "Silver", "Brown", "Copper")
BIRDS = ("Heron", "Falcon", "Finch", "Swan", "Owl", "Crane", "Robin", "Plover", "Stork", "Kite")
FORMS = {
    "identifier": (
        "Order {name} was about {topic} of the {thing}. The refund was {value} crowns.",
        "How much was refunded for order {name}?",
    ),
    "version": (
        "Firmware {name} of the {thing} fixes {topic}. It needs {value} seconds to start.",
        "How long does firmware {name} take to start?",
    ),
    "date": (
        "On {name} the workshop repaired {topic} of the {thing}. It took {value} minutes.",
        "What was repaired in the workshop on {name}?",
    ),
    "quoted name": (
        "The farm {name} reported {topic} of its {thing}. It has {value} animals.",
        'How many animals does the farm "{name}" have?',
    ),
}
"""By kind, the form of a note and of a question about it."""


def _orders(chance: random.Random) -> Iterator[str]:
    first = chance.randint(10000, 89999)
    return (f"ORD-{first + step}" for step in range(MEMBERS))


def _versions(chance: random.Random) -> Iterator[str]:
    major, minor = chance.randint(1, 30), chance.randint(0, 40)
    return (f"{major}.{minor}.{patch}" for patch in range(MEMBERS))


def _dates(chance: random.Random) -> Iterator[str]:
    first = date(2015, 1, 1) + timedelta(days=chance.randint(0, 3600))
    return (str(first + timedelta(days=step)) for step in range(MEMBERS))


def _farms(chance: random.Random) -> Iterator[str]:
    color, birds = chance.choice(COLORS), chance.sample(BIRDS, MEMBERS)
    number = chance.randint(2, 90)
    return (f"{color} {bird} {number}" for bird in birds)


NAMES: dict[str, Callable[[random.Random], Iterator[str]]] = {
    "identifier": _orders, "version": _versions, "date": _dates, "quoted name": _farms,
}  # fmt: skip


@dataclass
class Made:
    """The notes by id, and by kind the id of the right note of each question."""

    notes: dict[str, str] = field(default_factory=dict)
    right: dict[str, dict[str, str]] = field(default_factory=dict)


def made(seed: int) -> Made:
    """Return the set; equal for equal seeds."""
    chance, found = random.Random(seed), Made()
    for kind, (note, question) in FORMS.items():
        ids: dict[str, str] = {}
        for thing, topic in chance.sample(list(product(THINGS, TOPICS)), FAMILIES):
            names = list(NAMES[kind](chance))
            while any(question.format(name=name) in ids for name in names):
                names = list(NAMES[kind](chance))
            for name in names:
                key = f"{kind}-{len(found.notes):03}"
                value = chance.randint(2, 900)
                found.notes[key] = note.format(name=name, thing=thing, topic=topic, value=value)
                ids[question.format(name=name)] = key
        chosen = chance.sample(sorted(ids), QUESTIONS)
        found.right[kind] = {each: ids[each] for each in chosen}
    return found


async def measure(model: str, seed: int) -> list[str]:
    """Return a row of a Markdown table for each way to search."""
    found, rows = made(seed), []
    with tempfile.TemporaryDirectory() as folder:
        async with library.open(folder) as corral:
            await corral.register("notes", model)
            documents = [
                RAGDocument(document_id=key, content=text) for key, text in found.notes.items()
            ]
            await corral.insert("notes", documents)
            for way, options in WAYS.items():
                shares = []
                for questions in found.right.values():
                    first = 0
                    for question, right in questions.items():
                        answer = await corral.query(question, "notes", k=1, **options)
                        first += answer.hits[0].chunk.document_id == right
                    shares.append(first / len(questions))
                cells = " | ".join(f"{share:.2f}" for share in shares)
                rows.append(f"| {way} | {cells} | {sum(shares) / len(shares):.3f} |")
    return rows


@click.command()
@click.option("--embedder", "model", default="multilingual-e5-small")
@click.option("--seed", default=0)
def main(model: str, seed: int) -> None:
    """Print the share of questions with the right note first, by kind."""
    click.echo(f"| way | {' | '.join(FORMS)} | mean |")
    click.echo(f"|---|{'---|' * (len(FORMS) + 1)}")
    click.echo("\n".join(asyncio.run(measure(model, seed))))


if __name__ == "__main__":
    main()
