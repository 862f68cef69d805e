"""The rows that follow from the answers of backends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corral.api.fusion import fuse
from corral.api.rankers import DEFAULT_RANKER
from corral.api.scoring import keyword_score
from corral.api.vector_dbs import SearchMode
from corral.bench.data.corpus import Corpus, without
from corral.bench.data.sources import percent
from corral.bench.fidelity.answers import Answers, Round
from corral.bench.fidelity.checks import (
    AGREES,
    Findings,
    Verdict,
    examine,
    examine_own,
)
from corral.bench.fidelity.measures import overlap, rank_biased_overlap, score_differences
from corral.bench.quality.statistics import bootstrap
from corral.bench.report.rows import EXACT, FidelityRow
from corral.bench.system import Ranked
from corral.bench.truth import TIE, Truth, among_best, cosines, findable, recall

OTHER_FORMULA = "another formula for words, or for fusing"
ALIKE = 0.99
"""Mean overlap from which two backends agree."""
SAME_SCORE = 1e-3


class Known(NamedTuple):
    """A corpus with the truth about it."""

    corpus: Corpus
    truth: Truth


def fidelity_rows(corpus: Corpus, systems: Sequence[Answers]) -> list[FidelityRow]:
    """Return a row for each system against brute force, and for each pair of systems."""
    most = max((len(a.found) for s in systems for a in s.answers), default=0)
    known = Known(corpus, corpus.truth(most))
    verdicts: dict[tuple[str, str], Findings] = {}
    rows = []
    for system in systems:
        found = {mode: _findings(system, mode, known) for mode in _modes(system)}
        verdicts |= {(system.system, mode): findings for mode, findings in found.items()}
        for asked in system.answers:
            if not asked.after_deletion:
                rows.append(_against_exact(system, asked, known, found[asked.mode]))
    for one, other in combinations(systems, 2):
        rows += _pair(one, other, corpus, verdicts)
    return rows


def _modes(system: Answers) -> list[str]:
    return list(dict.fromkeys(asked.mode for asked in system.answers))


def _findings(system: Answers, mode: str, known: Known) -> Findings:
    """Return what all answers of a mode show together."""
    total = Findings()
    corpus = known.corpus
    for asked in (asked for asked in system.answers if asked.mode == mode):
        if asked.after_deletion:
            left = without(corpus, [corpus.rows[one] for one in system.deleted])
            after = Known(left, left.truth(len(asked.found)))
            total += _examine_all(system, asked, after, system.deleted)
        else:
            total += _examine_all(system, asked, known, ())
    if mode == SearchMode.VECTOR.value and system.own:
        own = [corpus.rows[one] for one in system.own]
        near = cosines(corpus.embeddings, corpus.embeddings[own])
        for row, truth, ranked in zip(own, near, system.own.values(), strict=True):
            total += examine_own(ranked, row, corpus, truth)
    return total


def _examine_all(system: Answers, asked: Round, known: Known, deleted: Sequence[str]) -> Findings:
    mode, corpus = SearchMode(asked.mode), known.corpus
    passing = corpus.passing(asked.selectivity)
    total = Findings()
    for number, ranked in enumerate(asked.found):
        truth = _comparable(system, mode, known, number)
        found = examine(
            ranked,
            asked.k,
            corpus,
            truth,
            mode,
            passing=passing,
            contract=system.contract,
            deleted=deleted,
        )
        if asked.selectivity is not None and _is_short(system, asked, number, known):
            found.short, found.missing = 1, 0
        if not found.defects():
            found.wrong = int(_is_wrong(system, asked, number, known))
        total += found
    if 2 * total.wrong <= total.asked:  # an approximate search is lost in few questions only
        total.wrong = 0
    return total


def _is_wrong(system: Answers, asked: Round, number: int, known: Known) -> bool:
    """Return whether more than half of an answer's hits are not among the right ones.

    Which ones are right is unknown under another formula. There an answer is wrong whose hits fit
    worse than what passes the filter does in the mean, by all that the mode searches by.
    """
    mode, passing = SearchMode(asked.mode), known.corpus.passing(asked.selectivity)
    ranked = asked.found[number]
    if system.contract and mode is SearchMode.HYBRID:
        right = {one for one, _ in _exact(known, mode, number, asked)}
        return 2 * sum(one in right for one, _ in ranked) < len(ranked)
    rows = [known.corpus.rows[one] for one, _ in ranked if one in known.corpus.rows]
    truth = _comparable(system, mode, known, number)
    if truth is not None:
        best = among_best(findable(truth, mode, passing), asked.k)
        return 2 * int(best[rows].sum()) < len(rows)
    modes = (SearchMode.VECTOR, SearchMode.KEYWORD) if mode is SearchMode.HYBRID else (mode,)
    truths = [known.truth.of(one, number) for one in modes]
    return bool(rows) and all(fit[rows].mean() < fit[passing].mean() - TIE for fit in truths)


def _comparable(
    system: Answers, mode: SearchMode, known: Known, number: int
) -> NDArray[np.float64] | None:
    """Return the truth that an answer's scores follow; None where they follow another formula."""
    if mode is SearchMode.VECTOR or (mode is SearchMode.KEYWORD and system.contract):
        return known.truth.of(mode, number)
    return None


