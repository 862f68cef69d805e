"""Measures on judged sets how well confidence separates answered questions from others.

Each judged question is asked as it is, and with a filter that hides the documents that answer it.
Questions of the other sets, which nothing answers, are asked too.

    python -m lab.confidence_sets --data xquad-de --data medline --modes hybrid --article 5

It prints a Markdown table of the area under the ROC curve, with 95 % intervals, of each set's
questions against those of the other sets, and against the same questions with the texts that answer
them hidden.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from corral.api.vector_dbs import SearchMode
from corral.bench.data.datasets import read_sets
from corral.bench.options import (
    EMBEDDER,
    JUDGED_SETS,
    MODES,
    MOST_QUESTIONS,
    POSITIVE,
    SEED,
    together,
)
from corral.bench.report.rows import Estimate
from corral.bench.tuning.confidence import asked, of_questions
from corral.bench.tuning.run import TunePlan, opened
from corral.providers.base.config import data_home, load_config
from corral.providers.rag.search import Retrieval

RESAMPLES = 500
"""Bootstrap samples of an area; fewer than for a mean, because each takes longer."""


@dataclass(frozen=True, slots=True)
class QuestionConfidences:
    """Confidences of the questions of one set in one mode; `unrelated` may be empty."""

    data_set: str
    mode: str
    answered: list[float]
    removed: list[float]
    unrelated: list[float]


async def tell(
    plan: TunePlan, data: Sequence[str], modes: Sequence[SearchMode], most: int
) -> list[QuestionConfidences]:
    """Ask the questions of judged sets, each set in a separate vector DB.

    Args:
        plan: Options for storing the sets.
        data: The sets, as for `read_sets`.
        modes: The search modes.
        most: Maximum questions of a set, and of the other sets; drawn with the plan's seed.

    Raises:
        InvalidRequest: A set is malformed.
        CorralError: The embedder or a backend failed.
    """
    texts = {judged.name: list(judged.queries.values()) for judged in read_sets(list(data))}
    found: list[QuestionConfidences] = []
    for each in data:
        async with opened(replace(plan, data=each)) as (stack, vector_db, questions, _):
            name = vector_db.identifier
            chosen = _drawn(list(questions.texts), most, plan.seed)
            others = [text for other, some in texts.items() if _apart(name, other) for text in some]
            for mode in modes:
                answered, removed = await of_questions(stack, name, questions, chosen, mode)
                unrelated = [
                    await asked(Retrieval(stack), name, text, mode)
                    for text in _drawn(others, most, plan.seed)
                ]
                found.append(QuestionConfidences(name, mode, answered, removed, unrelated))
    return found


def auroc(higher: Sequence[float], lower: Sequence[float], seed: int = 0) -> Estimate:
    """Return the probability that a first value exceeds a second one, ties counting half.

    The interval is a percentile bootstrap over the questions of both. Hanley and McNeil, "The
    Meaning and Use of the Area under a ROC Curve", Radiology 143(1), 1982.
    """
    rng = np.random.default_rng(seed)
    above, below = np.array(higher), np.array(lower)
    samples = [
        _area(rng.choice(above, len(above)), rng.choice(below, len(below)))
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(samples, [0.025, 0.975])
    return Estimate(mean=_area(above, below), low=float(low), high=float(high))


def _area(above: NDArray[Any], below: NDArray[Any]) -> float:
    ordered = np.sort(below)
    lower, not_higher = (np.searchsorted(ordered, above, side) for side in ("left", "right"))
    return float((lower + not_higher).mean() / (2 * len(below)))


def table(told: Sequence[QuestionConfidences], least: float, seed: int = 0) -> list[str]:
    """Return a Markdown table by set and mode: AUROC, and the effect of a minimum confidence."""
    head = ["set", "mode", "AUROC unrelated", "AUROC removed"]
    head += [f"refused at {least:g}: answered", "removed", "unrelated"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for one in told:
        areas = [_shown(one.answered, some, seed) for some in (one.unrelated, one.removed)]
        shares = (one.answered, one.removed, one.unrelated)
        refused = [f"{np.mean(np.array(some) < least):.0%}" if some else "" for some in shares]
        lines.append(f"| {' | '.join([one.data_set, one.mode, *areas, *refused])} |")
    return lines


def _shown(higher: Sequence[float], lower: Sequence[float], seed: int) -> str:
    if not lower:
        return ""
    area = auroc(higher, lower, seed)
    return f"{area.mean:.3f} ({area.low:.3f}-{area.high:.3f})"


def _drawn(values: Sequence[str], most: int, seed: int) -> list[str]:
    found = list(dict.fromkeys(values))
    random.Random(seed).shuffle(found)
    return found[:most]


def _apart(one: str, other: str) -> bool:
    """Return False for two sets that are translations of one, such as xquad-de and xquad-zh."""
    return one.partition("-")[0] != other.partition("-")[0]


@click.command(context_settings={"show_default": True})
@together(JUDGED_SETS, MODES, EMBEDDER, MOST_QUESTIONS, SEED)
@click.option("--backend", default="sqlite", help="Backend that stores the sets.")
@click.option(
    "--article", type=POSITIVE, default=1, help="Consecutive texts that are hidden together."
)
@click.option(
    "--min-confidence",
    "least",
    type=click.FloatRange(0, 1),
    default=0.5,
    help="Threshold for which to report the share of refused questions.",
)
def main(
    data: Sequence[str], modes: Sequence[str], most: int, least: float, seed: int, **options: Any
) -> None:
    """Measure how well confidence detects unanswerable questions."""
    home = data_home()
    plan = TunePlan(load_config(home=home), home, data=data[0], seed=seed, **options)
    chosen = [SearchMode.parse(name) for name in modes]
    for line in table(asyncio.run(tell(plan, data, chosen, most)), least, seed):
        print(line)


if __name__ == "__main__":
    main()
