"""Missed neighbors or wrong ids? What every single answer shows, held against the truth.

An approximate index misses neighbors; what it returns is right all the same: chunks that exist,
that pass the filter, with the similarity that its scores say. Anything else is a *mapping* defect,
a mistake in the code between engine and user, and no parameter of the index mends it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from corral.api.scoring import keyword_score
from corral.api.vector_dbs import SearchMode
from corral.bench.data.corpus import Corpus
from corral.bench.system import Ranked
from corral.bench.truth import TIE

Verdict = Literal["agrees", "approximate", "mapping"]

SCORE_SLACK = 2e-4
"""A score of Corral's contract is right within this; some engines store halves of floats."""
FOREIGN_SLACK = 2e-3
"""Foreign scores have their own meaning. Their order may be wrong by this much of a cosine."""
AGREES = 0.999
"""Recall from which an index counts as exact: one miss in a thousand may be rounding."""
_REVERSED = 0.5
"""Correlation of place and similarity from which an order is taken to be the wrong way round."""


DEFECTS = {
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
"""What may be wrong with an answer. It is `short` where it has enough hits without a filter, and
`wrong` where more than half of its hits are not among the right ones and nothing else says why."""


def said(found: Sequence[Collection[str]]) -> list[str]:
    """Return the defects of some answers in words, the likeliest cause first.

    Ids that should not exist name their cause; of the others, what was seen most often: mixed up
    ids, for one, also break filters.
    """
    counts = Counter(name for defects in found for name in defects)
    order = sorted(DEFECTS, key=lambda name: (name not in ("unknown", "deleted"), -counts[name]))
    return [
        f"{DEFECTS[name]} ({counts[name]} of {len(found)} answers)"
        for name in order
        if counts[name]
    ]


def defects_of(
    ranked: Ranked,
    corpus: Corpus,
    truth: NDArray[np.float64] | None,
    mode: SearchMode,
    *,
    passing: NDArray[np.bool_],
    contract: bool,
    deleted: Collection[str] = (),
) -> set[str]:
    """Return the names of `DEFECTS` that an answer shows by itself.

    Args:
        ranked: The answer.
        corpus: What is stored now.
        truth: As `Truth.of`; None where the answer's scores follow another formula.
        mode: Decides how a truth becomes a score.
        passing: Which chunks pass the filter.
        contract: Whether scores are those of Corral's contract, so that they can be computed.
        deleted: Ids that were stored once.
    """
    ids = [one for one, _ in ranked]
    strange = [one for one in ids if one not in corpus.rows]
    known = [(corpus.rows[one], score) for one, score in ranked if one in corpus.rows]
    seen = {
        "deleted": any(one in deleted for one in strange),
        "unknown": any(one not in deleted for one in strange),
        "repeated": len(set(ids)) < len(ids),
        "rising": any(later > earlier for (_, earlier), (_, later) in pairwise(ranked)),
        "violating": any(not passing[row] for row, _ in known),
    }
    if truth is not None:
        true = np.array([truth[row] for row, _ in known])
        scores = np.array([score for _, score in known])
        seen["reversed"] = _is_reversed(true)
        misplaced = _is_misplaced(true, scores, mode, contract=contract)
        seen["misplaced"] = misplaced and not seen["reversed"]
    return {name for name, there in seen.items() if there}


def own_defects(ranked: Ranked, own: int, corpus: Corpus, truth: NDArray[np.float64]) -> set[str]:
    """Return what the answer to a stored embedding shows: its own chunk, if found, comes first.

    Args:
        ranked: The answer.
        own: The chunk's row.
        corpus: What is stored.
        truth: Cosine of every chunk with the embedding; one that is equal may come first as well.
    """
    ids = [one for one, _ in ranked]
    first = corpus.rows.get(ids[0]) if ids else None
    equal = first is not None and truth[first] >= truth[own] - TIE
    return {"not_own"} if corpus.chunk_ids[own] in ids and not equal else set()


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
