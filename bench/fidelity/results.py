"""What systems answered, as it is kept between runs, and the rows that follow from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from corral.api.fusion import fuse
from corral.api.rankers import DEFAULT_RANKER
from corral.api.scoring import keyword_score
from corral.api.vector_dbs import SearchMode
from corral.bench.data.corpus import Corpus, without
from corral.bench.data.sources import percent
from corral.bench.fidelity.checks import AGREES, Verdict, defects_of, own_defects, said
from corral.bench.fidelity.measures import overlap, rank_biased_overlap, score_differences
from corral.bench.quality.statistics import bootstrap
from corral.bench.report.rows import EXACT, FidelityRow
from corral.bench.system import Ranked
from corral.bench.truth import TIE, Truth, among_best, cosines, findable, recall

Key = tuple[str, float | None, int, bool]


class Round(BaseModel):
    """One round of questions and what was found for each."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: str
    selectivity: float | None
    k: int
    after_deletion: bool = False
    found: list[list[tuple[str, float]]] = []

    @property
    def key(self) -> Key:
        """What tells it from other rounds of the same system."""
        return (self.mode, self.selectivity, self.k, self.after_deletion)


class Answers(BaseModel):
    """Everything that one system answered.

    Attributes:
        contract: Whether its scores are those of Corral's contract.
        own: The answers to stored embeddings, by the id of their chunk.
        deleted: The chunks that were deleted before the rounds `after_deletion`.
    """

    model_config = ConfigDict(extra="forbid")

    system: str
    contract: bool = False
    answers: list[Round] = []
    own: dict[str, list[tuple[str, float]]] = {}
    deleted: list[str] = []

    def by_key(self) -> dict[Key, Round]:
        """Return the rounds by what tells them apart."""
        return {asked.key: asked for asked in self.answers}


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
    defects: dict[tuple[str, str], list[str]] = {}
    rows = []
    for system in systems:
        for mode in dict.fromkeys(asked.mode for asked in system.answers):
            defects[system.system, mode] = said(list(_found(system, mode, known)))
        for asked in system.answers:
            if not asked.after_deletion:
                judged = _Judged(system, asked, known)
                rows.append(judged.row(defects[system.system, asked.mode]))
    for one, other in combinations(systems, 2):
        rows += _pair(one, other, corpus, defects)
    return rows


def _found(system: Answers, mode: str, known: Known) -> Iterator[set[str]]:
    """Yield the defects of each answer in a mode."""
    corpus = known.corpus
    for asked in (asked for asked in system.answers if asked.mode == mode):
        if asked.after_deletion:
            left = without(corpus, [corpus.rows[one] for one in system.deleted])
            after = Known(left, left.truth(len(asked.found)))
            yield from _Judged(system, asked, after).defects(system.deleted)
        else:
            yield from _Judged(system, asked, known).defects()
    if mode == SearchMode.VECTOR.value and system.own:
        own = [corpus.rows[one] for one in system.own]
        near = cosines(corpus.embeddings, corpus.embeddings[own])
        for row, truth, ranked in zip(own, near, system.own.values(), strict=True):
            yield own_defects(ranked, row, corpus, truth)


