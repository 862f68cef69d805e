"""Do all backends answer alike? The same vectors and texts on each, held against brute force.

    corral bench fidelity --backends all-inline --synthetic 5k

Each backend is filled, asked at k = 1, 10 and 100 in every mode, with and without filters, asked
for its own stored embeddings, and asked again after some of the best chunks were deleted. What
misses neighbors is approximate; what returns wrong ids, scores or chunks has a defect in its
mapping (`checks`). Answers are kept, so a run that is resumed asks only the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from corral.api.errors import InvalidRequest
from corral.api.rankers import DEFAULT_RANKER
from corral.api.vector_dbs import SearchMode
from corral.bench.backends import Backend
from corral.bench.data.corpus import Corpus, share_limit, without
from corral.bench.data.datasets import read_sets
from corral.bench.data.sources import Source, corpus_of, parse_size, selectivities, sources
from corral.bench.fidelity.results import Answers, Round, fidelity_rows
from corral.bench.report.report import Report
from corral.bench.report.rows import EXACT
from corral.bench.run import (
    Advance,
    Finished,
    Plan,
    Run,
    Step,
    backend_key,
    fill,
    key_of,
    planned,
)
from corral.bench.system import CorralSystem, Search, System

KS = (1, 10, 100)
"""Hits asked for; with a filter, and after a deletion, `AFTER_K` only."""
QUESTIONS = 100
"""How many are asked, at most."""
OWN = 50
"""Stored embeddings that are asked for."""
DELETED = 20
"""Questions whose best chunk is deleted."""
AFTER_K = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityPlan(Plan):
    """A whole run: backends are compared with brute force, and with each other.

    Attributes:
        sources: What is stored on each backend.
        selectivities: Shares of the chunks that pass a filter; None is no filter.
    """

    sources: tuple[Source, ...]
    selectivities: tuple[float | None, ...]

    def key(self, source: Source, backend: Backend) -> str:
        """Return a hash of everything that decides a backend's answers, versions included."""
        modes = [mode.value for mode in self.modes]
        asked = (modes, self.selectivities, KS, QUESTIONS, self.seed, self.model)
        return f"answers-{key_of(source.key(), backend_key(backend), asked)}"

    def work(self) -> int:
        """Return how many questions and chunks all backends have to deal with."""
        rounds = len(self.modes) * (len(KS) + len(self.selectivities) - 1)
        each = sum(source.count + rounds * QUESTIONS for source in self.sources)
        return each * len(self.backends)

    def check(self) -> None:
        """Refuse a plan that cannot work."""
        if not self.sources:
            raise InvalidRequest("Give --data or --synthetic.", field="data")
        Plan.check(self)


def make_fidelity_plan(
    *,
    data: Sequence[str] = (),
    synthetic: Sequence[str] = (),
    filters: Sequence[str] = (),
    max_documents: int | None = None,
    seed: int = 0,
    **options: Any,
) -> FidelityPlan:
    """Return a checked plan; further `options` as `planned` takes them.

    Args:
        data: Judged sets, as `read_sets` takes them.
        synthetic: Sizes of seeded data, such as 5k; one of both is needed.
        filters: Shares of the chunks that pass, such as 1%.

    Raises:
        InvalidRequest, ConfigError: Something cannot work; the message says what.
        Conflict: `out` holds another run's report, and `resume` is not set.
    """
    seeded = sources((), [parse_size(size) for size in synthetic], seed, max_documents)
    judged = sources(read_sets(data), (), seed, max_documents) if data else []
    return planned(
        FidelityPlan,
        sources=(*seeded, *judged),
        selectivities=selectivities(filters),
        seed=seed,
        **options,
    )


@runtime_checkable
class SupportsDelete(Protocol):
    """A foreign system that can delete."""

    async def delete(self, chunk_ids: list[str]) -> None:
        """Delete chunks."""


