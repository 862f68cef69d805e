"""What a finished quality run says of its greatest wins and losses."""

from __future__ import annotations

from pathlib import Path

from corral.bench.data.judged import JudgedSet
from corral.bench.data.readers import write_run
from corral.bench.quality.metrics import NDCG, measure
from corral.bench.quality.plan import make_plan
from corral.bench.quality.results import with_comparisons, with_documents
from corral.bench.quality.run import run_quality
from corral.bench.quality.statistics import bootstrap
from corral.bench.report import by_query
from corral.bench.report.report import begin_report, read_report
from corral.bench.report.rows import QualityRow, ShownDocument


def read_run(path: Path) -> dict[str, list[str]]:
    """Return a TREC run: document ids by query id, best first."""
    run: dict[str, list[str]] = {}
    for line in path.read_text("utf-8").splitlines():
        query_id, _, document_id, rank, *_ = line.split()
        assert len(run.setdefault(query_id, [])) == int(rank) - 1
        run[query_id].append(document_id)
    return run


async def test_wins_and_losses_say_which_documents_decided(tmp_path: Path) -> None:
    """At most ten queries of a system and three documents of each, and the texts of these only.

    If this fails: a report explains nothing, or holds a copy of the data.
    """
    plan = make_plan(
        data=["miniature"],
        model="hashing",
        backends=["memory", "sqlite"],
        modes=["keyword", "vector"],
        out=tmp_path / "out",
        home=tmp_path,
    )
    report = await run_quality(plan)
    assert read_report(tmp_path / "out") == report
    english = report.data_sets[0]
    row = next(row for row in report.quality if row.label == "memory:vector")
    run = read_run(tmp_path / "out" / str(row.run_file))
    base = read_run(tmp_path / "out" / str(report.quality[0].run_file))
    changed = {q for q, v in row.ndcg_by_query.items() if v != report.quality[0].ndcg_by_query[q]}
    assert row.shown
    assert set(row.shown) <= changed
    assert len(row.shown) <= 2 * by_query.EXAMPLES
    for query_id, documents in row.shown.items():
        assert 1 <= len(documents) <= 3
        named = {document.document_id for document in documents}
        assert {*run.get(query_id, [])[:1], *base.get(query_id, [])[:1]} <= named
        assert any(document.relevance for document in documents)
        for found in documents:
            for rank, ranked in ((found.rank, run), (found.baseline_rank, base)):
                at = ranked[query_id].index(found.document_id) + 1 if rank else None
                assert rank == at
    twin = next(row for row in report.quality if row.label == "sqlite:vector")
    assert (twin.shown, report.quality[0].shown) == ({}, {})
    shown = {d.document_id for r in report.quality for ds in r.shown.values() for d in ds}
    german = report.data_sets[1]
    assert set(english.excerpts) | set(german.excerpts) == shown
    assert len(english.excerpts) <= 30


def test_the_relevant_document_that_moved_most_is_shown(tmp_path: Path) -> None:
    """Of several relevant ones, that with the greatest share in the difference; excerpts are cut.

    By hand: one is first in both runs and counts nothing, `b` comes in at rank 2 (1 / log2 3), `c`,
    of relevance 1, at rank 3 (1 / log2 4).
    """
    judged = JudgedSet(
        "farm",
        {"a": "one", "b": "word " * 99, "c": "three", "d": "  four\n\x00 \ud800 "},
        {"q": "which?"},
        {"q": {"a": 2, "b": 1, "c": 1}},
    )
    runs = {"vector": ["a", "d"], "keyword": ["a", "b", "c"]}
    rows = []
    for mode, ranked in runs.items():
        write_run(tmp_path / f"{mode}.run", {"q": ranked}, "tag")
        value = measure(judged.qrels, {"q": ranked})[NDCG]
        rows.append(
            QualityRow(
                backend="x", mode=mode, data_set="farm", n_queries=1, k=10, ndcg_by_query=value,
                metrics={NDCG: bootstrap(list(value.values()))}, run_file=f"{mode}.run",
            )
        )  # fmt: skip
    begun = begin_report("test", 0).model_copy(update={"baseline": "x:vector"})
    report = with_comparisons(begun.with_rows(judged.row(), *rows), 0)
    found = with_documents(report, [judged], tmp_path)
    assert found.quality[1].shown["q"] == (
        ShownDocument(document_id="a", relevance=2, rank=1, baseline_rank=1),
        ShownDocument(document_id="b", relevance=1, rank=2),
    )
    excerpts = found.data_sets[0].excerpts
    assert set(excerpts) == {"a", "b"}
    assert (len(excerpts["b"]), excerpts["b"][-1]) == (200, "…")
    write_run(tmp_path / "keyword.run", {"q": ["d", "a"]}, "tag")
    again = with_documents(report, [judged], tmp_path)
    assert again.data_sets[0].excerpts["d"] == "four \ufffd \ufffd"
    again.model_dump_json()
