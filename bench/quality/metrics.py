"""How good is a ranking? trec_eval's measures, by way of `ir-measures`.

* nDCG@10: linear gains, log2 discount, ideal ranking of all judged documents; Järvelin and
  Kekäläinen, "Cumulated gain-based evaluation of IR techniques", TOIS 2002, in the form of
  trec_eval's `ndcg_cut`.
* R@10, R@100: share of the relevant documents that are among the first 10 or 100.
* RR@10 (the mean over queries is MRR@10): 1 / rank of the first relevant document, 0 beyond 10.
* AP@10 (the mean is MAP@10): mean over all relevant documents of the precision at their ranks, 0
  for those beyond 10.

A judgement above 0 is relevant. What was not judged is not relevant. A query without hits counts 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from corral.api.errors import MissingDependency

NDCG = "nDCG@10"
NAMES = (NDCG, "R@10", "R@100", "RR@10", "AP@10")
"""As ir-measures writes them; the first one decides comparisons."""


def measured(k: int) -> list[str]:
    """Return those of `NAMES` that k hits tell: a measure that looks deeper counts what is cut."""
    return [name for name in NAMES if int(name.rpartition("@")[2]) <= k]


def measure(
    qrels: Mapping[str, Mapping[str, int]], run: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, float]]:
    """Return, for each of `NAMES`, the value of every query in the qrels.

    trec_eval sorts by score and breaks ties by document id, so the scores that it is given here are
    made from the ranks and fall strictly: what is judged is the order as it was answered.

    Args:
        qrels: Relevance by query id and document id.
        run: Document ids by query id, best first; a query that is absent found nothing.

    Raises:
        MissingDependency: ir-measures is not installed.
    """
    try:
        import ir_measures  # noqa: PLC0415 - of the extra `bench`
    except ModuleNotFoundError:
        command = "pip install 'corral-rag[bench]'"
        raise MissingDependency("The benchmark", "ir-measures", command) from None
    measures = {name: ir_measures.parse_measure(name) for name in NAMES}
    scored = {
        query_id: {document: float(len(ranked) - at) for at, document in enumerate(ranked)}
        for query_id, ranked in run.items()
    }
    found: dict[str, dict[str, float]] = {name: dict.fromkeys(qrels, 0.0) for name in NAMES}
    plain = {query_id: dict(judged) for query_id, judged in qrels.items()}
    for one in ir_measures.iter_calc(list(measures.values()), plain, scored):
        found[str(one.measure)][one.query_id] = one.value
    return found
