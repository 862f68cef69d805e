"""Whether contexts gain if a further chunk of one document, or section, must be better than others.

    python -m lab.diversity data/hotpotqa-100 data/xquad-en

Documents are split into small chunks, and a context has six of the 24 best. A way to choose them
lowers a score, scaled to [0, 1] over the candidates, by a share for each chunk of the same document
that was chosen before (`document`), and of the same section (`section`); `cap` takes at most that
many of a document. Only what was retrieved decides: a score far ahead stays ahead.

The made set has handbooks of twelve sites. A broad question is about all of them, so each handbook
holds a part of the answer; a narrow one is about one site, whose one or three paragraphs are the
answer; a question about all topics of a site has a part of its answer in each section.
Of judged sets, it measures the share of relevant documents in the context, and of questions with an
answer in it where the set has answers.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from corral.api.hits import Hit
from corral.api.rag import RAGDocument
from corral.bench.data.readers import read_beir
from corral.bench.quality.statistics import bootstrap
from corral.providers import library
from corral.providers.rag.selection import ContextHit, select, spread

K, CANDIDATES, CHUNK_SIZE, BATCH = 6, 24, 64, 200
SITES = (
    "Alder", "Birch", "Cedar", "Damson", "Elm", "Fir", "Gorse", "Hazel", "Ivy", "Juniper",
    "Larch", "Maple",
)  # fmt: skip
TOPICS = (
    "visitor access", "waste water", "fire drills", "night lighting", "feed storage",
    "vehicle parking", "noise limits", "first aid",
)  # fmt: skip
PARAGRAPHS = (
    "The rules for {topic} were approved by the board after a long review, and the office keeps "
    "the signed copy under number {value} for the auditors of the district.",
    "For {topic} the crew follows a plan with {value} steps. The plan hangs beside the door, and "
    "everyone who starts to work there reads it on the first morning.",
    "Last year the cost of {topic} came to {value} crowns, a little more than the year before, and "
    "the manager expects that it will stay about the same.",
)
BROAD = ("How do the sites handle {topic}?", "What are the rules, plans and costs of {topic}?")
EVERY = "Which rules did the board of {site} approve?"
NARROW = "How does {site} handle {topic}?"


@dataclass(frozen=True)
class Way:
    """A way to choose the chunks of a context from the candidates."""

    document: float = 0.0
    section: float = 0.0
    cap: int = CANDIDATES

    def __str__(self) -> str:
        cap = f"cap {self.cap}" if self.cap < CANDIDATES else ""
        shares = [f"{name} {getattr(self, name):g}" for name in ("document", "section")]
        return cap or ", ".join(each for each in shares if not each.endswith(" 0")) or "as ranked"

    def chosen(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return the chunks of the context."""
        some = [ContextHit("all", hit) for hit in hits]
        if self.cap < CANDIDATES:
            some = select(some, K, {"all": self.cap}, window=K).hits
        shares = {"document": self.document, "section": self.section}
        return [each.hit for each in spread(some, K, **shares)]


WAYS = (
    Way(), Way(cap=1), Way(cap=2), Way(0.02), Way(0.05), Way(0.1), Way(0.2), Way(section=0.05),
    Way(0.02, 0.02), Way(0.03, 0.03), Way(0.05, 0.05),
)  # fmt: skip


def document_of(hit: Hit) -> str:
    """Return the id of the document of a hit."""
    return hit.chunk.document_id or ""


@dataclass
class Questions:
    """Questions of one kind.

    Attributes:
        texts: By question id.
        relevant: By question id, the ids of relevant documents; counted unless there are `parts`.
        parts: By question id, texts to find in the chunks of relevant documents.
        all_parts: True to count the parts of the context, False for one that is enough.
    """

    texts: dict[str, str] = field(default_factory=dict)
    relevant: dict[str, set[str]] = field(default_factory=dict)
    parts: dict[str, list[str]] = field(default_factory=dict)
    all_parts: bool = False

    def share(self, question: str, chosen: Sequence[Hit]) -> float:
        """Return the share of the answer that a context has, in [0, 1]."""
        relevant = self.relevant[question]
        right = [hit for hit in chosen if document_of(hit) in relevant]
        if question not in self.parts:
            return len({document_of(hit) for hit in right}) / min(len(relevant), K)
        parts = self.parts[question]
        there = sum(any(part in hit.chunk.content for hit in right) for part in parts)
        return there / min(len(parts), K) if self.all_parts else float(there > 0)


