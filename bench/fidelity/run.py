"""Do all backends answer alike? The same vectors and texts on each, held against brute force.

    corral bench fidelity --backends all-inline --synthetic 5k

Each backend is filled, asked at k = 1, 10 and 100 in every mode, with and without filters, asked
for its own stored embeddings, and asked again after some of the best chunks were deleted. What
misses neighbors is approximate; what returns wrong ids, scores or chunks has a defect in its
mapping (`fidelity_checks`). Answers are kept, so a run that is resumed asks only the others.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from corral.api.errors import InvalidRequest
from corral.api.fusion import DEFAULT_RANKER
from corral.api.vector_dbs import SearchMode
from corral.bench.backends import Backend, System, prepared
from corral.bench.corral_system import CorralSystem
from corral.bench.fidelity.checks import sample
from corral.bench.fidelity.plan import FidelityPlan
from corral.bench.fidelity.results import EXACT, fidelity_rows
from corral.bench.fidelity_answers import Answers, Asked, Kept
from corral.bench.quality.run import said
from corral.bench.report.environment import begin_report
from corral.bench.report.report import Report, write_report
from corral.bench.report.rows import Failure
from corral.bench.speed.load_data import Material, share_filter, without
from corral.bench.speed.load_plan import material_of

Advance = Callable[[int, int], None]
"""Called with backends that are finished, and with questions and chunks that were dealt with."""

BATCH = 500
OWN = 50
"""Stored embeddings that are asked for."""
DELETED = 20
"""Questions whose best chunk is deleted."""
AFTER_K = 10


@runtime_checkable
class Forgetful(Protocol):
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
    report = begin_report(plan.command, plan.seed, plan.requires()).model_copy(
        update={"baseline": EXACT, "embedding_model": plan.model}
    )
    ends = time.monotonic() + (plan.max_seconds or float("inf"))
    for source in plan.sources:
        material = await material_of(source, plan.config, plan.home, plan.model, plan.questions)
        found: list[Answers] = []
        failures: list[Failure] = []
        for backend in plan.backends:
            kept = Kept(plan.out, plan.key(source, backend), resume=plan.resume)
            answers = kept.find()
            if answers is None:
                outcome = await _answers_of(backend, material, plan, ends, advance)
                if isinstance(outcome, Failure):
                    failures.append(outcome)
                else:
                    kept.keep(outcome)
                    answers = outcome
            if answers is not None:
                found.append(answers)
            advance(1, 0)
        report = report.with_rows(material.row(), *fidelity_rows(material, found), *failures)
        write_report(report, plan.out)
    if plan.max_seconds is not None and not report.fidelity:
        raise InvalidRequest(
            f"--max-seconds {plan.max_seconds:g} was too small for one measurement.",
            field="max_seconds",
        )
    report = report.done()
    write_report(report, plan.out)
    return report


async def _answers_of(
    backend: Backend, material: Material, plan: FidelityPlan, ends: float, advance: Advance
) -> Answers | Failure:
    """Return what a backend answered, or why it did not."""
    stage = "start"

    def step(now: str, work: int) -> None:
        nonlocal stage
        stage = now
        if time.monotonic() > ends:
            raise TimeoutError
        advance(0, work)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            async with prepared(backend, Path(folder), material.collection) as system:
                answers = await gather(system, material, plan, step)
        except TimeoutError as error:
            out = time.monotonic() > ends
            message = "No time was left for all of it." if out else said(error)
            return _failure(backend, "budget" if out else stage, message, material)
        except Exception as error:  # noqa: BLE001 - whatever a backend raises is its own row
            return _failure(backend, stage, said(error), material)
    contract = backend.entry is not None or backend.name == EXACT
    return answers.model_copy(update={"contract": contract})


async def gather(
    system: System,
    material: Material,
    plan: FidelityPlan,
    step: Callable[[str, int], None] = lambda stage, work: None,
) -> Answers:
    """Fill a prepared system and return its answers to everything.

    Args:
        system: Empty.
        material: What it gets.
        plan: What it is asked.
        step: Called before each step with its stage and its size; may raise to end it.
    """
    for start in range(0, len(material.texts), BATCH):
        step("ingest", BATCH)
        rows = material.embeddings[start : start + BATCH]
        await system.add(material.chunks(start, start + BATCH), rows)
    await system.build()
    answers = Answers(system=system.name, own_fusion=system.own_fusion)
    number = min(plan.questions, len(material.questions))
    for mode in (mode for mode in plan.modes if mode in system.modes):
        for selectivity in plan.selectivities if system.filters else (None,):
            for k in plan.ks if selectivity is None else (AFTER_K,):
                step("search", number)
                asked = Asked(mode=mode.value, selectivity=selectivity, k=k)
                answers.answers.append(await _ask(system, material, asked, number))
    if SearchMode.VECTOR in system.modes:
        step("search", OWN)
        answers.own.update(await _ask_own(system, material, plan.seed))
    await _delete_and_ask(system, material, plan, answers)
    return answers


async def _ask(system: System, material: Material, asked: Asked, number: int) -> Asked:
    filters = share_filter(asked.selectivity)
    found = []
    for text, row in zip(material.questions[:number], material.asked, strict=False):
        mode = SearchMode(asked.mode)
        # One fusion for all: a provider's own default would look like a wrong answer.
        found.append(
            await system.search(mode, text, row, asked.k, ranker=DEFAULT_RANKER, filters=filters)
        )
    return asked.model_copy(update={"found": found})


async def _ask_own(
    system: System, material: Material, seed: int
) -> dict[str, list[tuple[str, float]]]:
    """Return the answers to stored embeddings, by the chunk id whose embedding it is."""
    found = {}
    for row in sample(len(material.texts), OWN, seed):
        embedding = material.embeddings[row]
        found[material.chunk_ids[row]] = await system.search(
            SearchMode.VECTOR, material.texts[row], embedding, AFTER_K
        )
    return found


async def _delete_and_ask(
    system: System, material: Material, plan: FidelityPlan, answers: Answers
) -> None:
    """Delete chunks that were found first, and ask again; where the system can delete."""
    firsts = [found[0][0] for asked in answers.answers for found in asked.found[:DELETED] if found]
    gone = [one for one in dict.fromkeys(firsts) if one in material.rows]
    gone = gone[: max(1, len(material.texts) // 10)]
    if isinstance(system, CorralSystem):
        await (await system.index()).delete_chunks(gone)
    elif isinstance(system, Forgetful):
        await system.delete(gone)
    else:
        return
    answers.deleted.extend(gone)
    left = without(material, [material.rows[one] for one in gone])
    number = min(plan.questions, len(material.questions))
    for mode in (mode for mode in plan.modes if mode in system.modes):
        asked = Asked(mode=mode.value, selectivity=None, k=AFTER_K, after_deletion=True)
        answers.answers.append(await _ask(system, left, asked, number))


def _failure(backend: Backend, stage: str, message: str, material: Material) -> Failure:
    return Failure(backend=backend.name, stage=stage, message=message, data_set=material.name)
