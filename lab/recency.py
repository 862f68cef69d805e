"""What `recency` does: the newest version comes first, and an old note that is right stays first.

    python -m lab.recency

The set is made here. Each of 60 settings of 12 products was changed in up to six years, and each
change is a note with its date, in words of its own. 60 other notes, all of them newer, are about
other settings of the same products. A question asks for a setting as it is now, so that the newest
note about it is right; a second question is about a note that has only one version, an old one.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import product
from typing import Any

import click

from corral.api.rag import RAGDocument
from corral.providers import library

WEIGHTS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
HALF_LIVES = (90.0, 365.0, 1500.0)
WAYS: dict[str, dict[str, Any]] = {
    "hybrid": {}, "vector": {"mode": "vector"}, "keyword": {"mode": "keyword"},
    "hybrid, rrf": {"ranker": {"type": "rrf"}},
}  # fmt: skip
PRODUCTS = (
    "barn door", "feed mixer", "hay press", "milk cooler", "fence charger", "egg sorter",
    "water trough", "wool shears", "grain silo", "cattle scale", "seed drill", "bee smoker",
)  # fmt: skip
SETTINGS = (
    "maximum load", "opening time", "alarm threshold", "maintenance interval", "warranty period",
    "default language", "cleaning temperature", "motor speed", "delivery fee", "battery type",
)  # fmt: skip
FORMS = (
    "From now on the {setting} of the {product} is {value}.",
    "We have set the {setting} of the {product} to {value} after a review with the team.",
    "{product}: {setting} changed, the new value is {value}. Please update your notes.",
    "Release note. The {product} now ships with a {setting} of {value}.",
)
EXTRA = (
    "Ask the workshop if anything is unclear.", "The change applies to all farms in the county.",
    "Nothing else changes.", "Spare parts are listed in the catalogue.",
)  # fmt: skip


@dataclass
class Made:
    """The notes by id, with their dates, and the right one of each question."""

    texts: dict[str, str] = field(default_factory=dict)
    dates: dict[str, date] = field(default_factory=dict)
    current: dict[str, str] = field(default_factory=dict)
    old: dict[str, str] = field(default_factory=dict)

    def note(self, key: str, day: date, text: str) -> str:
        """Add a note and return its id."""
        self.texts[key], self.dates[key] = text, day
        return key


def made(seed: int, today: date) -> Made:
    """Return the set; equal for equal seeds, but for the dates."""
    chance, notes = random.Random(seed), Made()
    pairs = list(product(PRODUCTS, SETTINGS))
    chance.shuffle(pairs)

    def text(thing: str, setting: str) -> str:
        form = chance.choice(FORMS)
        said = form.format(product=thing, setting=setting, value=chance.randint(2, 900))
        return f"{said} {chance.choice(EXTRA)}"

    for number, (thing, setting) in enumerate(pairs):
        if number < 60:
            years = sorted(chance.sample(range(7), chance.randint(2, 6)), reverse=True)
            for year in years:
                day = today - timedelta(days=365 * year + chance.randint(30, 330))
                newest = notes.note(f"n{number:03}-{year}", day, text(thing, setting))
            notes.current[f"What is the {setting} of the {thing} now?"] = newest
        elif number < 90:
            day = today - timedelta(days=365 * chance.randint(4, 9))
            only = notes.note(f"o{number:03}", day, text(thing, setting))
            notes.old[f"What is the {setting} of the {thing}?"] = only
        else:
            for copy in range(2):
                day = today - timedelta(days=chance.randint(0, 25))
                notes.note(f"x{number:03}-{copy}", day, text(thing, setting))
    return notes


async def measure(model: str, seed: int) -> list[str]:
    """Return a row of a Markdown table for each way, half-life and weight."""
    notes = made(seed, date.today())
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        async with library.open(folder) as corral:
            await corral.register("notes", model)
            documents = [
                RAGDocument(document_id=key, content=text, metadata={"date": str(notes.dates[key])})
                for key, text in notes.texts.items()
            ]
            await corral.insert("notes", documents)
            for way, half_life, weight in product(WAYS, HALF_LIVES, WEIGHTS):
                recency = {"field": "date", "half_life": half_life, "weight": weight}
                shares = []
                for questions in (notes.current, notes.old):
                    first = 0
                    for question, right in questions.items():
                        found = await corral.query(
                            question, "notes", k=1, recency=recency, **WAYS[way]
                        )
                        first += found.hits[0].chunk.document_id == right
                    shares.append(f"{first / len(questions):.3f}")
                rows.append(f"| {way} | {half_life:g} | {weight:g} | {' | '.join(shares)} |")
    return rows


@click.command()
@click.option("--embedder", "model", default="multilingual-e5-small")
@click.option("--seed", default=0)
def main(model: str, seed: int) -> None:
    """Print the share of questions with the right note first."""
    click.echo("| way | half-life, days | weight | newest version first | old note first |")
    click.echo("|---|---|---|---|---|")
    click.echo("\n".join(asyncio.run(measure(model, seed))))


if __name__ == "__main__":
    main()
