"""Chooses a registration on one half of the questions, and evaluates it on the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from corral.api.reranker import ModelRerank
from corral.api.vector_dbs import VectorDB
from corral.bench.quality.metrics import NDCG, measure
from corral.bench.quality.statistics import LEVEL, SAME, bootstrap, compare, holm
from corral.bench.report.rows import Estimate, TuneSection, TuneTrial
from corral.bench.tuning.legs import Answers
from corral.bench.tuning.questions import GENERATED_NOTE, Questions, halves
from corral.bench.tuning.space import (
    RERANKED,
    WEIGHTS,
    Trial,
    by_metadata,
    fusions,
    re_ranked,
    registered,
    single_modes,
)

REPORTED = 10
"""Best trials of the training half in the report, beside the single modes."""
ENOUGH = 0.95
"""Minimum share of the relevant chunks among 20 that the recommended number of chunks still finds.
"""

FEW = 100
"""With fewer judging questions, the report warns that small differences are not detectable."""

Values = dict[str, float]
"""nDCG@10 by question id."""


async def tune(
    answers: Answers,
    questions: Questions,
    seed: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> TuneSection:
    """Try every trial on half of the questions, and judge the best on the other half.

    The candidate is the simplest trial that is as good as the best one on the training half. From
    the simplest: one leg, the default hybrid, another fusion, a re-ranker or recency, one with a
    model. A trial is as good if its mean nDCG@10 is within `SAME`, or within one standard error of
    the paired difference (after the rule of Breiman et al., "Classification and Regression Trees",
    1984, section 3.4.3).

    The candidate is chosen if it gains on the registered search: if the 95 % interval of the
    paired difference on the held-out half lies above 0. Otherwise the registered search is chosen.
    `statistics.compare` tests the chosen search against both single modes on the held-out half,
    with Holm's correction over the two.

    Args:
        answers: The legs of every question.
        questions: The relevant chunks of each question.
        seed: Seed of halves, intervals and tests.
        advance: Called for each trial, at most `trials_of` times; ends the tuning if it raises.
    """

    async def values(trial: Trial, keys: Sequence[str]) -> Values:
        advance()
        return await _values(answers, questions, trial, keys)

    train, held_out = halves(list(questions.texts), seed)
    trials, current = _with_registered([*single_modes(), *fusions()], answers.vector_db)
    trained = {trial: await values(trial, train) for trial in trials}
    labels = {trial.label for trial in trials}
    models = [_options_of(name, current) for name in answers.rerankers]
    others = by_metadata(_best(trained), answers.vector_db, answers.dated())
    again = [each for each in re_ranked(_best(trained), models) if each.label not in labels]
    again += [each for each in others if each.label not in labels]
    for trial in again:
        trained[trial] = await values(trial, train)
    candidate = simplest(trained)
    order = sorted(trained, key=lambda trial: -_mean(trained[trial]))
    shown = dict.fromkeys([candidate, current, *single_modes(), *order[:REPORTED], *again])
    judged = {trial: await values(trial, held_out) for trial in shown}
    gain = _gain(candidate, current, judged, seed)
    best = candidate if gain is not None and gain.low > 0 else current
    complete = {trial: await _complete(answers, questions, trial) for trial in shown}
    rows = [_row(trial, trained[trial], judged, complete, seed) for trial in trained]
    chunks = await _enough(answers, questions, best, train)
    return TuneSection(
        data_set=answers.vector_db.identifier,
        backend=answers.vector_db.provider_id,
        generated=questions.generated,
        n_train=len(train),
        n_held_out=len(held_out),
        trials=_compared(rows, judged, seed),
        chosen=best.label,
        registered=current.label,
        registration=best.settings(),
        statement=f"{_choice(candidate, current, gain)} {_statement(best, judged, seed)}",
        notes=(*_notes(questions, len(held_out), chunks), *_costs(answers)),
    )


def trials_of(models: int) -> int:
    """Return the maximum number of measured trials, with a number of re-ranking models."""
    first = len([*single_modes(), *fusions()]) + 1
    again = len(re_ranked(single_modes()[0])) + models * len(WEIGHTS)
    return first + again + (again + REPORTED + 4)


def _with_registered(trials: Sequence[Trial], vector_db: VectorDB) -> tuple[list[Trial], Trial]:
    """Return the trials, with the registered search among them, and that search by itself."""
    current = registered(vector_db)
    same = next((trial for trial in trials if trial.label == current.label), None)
    return ([*trials], same) if same else ([current, *trials], current)


def _gain(
    candidate: Trial, current: Trial, judged: Mapping[Trial, Values], seed: int
) -> Estimate | None:
    """Return the candidate's gain in nDCG@10 over the registered search; None if both are equal."""
    if candidate == current:
        return None
    compared = compare({candidate.label: judged[candidate]}, current.label, judged[current], seed)
    return compared[candidate.label].difference


def _choice(candidate: Trial, current: Trial, gain: Estimate | None) -> str:
    """Return the recommendation with its reason."""
    if gain is None:
        return f"Stay with {current.label}, as registered: nothing simpler or better was found."
    figures = f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
    if gain.low > 0:
        return f"Change from {current.label} to {candidate.label}: {figures} held out."
    what = "no gain" if gain.mean <= 0 else "no gain that these questions can resolve"
    return f"Stay with {current.label}, as registered: {candidate.label} has {what} ({figures})."


async def _values(
    answers: Answers, questions: Questions, trial: Trial, keys: Sequence[str]
) -> Values:
    """Return nDCG@10 of some questions under a trial."""
    run = {}
    for key in keys:
        run[key] = _judged_ids(await answers.ranked(key, trial), answers, questions, key)
    return measure({key: questions.relevant[key] for key in keys}, run)[NDCG]


