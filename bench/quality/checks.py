"""The suite's own checks: is an answer valid, and is its order plausible?

A backend that returns its worst hits first, or maps ids wrongly, would otherwise only look bad.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from corral.api.errors import ContractViolation
from corral.api.vector_dbs import SearchMode
from corral.bench.data.judged import JudgedSet
from corral.bench.system import Ranked
from corral.bench.truth import Truth, findable, recall

SAMPLE = 50
"""Number of queries to check, from the first."""
LEAST_RECALL = 0.5
"""Minimum share of the true ten nearest neighbors. Approximate search loses some, but never half.
"""
LEAST_VOTES = 3
_NEAR = 10
_SLACK = 1e-4
"""A chunk this close to the tenth counts as one of the ten, because some engines store half floats.
"""


def check_answer(ranked: Ranked, k: int, known: Collection[str]) -> None:
    """Reject an invalid ranking: too many hits, unknown or repeated ids, rising scores.

    Raises:
        ContractViolation: The ranking is invalid; the message says why.
    """
    ids, scores = [one for one, _ in ranked], [score for _, score in ranked]
    if len(ids) > k:
        raise ContractViolation(f"{len(ids)} hits where {k} were asked for.")
    if len(set(ids)) < len(ids):
        raise ContractViolation("A chunk appears twice in an answer.")
    if not all(map(math.isfinite, scores)):
        raise ContractViolation("A score is not finite.")
    if any(later > earlier for earlier, later in pairwise(scores)):
        raise ContractViolation("Scores rise from hit to hit: lower ones seem to be better there.")
    unknown = [one for one in ids if one not in known]
    if unknown:
        raise ContractViolation(f"The chunk id {unknown[0]!r} was never stored.")


class OrderChecks:
    """Compares answers with the right answers to the first `SAMPLE` queries of a set.

    Args:
        judged: The set.
        documents: Embeddings of its documents, in order, shape (n, dimension), length 1.
        queries: Embeddings of its queries, likewise.
    """

    def __init__(
        self, judged: JudgedSet, documents: NDArray[np.float32], queries: NDArray[np.float32]
    ) -> None:
        self._rows = {key: row for row, key in enumerate(judged.documents)}
        self._numbers = {key: number for number, key in enumerate(islice(judged.queries, SAMPLE))}
        questions = [judged.queries[key] for key in self._numbers]
        texts = list(judged.documents.values())
        self._truth = Truth(texts, documents, judged.language, questions, queries[:SAMPLE])

    def check_order(self, mode: SearchMode, answers: Mapping[str, Ranked]) -> None:
        """Reject a mode's answers if they are in reverse order or name wrong chunks.

        The second half of a query's hits should be worse than the first half, and the first half
        better than the average document: by true cosine, by BM25, or in hybrid mode by the sum of
        both. Single queries may differ, but not most. In vector mode the true nearest must also be
        found.

        Raises:
            ContractViolation: The answers fail a check.
        """
        sample = {key: answers[key] for key in self._numbers if key in answers}
        if mode is SearchMode.VECTOR:
            _check_recall(self.agreement(mode, answers))
        votes = [self._vote(mode, key, [one for one, _ in hits]) for key, hits in sample.items()]
        worse, better = votes.count(-1), votes.count(1)
        if worse >= LEAST_VOTES and worse > 2 * better:
            raise ContractViolation(
                f"The order seems to be reversed: in {worse} of {worse + better} queries the first "
                "hits fit worse than the later ones, or than any document.",
                hint="Look for distances used as scores, or a lost sign.",
            )

    def agreement(self, mode: SearchMode, answers: Mapping[str, Ranked]) -> list[float]:
        """Return, for each query of the sample, the share of the 10 best among the hits.

        Args:
            mode: Vector (by cosine) or keyword (by BM25); a chunk that ties with the tenth counts.
            answers: Hits by query id.
        """
        everything = np.ones(len(self._rows), bool)
        shares = []
        for key, number in self._numbers.items():
            if key in answers:
                values = findable(self._truth.of(mode, number), mode, everything)
                found = [self._rows[one] for one, _ in answers[key][:_NEAR]]
                slack = _SLACK if mode is SearchMode.VECTOR else None
                shares.append(recall(values, found, _NEAR, slack))
        return shares

    def _vote(self, mode: SearchMode, query_id: str, ids: Sequence[str]) -> int:
        """Return 1 for hits in the right order, -1 for the reverse order, else 0."""
        if not ids:
            return 0
        rows, number = [self._rows[one] for one in ids], self._numbers[query_id]
        modes = (SearchMode.VECTOR, SearchMode.KEYWORD) if mode is SearchMode.HYBRID else (mode,)
        truths = [self._truth.of(one, number) for one in modes]
        parts = [(truth[rows], float(truth.mean())) for truth in truths]
        if all(fit[:_NEAR].mean() < mean - _SLACK for fit, mean in parts):
            return -1
        half = len(ids) // 2
        fits = sum(_stretched(fit) for fit, _ in parts) + np.zeros(len(ids))
        gap = float(fits[:half].mean() - fits[-half:].mean()) if half else 0.0
        return int(np.sign(round(gap, 6)))


def _check_recall(shares: Sequence[float]) -> None:
    reached = float(np.mean(shares)) if shares else 1.0
    if reached < LEAST_RECALL:
        raise ContractViolation(
            f"Only {reached:.2f} of the true {_NEAR} nearest are found.",
            hint="Approximate search does not miss that many: look for a reversed order, "
            "another metric, or ids that belong to other chunks.",
        )


def _stretched(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Scale values to 0 to 1; all 0 if they are equal."""
    wide = np.asarray(values, np.float64)
    span = float(np.ptp(wide))
    return (wide - wide.min()) / span if span > 0 else np.zeros(len(wide))
