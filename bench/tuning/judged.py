"""The tuning of a vector DB of a running server, with its stored judgments."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.hits import Hit
from corral.api.reranker import Reranker
from corral.api.vector_dbs import VectorDB
from corral.bench.report.rows import Estimate, TuneSection
from corral.bench.tuning.findings import Trial, TuningReport
from corral.bench.tuning.questions import Questions, checked, known
from corral.bench.tuning.run import MOST_ASKED, complete_settings, legs_of, with_confidence
from corral.bench.tuning.tune import trials_of, tune
from corral.providers.stack.judged_sets import JudgedQuestion
from corral.providers.stack.stack import Stack
from corral.providers.stack.tunings import Progress

MAX_QUESTIONS = 300
"""Questions of a tuning; all hits of their legs are in memory."""
SUGGESTED_NOTE = (
    "{count} of the questions were suggested, not asked by a person. Made from the chunk that they "
    "look for, they favor keyword search."
)


def questions_of(judged: Sequence[JudgedQuestion], name: str, seed: int) -> Questions:
    """Return the questions of a set that have an answer, a seeded sample of `MAX_QUESTIONS`.

    Raises:
        InvalidRequest: There are fewer than 10.
    """
    answered = [each for each in judged if each.relevant]
    if len(answered) > MAX_QUESTIONS:
        answered = random.Random(seed).sample(answered, MAX_QUESTIONS)
    suggested = sum(each.suggested for each in answered)
    questions = Questions(
        {each.key: each.text for each in answered},
        {each.key: each.relevant for each in answered},
        note=SUGGESTED_NOTE.format(count=suggested) if suggested else "",
    )
    return checked(questions, name)


async def tune_judged(
    stack: Stack, vector_db_id: str, questions: Questions, seed: int, progress: Progress
) -> Mapping[str, Any]:
    """Tune, and return a `TuningReport` as JSON; the server answers other requests in the meantime.

    Raises:
        NotFound: The vector DB does not exist.
        InvalidRequest: Too few questions have an answer among the stored chunks.
        CorralError: The embedder or the backend failed.
    """
    index = await stack.index(vector_db_id)
    usable = await known(index, questions)
    count = len(usable.texts)
    progress.total = 2 * count + trials_of(len(stack.rerank_models()))
    answers = await legs_of(stack, index.vector_db, usable, lambda number, _: progress.advance())
    loop = asyncio.get_running_loop()
    answers.rerankers = {name: _OnLoop(each, loop) for name, each in answers.rerankers.items()}
    ended = threading.Event()

    def advance() -> None:
        if ended.is_set():
            raise asyncio.CancelledError
        progress.advance()

    try:
        # Minutes of arithmetic, so not on the server's event loop.
        section = await asyncio.to_thread(asyncio.run, tune(answers, usable, seed, advance))
    finally:
        ended.set()
    section = await with_confidence(section, stack, usable)
    progress.advance(min(count, MOST_ASKED))
    return report_of(section, index.vector_db).model_dump(mode="json")


def report_of(section: TuneSection, vector_db: VectorDB) -> TuningReport:
    """Return the report of a tuning of a vector DB; it recommends nothing if the search stays."""
    stays = section.chosen == section.registered
    trials = sorted(section.trials, key=lambda trial: -trial.train.mean)
    return TuningReport(
        chosen=section.chosen,
        registered=section.registered,
        statement=section.statement,
        notes=list(section.notes),
        n_train=section.n_train,
        n_held_out=section.n_held_out,
        recommended={} if stays else complete_settings(section, vector_db),
        trials=[
            Trial(
                label=each.label,
                settings=each.settings,
                train=_interval(each.train),
                held_out=None if each.held_out is None else _interval(each.held_out),
                complete_at_5=each.complete_at_5,
            )
            for each in trials
        ],
    )


def _interval(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.mean, estimate.low, estimate.high


class _OnLoop(Reranker):
    """A re-ranker of another event loop, for which its models batch their calls."""

    def __init__(self, reranker: Reranker, loop: asyncio.AbstractEventLoop) -> None:
        self._reranker, self._loop = reranker, loop

    async def rerank(
        self,
        query: str,
        hits: Sequence[Hit],
        k: int,
        *,
        embedding: NDArray[np.float32] | None = None,
        tenant: str = "",
    ) -> list[Hit]:
        """Return the hits of the other re-ranker."""
        call = self._reranker.rerank(query, hits, k, embedding=embedding, tenant=tenant)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))