def made(seed: int) -> tuple[dict[str, str], dict[str, Questions]]:
    """Return the handbooks by id, and the broad and the narrow questions."""
    chance = random.Random(seed)
    values = iter(chance.sample(range(10_000, 99_999), len(SITES) * len(TOPICS) * 3))
    documents: dict[str, str] = {}
    broad, narrow, sections_ = Questions(), Questions(all_parts=True), Questions(all_parts=True)
    for site in SITES:
        sections = []
        for topic in TOPICS:
            numbers = [str(next(values)) for _ in PARAGRAPHS]
            # In some handbooks a topic takes three paragraphs, in others one.
            count = chance.choice((1, 3, 3))
            texts = [
                form.format(topic=topic, value=number)
                for form, number in zip(PARAGRAPHS[:count], numbers, strict=False)
            ]
            sections.append(f"## {topic.capitalize()}\n\n" + "\n\n".join(texts))
            name = NARROW.format(site=site, topic=topic)
            narrow.texts[name] = name
            narrow.relevant[name], narrow.parts[name] = {site}, numbers[:count]
            sections_.parts.setdefault(EVERY.format(site=site), []).append(numbers[0])
        sections_.texts[EVERY.format(site=site)] = EVERY.format(site=site)
        sections_.relevant[EVERY.format(site=site)] = {site}
        documents[site] = f"# Handbook of {site}\n\n" + "\n\n".join(sections)
    for topic in TOPICS:
        for form in BROAD:
            name = form.format(topic=topic)
            broad.texts[name], broad.relevant[name] = name, set(SITES)
    return documents, {"broad": broad, "narrow": narrow, "all topics": sections_}


def judged(folder: Path, most: int) -> tuple[dict[str, str], dict[str, Questions]]:
    """Return the documents of a judged set, and its questions, `most` at most."""
    there = read_beir(folder)
    chosen = random.Random(0).sample(sorted(there.queries), min(most, len(there.queries)))
    answers: Mapping[str, list[str]] = {}
    if (folder / "answers.jsonl").exists():
        lines = (folder / "answers.jsonl").read_text("utf-8").splitlines()
        answers = {row["_id"]: row["answers"] for row in map(json.loads, lines)}
    questions = Questions()
    for name in chosen:
        questions.texts[name] = there.queries[name]
        questions.relevant[name] = {key for key, rel in there.qrels[name].items() if rel > 0}
        if name in answers:
            questions.parts[name] = answers[name]
    return dict(there.documents), {there.name: questions}


async def compare(
    documents: Mapping[str, str], kinds: Mapping[str, Questions], model: str, mime_type: str
) -> None:
    """Print the rows of a Markdown table: by kind of question and way, the share with interval."""
    filled = [
        RAGDocument(document_id=name, content=text, mime_type=mime_type)
        for name, text in documents.items()
        if text.strip()
    ]
    with tempfile.TemporaryDirectory() as folder:
        async with library.open(folder) as corral:
            sizes = {"chunk_size_in_tokens": CHUNK_SIZE, "overlap_in_tokens": 0}
            await corral.register("all", model, chunking=sizes)
            for start in range(0, len(filled), BATCH):
                await corral.insert("all", filled[start : start + BATCH])
            for kind, questions in kinds.items():
                shares: dict[Way, list[float]] = {way: [] for way in WAYS}
                for name, text in questions.texts.items():
                    hits = (await corral.query(text, "all", k=CANDIDATES)).hits
                    for way in WAYS:
                        shares[way].append(questions.share(name, way.chosen(hits)))
                for way, each in shares.items():
                    mean, gains = bootstrap(each), zip(each, shares[WAYS[0]], strict=True)
                    gain = bootstrap([one - other for one, other in gains])
                    click.echo(
                        f"| {kind} | {way} | {mean.mean:.3f} | {gain.mean:+.3f} "
                        f"[{gain.low:+.3f}, {gain.high:+.3f}] |"
                    )


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--embedder", "model", default="multilingual-e5-small")
@click.option("--seed", default=0)
@click.option("--most", default=200, help="Questions of a judged set.")
def main(folders: Sequence[Path], model: str, seed: int, most: int) -> None:
    """Print the share of the answer in the context, and the gain on the ranking as it is."""
    click.echo("| questions | way | share | gain |\n|---|---|---|---|")
    sets = [
        (*made(seed), "text/markdown"),
        *((*judged(each, most), "text/plain") for each in folders),
    ]
    for documents, kinds, mime_type in sets:
        asyncio.run(compare(documents, kinds, model, mime_type))


if __name__ == "__main__":
    main()