def _is_short(system: Answers, asked: Round, number: int, known: Known) -> bool:
    """Return whether a filtered answer has too few hits, where an unfiltered one has enough."""
    plain = system.by_key().get((asked.mode, None, asked.k, False))
    if plain is None or len(plain.found[number]) < asked.k:
        return False
    mode, passing = SearchMode(asked.mode), known.corpus.passing(asked.selectivity)
    truth = _comparable(system, mode, known, number)
    if truth is None:
        return False
    reachable = int(np.isfinite(findable(truth, mode, passing)).sum())
    return len(asked.found[number]) < min(asked.k, reachable)


def _against_exact(system: Answers, asked: Round, known: Known, findings: Findings) -> FidelityRow:
    mode, corpus = SearchMode(asked.mode), known.corpus
    exact = [_exact(known, mode, n, asked) for n in range(len(asked.found))]
    shares = list(_recalls(system, asked, known))
    own_scores = mode is SearchMode.VECTOR or system.contract
    compared = _compared(asked, exact, scores=own_scores)
    verdict: Verdict = findings.verdict
    if not findings.defects():
        reached = float(np.mean(shares)) if shares else compared["overlap"].mean
        least = AGREES if shares else ALIKE
        verdict = "agrees" if reached >= least else "approximate"
    return _row(
        system,
        EXACT,
        asked,
        corpus,
        recall_vs_exact=bootstrap(shares) if shares else None,
        verdict=verdict,
        note=_note(system, findings, verdict, mode),
        **compared,
    )


def _row(
    system: Answers, reference: str, asked: Round, corpus: Corpus, **found: Any
) -> FidelityRow:
    return FidelityRow(
        backend=system.system,
        reference=reference,
        mode=asked.mode,
        data_set=labeled(corpus.name, asked.selectivity),
        size=len(corpus.texts),
        k=asked.k,
        n_queries=len(asked.found),
        **found,
    )


def _recalls(system: Answers, asked: Round, known: Known) -> Iterator[float]:
    mode, rows = SearchMode(asked.mode), known.corpus.rows
    passing = known.corpus.passing(asked.selectivity)
    for number, ranked in enumerate(asked.found):
        truth = _comparable(system, mode, known, number)
        if truth is not None:
            found = {rows[one] for one, _ in ranked[: asked.k] if one in rows}
            yield recall(findable(truth, mode, passing), found, asked.k)


