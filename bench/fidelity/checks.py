"""Missed neighbors or wrong ids? What every single answer shows, held against the truth.

An approximate index misses neighbors; what it returns is right all the same: chunks that exist,
that pass the filter, with the similarity that its scores say. Anything else is a *mapping* defect,
a mistake in the code between engine and user, and no parameter of the index mends it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from corral.api.scoring import keyword_score
from corral.api.vector_dbs import SearchMode
from corral.bench.data.corpus import Corpus
from corral.bench.system import Ranked
from corral.bench.truth import TIE, findable, recall

Verdict = Literal["agrees", "approximate", "mapping"]

SCORE_SLACK = 2e-4
"""A score of Corral's contract is right within this; some engines store halves of floats."""
FOREIGN_SLACK = 2e-3
"""Foreign scores have their own meaning. Their order may be wrong by this much of a cosine."""
AGREES = 0.999
"""Recall from which an index counts as exact: one miss in a thousand may be rounding."""
_REVERSED = 0.5
"""Correlation of place and similarity from which an order is taken to be the wrong way round."""


@dataclass
class Findings:
    """In how many answers something was found; `asked` of them were looked at.

    Attributes:
        unknown: Ids that were never stored.
        deleted: Chunks that had been deleted before.
        repeated: One chunk twice.
        rising: Scores that rise from hit to hit.
        violating: Chunks that do not pass the filter.
        reversed: The less similar a hit, the higher its score.
        misplaced: Scores, or an order, that do not fit the chunks that carry them.
        not_own: A stored embedding was asked for, and its own chunk came, but not first.
        short: Fewer hits than pass the filter, though without a filter there are enough.
        wrong: More than half of the hits are not among the right ones, and nothing above says why.
        missing: Hits that are missing, what is there being right.
    """

    asked: int = 0
    unknown: int = 0
    deleted: int = 0
    repeated: int = 0
    rising: int = 0
    violating: int = 0
    reversed: int = 0
    misplaced: int = 0
    not_own: int = 0
    short: int = 0
    wrong: int = 0
    missing: int = 0

    def __add__(self, other: Findings) -> Findings:
        """Return both together."""
        return Findings(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )

    @property
    def verdict(self) -> Verdict:
        """`mapping` for any defect, `approximate` where hits are missing only."""
        if self.defects():
            return "mapping"
        return "approximate" if self.missing else "agrees"

    def defects(self) -> list[str]:
        """Return every defect that was seen, in words, the likeliest cause first.

        Ids that should not exist name their cause; of the others, what was seen most often: mixed
        up ids, for one, also break filters.
        """
        said = {
            "unknown": "ids that were never stored",
            "deleted": "deleted chunks: the map from rows to ids is stale",
            "violating": "chunks that do not pass the filter",
            "short": "too few hits: the filter is applied after the top k",
            "reversed": "a reversed order: scores fall as the similarity rises",
            "misplaced": "scores or places that belong to other chunks: ids are mixed up",
            "not_own": "another chunk before the one whose embedding was asked for",
            "repeated": "a chunk twice",
            "rising": "scores that rise from hit to hit",
            "wrong": "other hits than the best ones: another metric, or the wrong end of an order",
        }
        counts = {name: getattr(self, name) for name in said}
        order = sorted(said, key=lambda name: (name not in ("unknown", "deleted"), -counts[name]))
        return [
            f"{said[name]} ({counts[name]} of {self.asked} answers)"
            for name in order
            if counts[name]
        ]


def examine(
    ranked: Ranked,
    k: int,
    corpus: Corpus,
    truth: NDArray[np.float64] | None,
    mode: SearchMode,
    *,
    passing: NDArray[np.bool_],
    contract: bool,
    deleted: Collection[str] = (),
) -> Findings:
    """Return what one answer shows.

    Args:
        ranked: The answer.
        k: Hits asked for.
        corpus: What is stored now.
        truth: As `Truth.of`; None where the answer's scores follow another formula.
        mode: Decides how a truth becomes a score.
        passing: Which chunks pass the filter.
        contract: Whether scores are those of Corral's contract, so that they can be computed.
        deleted: Ids that were stored once.
    """
    found = Findings(asked=1)
    ids = [one for one, _ in ranked]
    strange = [one for one in ids if one not in corpus.rows]
    found.deleted = int(any(one in deleted for one in strange))
    found.unknown = int(any(one not in deleted for one in strange))
    found.repeated = int(len(set(ids)) < len(ids))
    found.rising = int(any(later > earlier for (_, earlier), (_, later) in pairwise(ranked)))
    known = [(corpus.rows[one], score) for one, score in ranked if one in corpus.rows]
    found.violating = int(any(not passing[row] for row, _ in known))
    if truth is None:
        return found
    true = np.array([truth[row] for row, _ in known])
    if _is_reversed(true):
        found.reversed = 1
    elif _is_misplaced(true, np.array([score for _, score in known]), mode, contract=contract):
        found.misplaced = 1
    if len(ranked) <= k and not found.defects():
        found.missing = int(recall(findable(truth, mode, passing), [r for r, _ in known], k) < 1)
    return found


def examine_own(ranked: Ranked, own: int, corpus: Corpus, truth: NDArray[np.float64]) -> Findings:
    """Return what the answer to a stored embedding shows: its own chunk has to come first.

    Args:
        ranked: The answer, asked for 10.
        own: The chunk's row.
        corpus: What is stored.
        truth: Cosine of every chunk with the embedding; one that is equal may come first as well.
    """
    found = Findings(asked=1)
    ids = [one for one, _ in ranked]
    first = corpus.rows.get(ids[0]) if ids else None
    if first is not None and truth[first] >= truth[own] - TIE:
        return found
    if corpus.chunk_ids[own] in ids:
        found.not_own = 1
    else:
        found.missing = 1
    return found


def _is_reversed(true: NDArray[np.float64]) -> bool:
    """Return whether similarity rises along the hits, best first as they claim to be."""
    if len(true) < 3 or np.ptp(true) <= TIE:
        return False
    places = np.arange(len(true))
    return float(np.corrcoef(places, true)[0, 1]) > _REVERSED


def _is_misplaced(
    true: NDArray[np.float64], scores: NDArray[np.float64], mode: SearchMode, *, contract: bool
) -> bool:
    """Return whether scores, or foreign places, are not those of their chunks."""
    if not contract:
        return bool(np.any(np.diff(true) > FOREIGN_SLACK))
    right = (1 + true) / 2 if mode is SearchMode.VECTOR else np.array([_keyword(s) for s in true])
    return bool(np.any(np.abs(right - scores) > SCORE_SLACK))


def _keyword(score: float) -> float:
    return keyword_score(score) if score > 0 else 0.0