def _judged_ids(
    ranked: Sequence[str], answers: Answers, questions: Questions, key: str
) -> list[str]:
    """Return distinct chunk ids, or document ids for chunks of judged documents."""
    relevant = questions.relevant[key]
    found: dict[str, None] = {}
    for chunk_id in ranked:
        document = answers.chunks[chunk_id].document_id
        judged = document if document in relevant and chunk_id not in relevant else chunk_id
        found.setdefault(str(judged))
    return list(found)


def _best(trained: Mapping[Trial, Values]) -> Trial:
    return max(trained, key=lambda trial: _mean(trained[trial]))


def simplest(trained: Mapping[Trial, Values]) -> Trial:
    """Return the simplest trial that is as good as the best one; see `tune`."""
    best = _best(trained)
    for complexity in range(best.complexity):
        alike = {t: values for t, values in trained.items() if t.complexity == complexity}
        simpler = _best(alike)
        lost = [trained[best][key] - value for key, value in trained[simpler].items()]
        error = float(np.std(lost, ddof=1)) / math.sqrt(len(lost))
        if sum(lost) / len(lost) <= max(error, SAME):
            return simpler
    return best


def _mean(values: Values) -> float:
    return sum(values.values()) / len(values)


def _row(
    trial: Trial,
    values: Values,
    judged: Mapping[Trial, Values],
    complete: Mapping[Trial, float],
    seed: int,
) -> TuneTrial:
    held_out = judged.get(trial)
    return TuneTrial(
        label=trial.label,
        settings=trial.settings(),
        train=bootstrap(list(values.values()), seed),
        held_out=None if held_out is None else bootstrap(list(held_out.values()), seed),
        held_out_by_query=held_out,
        complete_at_5=complete.get(trial),
    )


def _compared(
    rows: Sequence[TuneTrial], judged: Mapping[Trial, Values], seed: int
) -> tuple[TuneTrial, ...]:
    """Compare the held-out results with the better single mode.

    Holm's correction is over all tests.
    """
    values = {trial.label: found for trial, found in judged.items()}
    single = max(single_modes(), key=lambda trial: _mean(values[trial.label])).label
    others = {label: found for label, found in values.items() if label != single}
    found = compare(others, single, values[single], seed)
    return tuple(row.model_copy(update={"comparison": found.get(row.label)}) for row in rows)


async def _complete(answers: Answers, questions: Questions, trial: Trial) -> float:
    """Return the share of questions with every relevant chunk among their first five hits."""
    complete = 0
    for key, relevant in questions.relevant.items():
        ranked = _judged_ids(await answers.ranked(key, trial), answers, questions, key)
        complete += relevant.keys() <= set(ranked[:5])
    return complete / len(questions.relevant)


def _statement(best: Trial, judged: Mapping[Trial, Values], seed: int) -> str:
    """Return sentences that compare the chosen trial with the single modes, held out."""
    chosen = judged[best]
    said = [f"{best.label}: nDCG@10 {bootstrap(list(chosen.values()), seed).mean:.3f} held out"]
    others = [trial for trial in single_modes() if trial != best]
    compared = {
        str(trial.mode): compare({best.label: chosen}, trial.label, judged[trial], seed)
        for trial in others
    }
    p_values = holm([each[best.label].p for each in compared.values()])
    for (mode, each), p in zip(compared.items(), p_values, strict=True):
        difference = each[best.label].difference
        verdict = "not resolvable" if p >= LEVEL else "better" if difference.mean > 0 else "worse"
        said.append(f"{verdict} against {mode} ({difference.mean:+.3f}, p {p:.2g} by Holm)")
    return "; ".join(said) + "."


async def _enough(answers: Answers, questions: Questions, trial: Trial, keys: Sequence[str]) -> int:
    """Return the smallest k that finds 95 % of what k = 20 finds, on the training half."""
    found = [0.0] * 20
    for key in keys:
        relevant = questions.relevant[key]
        ranked = _judged_ids(await answers.ranked(key, trial), answers, questions, key)[:20]
        for place in range(20):
            found[place] += len(relevant.keys() & set(ranked[: place + 1])) / len(relevant)
    return next(place + 1 for place in range(20) if found[place] >= ENOUGH * found[-1])


def _notes(questions: Questions, held_out: int, chunks: int) -> tuple[str, ...]:
    notes = [f"max_chunks {chunks} finds {ENOUGH:.0%} of what 20 find, on the training half."]
    if questions.generated:
        notes.append(GENERATED_NOTE)
    if questions.note:
        notes.append(questions.note)
    if held_out < FEW:
        notes.append(f"{held_out} questions judge: small differences cannot be resolved.")
    return tuple(notes)


def _options_of(model: str, current: Trial) -> ModelRerank:
    """Return the registered options of a model; the defaults if it is not the registered one."""
    rerank = current.rerank
    if isinstance(rerank, ModelRerank) and rerank.model == model:
        return rerank
    return ModelRerank(model=model)


def _costs(answers: Answers) -> list[str]:
    """Return for each model the time that it took."""
    costs = [
        f"{model} takes {1000 * RERANKED * float(np.median(took)):.0f} ms to re-rank {RERANKED} "
        "texts that it has not read before (median)."
        for model, took in answers.reading.items()
    ]
    auto = answers.vector_db.auto_filters
    if auto != "none" and answers.proposing:
        costs.append(
            f"{auto.model} takes {1000 * float(np.median(answers.proposing)):.0f} ms to propose a "
            f"filter (median); {len(answers.filtered)} of {len(answers.texts)} questions got one."
        )
    return costs