class _Judged:
    """A round of a system's answers beside the truth about what was stored then."""

    def __init__(self, system: Answers, asked: Round, known: Known) -> None:
        self._system = system
        self._asked = asked
        self._corpus, self._truth = known
        self._mode = SearchMode(asked.mode)
        self._passing = known.corpus.passing(asked.selectivity)

    def defects(self, deleted: Sequence[str] = ()) -> list[set[str]]:
        """Return the defects of each answer."""
        found = []
        for number, ranked in enumerate(self._asked.found):
            here = defects_of(
                ranked,
                self._corpus,
                self._comparable(number),
                self._mode,
                passing=self._passing,
                contract=self._system.contract,
                deleted=deleted,
            )
            if self._is_short(number):
                here.add("short")
            if not here and self._is_wrong(number):
                here.add("wrong")
            found.append(here)
        if 2 * sum("wrong" in here for here in found) > len(found):
            return found
        # An approximate search is lost in few questions only.
        return [here - {"wrong"} for here in found]

    def row(self, defects: Sequence[str]) -> FidelityRow:
        """Return how far the answers agree with brute force."""
        exact = [self._exact(number) for number in range(len(self._asked.found))]
        shares = list(self._recalls())
        own_scores = self._mode is SearchMode.VECTOR or self._system.contract
        compared = _compared(self._asked, exact, scores=own_scores)
        reached = float(np.mean(shares)) if shares else compared["overlap"].mean
        verdict: Verdict = "agrees" if reached >= (AGREES if shares else ALIKE) else "approximate"
        note = "scores are right, some hits are missed" if verdict == "approximate" else ""
        if not own_scores:
            note = f"{OTHER_FORMULA}: its ids and filters were checked only"
        return _row(
            self._system,
            EXACT,
            self._asked,
            self._corpus,
            recall_vs_exact=bootstrap(shares) if shares else None,
            verdict="mapping" if defects else verdict,
            note="; ".join(defects) or note,
            **compared,
        )

    def _comparable(self, number: int) -> NDArray[np.float64] | None:
        """Return the truth that an answer's scores follow; None where it is another formula."""
        vector, keyword = self._mode is SearchMode.VECTOR, self._mode is SearchMode.KEYWORD
        if vector or (keyword and self._system.contract):
            return self._truth.of(self._mode, number)
        return None

    def _findable(self, number: int) -> NDArray[np.float64] | None:
        truth = self._comparable(number)
        return None if truth is None else findable(truth, self._mode, self._passing)

    def _is_short(self, number: int) -> bool:
        """Return whether a filtered answer has too few hits, where an unfiltered one has enough."""
        asked = self._asked
        plain = self._system.by_key().get((asked.mode, None, asked.k, False))
        if asked.selectivity is None or plain is None or len(plain.found[number]) < asked.k:
            return False
        values = self._findable(number)
        if values is None:
            return False
        return len(asked.found[number]) < min(asked.k, int(np.isfinite(values).sum()))

    def _is_wrong(self, number: int) -> bool:
        """Return whether more than half of an answer's hits are not among the right ones.

        Which ones are right is unknown under another formula. There an answer is wrong whose hits
        fit worse than what passes the filter does in the mean, by all that the mode searches by.
        """
        ranked, hybrid = self._asked.found[number], self._mode is SearchMode.HYBRID
        if self._system.contract and hybrid:
            right = {one for one, _ in self._exact(number)}
            return 2 * sum(one in right for one, _ in ranked) < len(ranked)
        rows = [self._corpus.rows[one] for one, _ in ranked if one in self._corpus.rows]
        values = self._findable(number)
        if values is not None:
            return 2 * int(among_best(values, self._asked.k)[rows].sum()) < len(rows)
        modes = (SearchMode.VECTOR, SearchMode.KEYWORD) if hybrid else (self._mode,)
        truths = [self._truth.of(one, number) for one in modes]
        return bool(rows) and all(
            fit[rows].mean() < fit[self._passing].mean() - TIE for fit in truths
        )

    def _recalls(self) -> Iterator[float]:
        rows, k = self._corpus.rows, self._asked.k
        for number, ranked in enumerate(self._asked.found):
            values = self._findable(number)
            if values is not None:
                yield recall(values, {rows[one] for one, _ in ranked[:k] if one in rows}, k)

    def _exact(self, number: int) -> Ranked:
        """Return what brute force finds, ties by chunk id, fused as Corral does by default."""
        if self._mode is not SearchMode.HYBRID:
            return [(i, s) for i, s, _ in self._leg(self._mode, number, self._asked.k)]
        size = DEFAULT_RANKER.leg_size(self._asked.k)
        vector = self._leg(SearchMode.VECTOR, number, size)
        keyword = self._leg(SearchMode.KEYWORD, number, size)
        fused = fuse(DEFAULT_RANKER, {"vector": vector, "keyword": keyword}, self._asked.k)
        return [(hit.chunk_id, hit.score) for hit in fused]

    def _leg(self, mode: SearchMode, number: int, k: int) -> list[tuple[str, float, float]]:
        truth, ids = self._truth.of(mode, number), self._corpus.chunk_ids
        rows = np.flatnonzero(among_best(findable(truth, mode, self._passing), k, slack=0.0))
        ranked = sorted((-float(truth[row]), ids[row]) for row in rows)[:k]
        vector = mode is SearchMode.VECTOR
        return [
            (one, (1 - low) / 2 if vector else keyword_score(-low), -low) for low, one in ranked
        ]


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


def _pair(
    one: Answers, other: Answers, corpus: Corpus, defects: dict[tuple[str, str], list[str]]
) -> list[FidelityRow]:
    """Return how far two systems agree with each other, round by round."""
    rows = []
    theirs = other.by_key()
    for key, asked in one.by_key().items():
        if key not in theirs or asked.after_deletion:
            continue
        scores = asked.mode == SearchMode.VECTOR.value or (one.contract and other.contract)
        compared = _compared(asked, theirs[key].found, scores=scores)
        broken = [s.system for s in (one, other) if defects[s.system, asked.mode]]
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


def labeled(name: str, selectivity: float | None) -> str:
    """Return a data set's name in rows: with the filter, where there is one."""
    return name if selectivity is None else f"{name}, {percent(selectivity)} filter"


def _once(ids: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(ids))
