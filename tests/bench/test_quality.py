"""A quality run measures what was asked, survives what breaks, and goes on where it ended."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from corral.api.errors import Conflict, InvalidRequest, NotFound
from corral.api.vector_dbs import SearchMode
from corral.bench.quality.metrics import AGREES, NAMES
from corral.bench.quality.plan import QualityPlan, make_plan
from corral.bench.quality.run import run_quality, work_of
from corral.bench.report.report import Report, read_report
from corral.bench.report.rows import Estimate
from corral.bench.report.views import agreement
from corral.bench.system import Collection, Ranked, Search

from .foreign import Exact, install
from .judged_files import write_beir

ALL = Estimate(mean=1, low=1, high=1)


def plan(folder: Path, backends: Sequence[str], **options: Any) -> QualityPlan:
    """Return a plan on the miniature sets without a model, its results in `folder`/out."""
    given = {"data": ["miniature"], "model": "hashing", "out": folder / "out", "home": folder}
    return make_plan(backends=backends, **{**given, **options})


def measure(folder: Path, backends: Sequence[str], **options: Any) -> Report:
    """Make a plan, run it and return its report."""
    return asyncio.run(run_quality(plan(folder, backends, **options)))


@pytest.fixture(autouse=True)
def foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    """The foreign systems of `foreign.py` are known by name."""
    install(monkeypatch)


def figures(report: Report) -> dict[tuple[str, str], float]:
    """Return nDCG@10 by data set and label."""
    return {(row.data_set, row.label): row.metrics["nDCG@10"].mean for row in report.quality}


def test_a_whole_round(tmp_path: Path) -> None:
    """Two backends, three modes, two fusions and a foreign system, on two sets, each with a row."""
    report = measure(tmp_path, ["memory", "sqlite", "exact"], fusions=["rrf", "max"])
    labels = [row.label for row in report.quality if row.data_set == "miniature-en"]
    ours = ["vector", "keyword", "hybrid:rrf", "hybrid:max"]
    assert labels == [
        *(f"memory:{mode}" for mode in ours),
        *(f"sqlite:{mode}" for mode in ours),
        "exact:vector", "exact:keyword", "exact:hybrid:own",
    ]  # fmt: skip
    assert (report.failures, report.finished is not None) == ((), True)
    found = figures(report)
    for name in ("miniature-en", "miniature-de"):
        for mode in ours:
            assert found[name, f"memory:{mode}"] == found[name, f"sqlite:{mode}"]
        assert found[name, "exact:vector"] == pytest.approx(found[name, "sqlite:vector"])
    assert [(d.name, d.documents) for d in report.data_sets] == [
        ("miniature-en", 300), ("miniature-de", 48),
    ]  # fmt: skip
    assert read_report(tmp_path / "out") == report
    row = report.quality[2]
    assert set(row.metrics) == {"nDCG@10", "R@10", "R@100", "RR@10", "AP@10"}
    agreeing = {row.label for row in report.quality if row.metrics.get(AGREES) == ALL}
    assert agreeing == {
        *("memory:vector", "memory:keyword", "sqlite:vector", "sqlite:keyword", "exact:vector")
    }
    assert len(row.ndcg_by_query) == row.n_queries == 42
    run_file = (tmp_path / "out" / str(row.run_file)).read_text("utf-8").splitlines()
    assert run_file[0].split()[1:4:2] == ["Q0", "1"]


def test_the_baseline_is_compared_with_on_each_set(tmp_path: Path) -> None:
    """All rows but the baseline's have a comparison; equal answers are the same, with p 1."""
    report = measure(tmp_path, ["memory", "sqlite"], baseline="sqlite:keyword")
    for row in report.quality:
        if row.label == "sqlite:keyword":
            assert row.comparison is None
        else:
            assert row.comparison is not None
            assert row.comparison.baseline == "sqlite:keyword"
            same = row.label == "memory:keyword"
            assert (row.comparison.verdict == "same" and row.comparison.p == 1) == same