async def run_fidelity(
    plan: FidelityPlan, advance: Advance = lambda backends, work: None
) -> Report:
    """Measure everything that is planned and return the report, which `plan.out` then holds.

    Raises:
        InvalidRequest: The budget ended before anything was measured.
        NotFound, MissingDependency, ProviderError: Judged data could not be embedded.
    """
    run = Run(plan, advance, baseline=EXACT, embedding_model=plan.model)
    finished = Finished(plan, Answers)
    for source in plan.sources:
        corpus = await corpus_of(source, plan.config, plan.home, plan.model, QUESTIONS)
        run.add(corpus.row())
        found: list[Answers] = []
        for backend in plan.backends:
            key = plan.key(source, backend)
            answers = finished.find(key)
            if answers is None:
                work = partial(gather, corpus=corpus, plan=plan, step=run.step)
                answers = await run.on(backend, corpus.collection, work)
                if answers is not None:
                    contract = backend.entry is not None or backend.name == EXACT
                    answers = answers.model_copy(update={"contract": contract})
                    finished.keep(key, answers)
            if answers is not None:
                found.append(answers)
            advance(1, 0)
        run.add(*fidelity_rows(corpus, found))
        run.save()
    return run.finish(run.report.fidelity)


async def gather(
    system: System,
    corpus: Corpus,
    plan: FidelityPlan,
    step: Step = lambda stage, work: None,
) -> Answers:
    """Fill a prepared system and return its answers to everything.

    Args:
        system: Empty.
        corpus: What it gets.
        plan: What it is asked.
        step: Called before each step with its stage and its size; may raise to end it.
    """
    await fill(system, corpus.chunks(), corpus.embeddings, step)
    answers = Answers(system=system.name)
    number = min(QUESTIONS, len(corpus.questions))
    for mode in (mode for mode in plan.modes if mode in system.modes):
        for selectivity in plan.selectivities if system.filters else (None,):
            for k in KS if selectivity is None else (AFTER_K,):
                step("search", number)
                asked = Round(mode=mode.value, selectivity=selectivity, k=k)
                answers.answers.append(await _ask(system, corpus, asked, number))
    if SearchMode.VECTOR in system.modes:
        step("search", OWN)
        answers.own.update(await _ask_own(system, corpus, plan.seed))
    await _delete_and_ask(system, corpus, plan, answers)
    return answers


async def _ask(system: System, corpus: Corpus, asked: Round, number: int) -> Round:
    mode, below = SearchMode(asked.mode), share_limit(asked.selectivity)
    found = []
    for text, row in zip(corpus.questions[:number], corpus.asked, strict=False):
        # One fusion for all: a provider's own default would look like a wrong answer.
        found.append(await system.search(Search(mode, text, row, asked.k, below, DEFAULT_RANKER)))
    return asked.model_copy(update={"found": found})


async def _ask_own(system: System, corpus: Corpus, seed: int) -> dict[str, list[tuple[str, float]]]:
    """Return the answers to stored embeddings, by the chunk id whose embedding it is."""
    found = {}
    for row in sorted(np.random.default_rng(seed).permutation(len(corpus.texts))[:OWN].tolist()):
        asked = Search(SearchMode.VECTOR, corpus.texts[row], corpus.embeddings[row], AFTER_K)
        found[corpus.chunk_ids[row]] = await system.search(asked)
    return found


async def _delete_and_ask(
    system: System, corpus: Corpus, plan: FidelityPlan, answers: Answers
) -> None:
    """Delete chunks that were found first, and ask again; where the system can delete."""
    firsts = [found[0][0] for asked in answers.answers for found in asked.found[:DELETED] if found]
    gone = [one for one in dict.fromkeys(firsts) if one in corpus.rows]
    gone = gone[: max(1, len(corpus.texts) // 10)]
    if isinstance(system, CorralSystem):
        await (await system.index()).delete_chunks(gone)
    elif isinstance(system, SupportsDelete):
        await system.delete(gone)
    else:
        return
    answers.deleted.extend(gone)
    left = without(corpus, [corpus.rows[one] for one in gone])
    number = min(QUESTIONS, len(corpus.questions))
    for mode in (mode for mode in plan.modes if mode in system.modes):
        asked = Round(mode=mode.value, selectivity=None, k=AFTER_K, after_deletion=True)
        answers.answers.append(await _ask(system, left, asked, number))
