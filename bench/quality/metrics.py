"""The quality of rankings by trec_eval's measures; the tests compare them with trec_eval.

* nDCG@10: linear gains, log2 discount, ideal ranking of all judged documents; Järvelin and
  Kekäläinen, "Cumulated gain-based evaluation of IR techniques", TOIS 2002, in the form of
  trec_eval's `ndcg_cut`.
* R@10, R@100: share of the relevant documents that are among the first 10 or 100.
* RR@10 (the mean over queries is MRR@10): 1 / rank of the first relevant document, 0 beyond 10.
* AP@10 (the mean is MAP@10): mean over all relevant documents of the precision at their ranks, 0
  for those beyond 10.

A judgement above 0 is relevant; unjudged documents are not. A query without hits counts 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

NDCG = "nDCG@10"
NAMES = (NDCG, "R@10", "R@100", "RR@10", "AP@10")
"""Names as in ir-measures; the first one decides comparisons."""
DEPTH, DEEPEST = 10, 100
AGREES = "agrees with exact"
"""The share of the 10 best by brute force among the first 10 hits, beside `NAMES`."""
EXACT = 0.999
"""Minimum agreement of an exact search: one miss in a thousand may be rounding."""


def measured(k: int) -> list[str]:
    """Return the `NAMES` that k hits determine; deeper measures would need more hits."""
    return [name for name in NAMES if int(name.rpartition("@")[2]) <= k]


def measure(
    qrels: Mapping[str, Mapping[str, int]], run: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, float]]:
    """Return, for each of `NAMES`, the value of every query in the qrels.

    Args:
        qrels: Relevance by query id and document id.
        run: Document ids by query id, best first; a missing query has no hits.
    """
    found: dict[str, dict[str, float]] = {name: {} for name in NAMES}
    for query_id, judged in qrels.items():
        for name, value in zip(NAMES, _values(judged, run.get(query_id, ())), strict=True):
            found[name][query_id] = value
    return found


def _values(judged: Mapping[str, int], ranked: Sequence[str]) -> tuple[float, ...]:
    """Return the measures of one query, in the order of `NAMES`."""
    grades = [max(judged.get(document, 0), 0) for document in ranked[:DEEPEST]]
    ideal = sorted((grade for grade in judged.values() if grade > 0), reverse=True)
    if not ideal:
        return (0.0,) * len(NAMES)
    places = [place for place, grade in enumerate(grades, start=1) if grade]
    top = [place for place in places if place <= DEPTH]
    precisions = [number / place for number, place in enumerate(top, start=1)]
    return (
        _gain(grades[:DEPTH]) / _gain(ideal[:DEPTH]),
        len(top) / len(ideal),
        len(places) / len(ideal),
        1 / top[0] if top else 0.0,
        sum(precisions) / len(ideal),
    )


def _gain(grades: Sequence[int]) -> float:
    return sum(grade / math.log2(place + 1) for place, grade in enumerate(grades, start=1))