def test_equal_runs_give_equal_reports(tmp_path: Path) -> None:
    """The same plan measures the same, intervals and p included; another seed only these differ."""
    runs = [
        measure(tmp_path / name, ["sqlite"], seed=seed).quality
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    timeless = [[row.model_copy(update={"seconds": 0.0}) for row in rows] for rows in runs]
    assert timeless[0] == timeless[1]
    assert [row.ndcg_by_query for row in runs[0]] == [row.ndcg_by_query for row in runs[2]]
    assert runs[0][0].metrics["nDCG@10"] != runs[2][0].metrics["nDCG@10"]


@pytest.mark.parametrize(
    ("name", "stage", "said", "rows"),
    [
        ("unreachable", "start", "ConnectionRefusedError: nobody listens there", 0),
        ("missing", "start", "pip install corral-no-such-thing", 0),
        ("full", "ingest", "RuntimeError: disk full", 0),
        ("wordless", "search", "ValueError: unexpected punctuation", 2),
    ],
)
def test_a_failure_is_a_row_and_the_others_go_on(
    tmp_path: Path, name: str, stage: str, said: str, rows: int
) -> None:
    """What a backend raises stands in the report; other modes and backends are measured."""
    report = measure(tmp_path, [name, "memory"], baseline="memory:vector")
    (first, *more) = report.failures
    assert (first.backend, first.stage, first.data_set) == (name, stage, "miniature-en")
    assert said in first.message
    assert first.mode == ("keyword" if name == "wordless" else None)
    assert len(more) == 1  # on the other set
    assert len([row for row in report.quality if row.backend == name]) == 2 * rows
    assert len([row for row in report.quality if row.backend == "memory"]) == 6


@pytest.mark.parametrize(
    ("name", "said", "modes"),
    [
        ("worst", r"Only 0\.\d+ of the true 10 nearest are found", {"vector"}),
        ("worst", "order seems to be reversed", {"keyword", "hybrid:own"}),
        ("backwards", "true 10 nearest|seems to be reversed", {"vector", "keyword", "hybrid:own"}),
        ("distances", "Scores rise from hit to hit", {"vector", "keyword", "hybrid:own"}),
        ("renamed", "chunk id 'x-", {"vector", "keyword", "hybrid:own"}),
    ],
)
def test_a_broken_backend_is_caught(tmp_path: Path, name: str, said: str, modes: set[str]) -> None:
    """Reversed scores, distances taken for scores and wrong ids are failures of the check.

    If this fails: a backend that is broken would only look bad.
    """
    report = measure(tmp_path, [name, "exact"], baseline="exact:vector")
    caught = [f for f in report.failures if f.backend == name and f.data_set == "miniature-en"]
    matching = {f.mode for f in caught if re.search(said, f.message)}
    assert modes <= matching
    assert {f.stage for f in caught} == {"check"}
    assert not [f for f in report.failures if f.backend == "exact"]
    trusted = name in ("worst", "backwards")  # an answer that is no ranking has no figures at all
    assert bool([row for row in report.quality if row.backend == name]) == trusted


def test_working_backends_pass_the_checks(tmp_path: Path) -> None:
    """On a set of three documents, too, where the order of hits says little."""
    small = write_beir(tmp_path / "farm")
    report = measure(
        tmp_path,
        ["memory", "sqlite", "faiss"],
        data=[str(small)],
        fusions=["rrf", "weighted", "max"],
    )
    assert report.failures == ()
    assert len(report.quality) == 15


def test_a_backend_that_misses_neighbors_does_not_agree(tmp_path: Path) -> None:
    """Every fifth chunk is never found: the share says so, and the findings name the backend.

    If this fails: an approximate index looks like an exact one.
    """
    report = measure(tmp_path, ["sqlite", "lossy"], modes=["vector"])
    assert report.failures == ()
    assert all(
        0.7 < row.metrics[AGREES].mean < 0.9 for row in report.quality if row.backend == "lossy"
    )
    said = agreement(report)["miniature-en"]
    assert said.startswith("lossy in vector mode (0.")
    assert "sqlite" not in said


def test_a_mode_that_a_system_lacks_has_no_row(tmp_path: Path) -> None:
    """A foreign system without keywords is measured in what it has, and does not fail."""
    report = measure(tmp_path, ["vectoronly", "memory"])
    assert {row.mode for row in report.quality if row.backend == "vectoronly"} == {"vector"}
    assert report.failures == ()
    with pytest.raises(InvalidRequest, match="None of these backends has the mode keyword"):
        plan(tmp_path / "b", ["vectoronly"], modes=["keyword"])


def test_finished_cells_are_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is resumed opens nothing that is finished, and comes to the same report."""
    first = measure(tmp_path, ["exact"])
    Exact.calls.clear()
    second = measure(tmp_path, ["exact"], resume=True)
    assert Exact.calls == []
    assert second.quality == first.quality
    measure(tmp_path, ["exact"], resume=True, k=50)
    assert "search vector" in Exact.calls, "another k is another measurement"


def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells that were finished before Ctrl-C are in the report and are kept; only others follow."""
    plain = Exact.search

    async def interrupted(self: Exact, asked: Search) -> Ranked:
        if asked.mode is SearchMode.HYBRID:
            raise KeyboardInterrupt
        return await plain(self, asked)

    monkeypatch.setattr(Exact, "search", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path, ["exact"])
    half = read_report(tmp_path / "out")
    assert ([row.mode for row in half.quality], half.finished) == (["vector", "keyword"], None)
    assert half.quality[1].comparison is not None
    assert Exact.calls[-1] == "close"
    monkeypatch.setattr(Exact, "search", plain)
    Exact.calls.clear()
    whole = measure(tmp_path, ["exact"], resume=True)
    assert Exact.calls.count("search hybrid") == 42 + 12
    assert Exact.calls.count("search vector") == 12
    assert len(whole.quality) == 6


def test_the_report_is_there_after_every_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the last mode is measured, the report in the folder has the others."""
    seen: list[int] = []
    plain = Exact.search

    async def looking(self: Exact, asked: Search) -> Ranked:
        if asked.mode is SearchMode.HYBRID and not seen:
            seen.append(len(read_report(tmp_path / "out").quality))
        return await plain(self, asked)

    monkeypatch.setattr(Exact, "search", looking)
    measure(tmp_path, ["exact"])
    assert seen == [2]


def test_the_budget_ends_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of time, what is measured stays, the rest has a row; nothing measured is an error."""
    clock = [0.0]
    monkeypatch.setattr("corral.bench.run.time.monotonic", lambda: clock[0])
    plain = Exact.prepare

    async def slow(self: Exact, collection: Collection) -> None:
        clock[0] += 60
        await plain(self, collection)

    monkeypatch.setattr(Exact, "prepare", slow)
    report = measure(tmp_path, ["memory", "exact"], max_seconds=30)
    assert {row.backend for row in report.quality} == {"memory"}
    assert {(f.backend, f.stage) for f in report.failures} == {
        ("exact", "budget"),
        ("memory", "budget"),
    }
    with pytest.raises(InvalidRequest, match="--max-seconds 30 was too small for one measurement"):
        measure(tmp_path / "b", ["exact"], max_seconds=30)


async def test_the_work_is_known_beforehand(tmp_path: Path) -> None:
    """Steps add up to the cells and the work that were announced, embedding included."""
    steps: list[tuple[int, int]] = []
    made = plan(tmp_path, ["memory", "exact"])
    announced = work_of(made)
    await run_quality(made, lambda cells, work: steps.append((cells, work)))
    assert announced == (12, sum(work for _, work in steps))
    assert sum(cells for cells, _ in steps) == 12
    again = plan(tmp_path, ["memory", "exact"], resume=True)
    steps.clear()
    await run_quality(again, lambda cells, work: steps.append((cells, work)))
    assert (sum(c for c, _ in steps), sum(w for _, w in steps)) == announced


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"baseline": "sqlite:vectr"}, r"Did you mean 'sqlite:vector'\? Measured: sqlite:vector"),
        ({"k": 9}, r"--k must be >= 10: nDCG@10 needs 10 hits \(got 9\)"),
        ({"k": 0}, r"--k must be 1 to 1000 \(got 0\)"),
        ({"k": 1001}, r"--k must be 1 to 1000 \(got 1001\)"),
        ({"languages": {"": "klingon"}, "data": ["set"]}, "unknown language 'klingon'"),
        ({"languages": {"sett": "german"}}, "given for 'sett', which is not a data set"),
    ],
)
def test_bad_input_is_refused_before_any_work(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    """A plan that cannot work is an error at once, and nothing is written; see test_command."""
    if options.get("data") == ["set"]:
        options = {**options, "data": [str(write_beir(tmp_path / "set"))]}
    with pytest.raises(InvalidRequest, match=message):
        plan(tmp_path, ["sqlite"], **options)
    assert not (tmp_path / "out").exists()


def test_no_measure_looks_deeper_than_k(tmp_path: Path) -> None:
    """With 50 hits there is no R@100: it was R@50 under another name."""
    for k, missing in ((50, {"R@100"}), (100, set())):
        for row in measure(tmp_path / str(k), ["exact"], k=k).quality:
            assert set(NAMES) - row.metrics.keys() == missing


def test_a_report_is_not_overwritten(tmp_path: Path) -> None:
    """A folder that holds a report is refused without --resume."""
    measure(tmp_path, ["memory"], modes=["keyword"])
    with pytest.raises(Conflict, match="holds a report already"):
        plan(tmp_path, ["memory"])


def test_an_unknown_model_is_refused(tmp_path: Path) -> None:
    """No backend is opened for a model that nobody serves."""
    with pytest.raises(NotFound, match="'none'"):
        measure(tmp_path, ["exact"], model="none")
    assert Exact.calls == []