def _compared(asked: Round, other: Sequence[Ranked], *, scores: bool) -> dict[str, Any]:
    """Return the fields of a row that compare two lists of answers."""
    pairs = list(zip(asked.found, other, strict=True))
    ids = [([i for i, _ in a], [i for i, _ in b]) for a, b in pairs]
    found: dict[str, Any] = {
        "overlap": bootstrap([overlap(a, b, asked.k) for a, b in ids]),
        "rank_biased_overlap": bootstrap([rank_biased_overlap(_once(a), _once(b)) for a, b in ids]),
    }
    differences = [d for a, b in pairs for d in score_differences(a, b)] if scores else []
    if differences:
        found |= {
            "score_difference_max": max(differences),
            "score_difference_mean": float(np.mean(differences)),
        }
    return found


def _exact(known: Known, mode: SearchMode, number: int, asked: Round) -> Ranked:
    """Return what brute force finds, ties by chunk id, fused as Corral does by default."""
    passing = known.corpus.passing(asked.selectivity)
    if mode is not SearchMode.HYBRID:
        return [(i, s) for i, s, _ in _leg(known, mode, number, passing, asked.k)]
    size = DEFAULT_RANKER.leg_size(asked.k)
    vector = _leg(known, SearchMode.VECTOR, number, passing, size)
    keyword = _leg(known, SearchMode.KEYWORD, number, passing, size)
    fused = fuse(DEFAULT_RANKER, {"vector": vector, "keyword": keyword}, asked.k)
    return [(hit.chunk_id, hit.score) for hit in fused]


def _leg(
    known: Known, mode: SearchMode, number: int, passing: NDArray[np.bool_], k: int
) -> list[tuple[str, float, float]]:
    truth, ids = known.truth.of(mode, number), known.corpus.chunk_ids
    rows = np.flatnonzero(among_best(findable(truth, mode, passing), k, slack=0.0))
    ranked = sorted((-float(truth[row]), ids[row]) for row in rows)[:k]
    vector = mode is SearchMode.VECTOR
    return [(one, (1 - low) / 2 if vector else keyword_score(-low), -low) for low, one in ranked]


def _pair(
    one: Answers, other: Answers, corpus: Corpus, found: dict[tuple[str, str], Findings]
) -> list[FidelityRow]:
    """Return how far two systems agree with each other, round by round."""
    rows = []
    theirs = other.by_key()
    for key, asked in one.by_key().items():
        if key not in theirs or asked.after_deletion:
            continue
        scores = asked.mode == SearchMode.VECTOR.value or (one.contract and other.contract)
        compared = _compared(asked, theirs[key].found, scores=scores)
        broken = [s.system for s in (one, other) if found[s.system, asked.mode].defects()]
        alike = compared["overlap"].mean >= ALIKE
        alike = alike and compared.get("score_difference_max", 0.0) <= SAME_SCORE
        verdict: Verdict = "mapping" if broken else "agrees" if alike else "approximate"
        note = _foreign(one, other, asked)
        if broken:
            note = f"wrong by itself: {', '.join(broken)}"
        rows.append(_row(one, other.system, asked, corpus, verdict=verdict, note=note, **compared))
    return rows


def _foreign(one: Answers, other: Answers, asked: Round) -> str:
    both = one.contract and other.contract
    return "" if both or asked.mode == SearchMode.VECTOR.value else OTHER_FORMULA


def _note(system: Answers, findings: Findings, verdict: Verdict, mode: SearchMode) -> str:
    if findings.defects():
        return "; ".join(findings.defects())
    if mode is not SearchMode.VECTOR and not system.contract:
        return f"{OTHER_FORMULA}: its ids and filters were checked only"
    if verdict == "approximate":
        return "scores are right, some hits are missed"
    return ""


def labeled(name: str, selectivity: float | None) -> str:
    """Return a data set's name in rows: with the filter, where there is one."""
    return name if selectivity is None else f"{name}, {percent(selectivity)} filter"


def _once(ids: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(ids))
