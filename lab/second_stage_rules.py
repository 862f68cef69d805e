"""Whether two re-ranking models are better than one, and whether unsure questions are enough.

    python -m lab.second_stage_rules data/cacm data/cisi data/hotpotqa-100 data/medline

Each model reads the 20 best hits of hybrid search once; all tables come from these scores, blended
with weight 0.6. Two models: the sum of their scores, each scaled to [0, 1]. Unsure: only the
questions with the lowest values of a measure are re-ranked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np

from corral.api.hits import Hit
from corral.bench.data.judged import JudgedSet
from corral.bench.data.readers import read_beir
from corral.bench.quality.metrics import NDCG, measure
from corral.providers.rag.tool import RagTool
from corral.providers.rerank.rescoring import blended
from lab.second_stage import K, stored

CANDIDATES, WEIGHT = 20, 0.6
LATE, CROSS = "answerai-colbert-small-v1", "ms-marco-MiniLM-L-12-v2"
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Answered:
    """A question: its hits, the hits as each model scores them, and the confidence."""

    first: Sequence[Hit]
    read: Mapping[str, Sequence[Hit]]
    confidence: float

    def ranked(self, models: Sequence[str]) -> list[str]:
        """Return the ids of the hits, re-ranked by these models; as they are without one."""
        if not models or not self.first:
            return [hit.chunk.chunk_id for hit in self.first[:K]]
        sums: dict[str, float] = {}
        for model in models:
            scaled = blended(self.read[model], self.first, 1.0)
            for hit in scaled:
                sums[hit.chunk.chunk_id] = sums.get(hit.chunk.chunk_id, 0.0) + hit.score
        hits = [replace(hit, score=sums[hit.chunk.chunk_id]) for hit in self.first]
        return [hit.chunk.chunk_id for hit in blended(hits, self.first, WEIGHT)[:K]]

    @property
    def scores(self) -> list[float]:
        """The scores of the first stage."""
        return [hit.score for hit in self.first]


MEASURES: dict[str, Callable[[Answered], float]] = {
    "distance of the two best scores": lambda each: each.scores[0] - each.scores[1],
    "distance of the best score from the next nine": lambda each: (
        each.scores[0] - float(np.mean(each.scores[1:10]))
    ),
    "best fused score": lambda each: each.scores[0],
    "confidence": lambda each: each.confidence,
}


async def answered(
    judged: JudgedSet, model: str, models: Sequence[str], home: Path
) -> dict[str, Answered]:
    """Return the questions of a set with their hits."""
    questions: dict[str, Answered] = {}
    async with stored(judged, model, home) as (stack, name):
        retrieval = RagTool(stack).retrieval
        for key, text in judged.queries.items():
            found = await retrieval.search(name, text, k=CANDIDATES)
            read = {
                each: await (await stack.reranker(each)).rerank(text, found.hits, len(found.hits))
                for each in models
            }
            questions[key] = Answered(found.hits, read, found.confidence or 0.0)
    return questions


def ndcg(judged: JudgedSet, ranked: Mapping[str, list[str]]) -> dict[str, float]:
    """Return nDCG@10 by question."""
    return measure(judged.qrels, ranked)[NDCG]


def models_row(judged: JudgedSet, questions: Mapping[str, Answered], ways: Sequence[str]) -> str:
    """Return the row of a set: nDCG@10 without re-ranking, by each model, and by all."""
    several = [list(ways)] if len(ways) > 1 else []
    choices = [[], *([each] for each in ways), *several]
    means = [
        np.mean(list(ndcg(judged, {n: q.ranked(each) for n, q in questions.items()}).values()))
        for each in choices
    ]
    return f"| {judged.name} | {' | '.join(f'{mean:.4f}' for mean in means)} |"


def unsure_means(
    judged: JudgedSet, questions: Mapping[str, Answered], model: str
) -> dict[str, list[float]]:
    """Return by measure the means of nDCG@10 if these shares of the questions are re-ranked."""
    before = ndcg(judged, {name: each.ranked([]) for name, each in questions.items()})
    after = ndcg(judged, {name: each.ranked([model]) for name, each in questions.items()})
    means = {}
    for name, value in MEASURES.items():
        order = sorted(before, key=lambda key: value(questions[key]))
        means[name] = [
            float(np.mean([after[key] if place < share * len(order) else before[key]
                           for place, key in enumerate(order)]))
            for share in SHARES
        ]  # fmt: skip
    return means


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--embedder", "model", default="multilingual-e5-small")
@click.option("--reranker", "models", multiple=True, default=(LATE, CROSS))
@click.option("--home", type=click.Path(path_type=Path), default=Path("corral-bench", "lab"))
def main(folders: Sequence[Path], model: str, models: Sequence[str], home: Path) -> None:
    """Print nDCG@10 by model and by both, and for the first model by the share re-ranked."""
    names = [*models, *(["both"] if len(models) > 1 else [])]
    click.echo(f"| set | none | {' | '.join(names)} |\n|---|---|{'---|' * len(names)}")
    unsure: dict[str, list[list[float]]] = {}
    for folder in folders:
        judged = read_beir(folder)
        questions = asyncio.run(answered(judged, model, models, home))
        click.echo(models_row(judged, questions, models))
        for name, means in unsure_means(judged, questions, models[0]).items():
            unsure.setdefault(name, []).append(means)
    click.echo(f"\n| unsure by | {' | '.join(f'{share:.0%}' for share in SHARES)} |")
    click.echo(f"|---|{'---|' * len(SHARES)}")
    for name, rows in unsure.items():
        cells = " | ".join(f"{mean:.4f}" for mean in np.mean(rows, axis=0))
        click.echo(f"| {name} | {cells} |")


if __name__ == "__main__":
    main()
