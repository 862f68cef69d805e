"""A speed run has a figure for every cell, and its failures and wrong answers have rows."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from corral.api.errors import Conflict, InvalidRequest, UnknownProvider
from corral.api.vector_dbs import SearchMode
from corral.bench.backends import Backend, find_backends
from corral.bench.data.corpus import synthetic_corpus
from corral.bench.peers.exact import Exact
from corral.bench.report.report import Report, read_report
from corral.bench.report.speed_sections import speed_tables
from corral.bench.run import OutOfTime
from corral.bench.speed import run as speed
from corral.bench.speed.load import Timed
from corral.bench.speed.plan import Cell, SpeedPlan, make_speed_plan
from corral.bench.speed.results import Measured, build_row, speed_rows
from corral.bench.speed.worker import (
    Ready,
    Session,
    Worker,
    WorkerFailed,
    folder_mib,
    memory_mib,
    spread,
)
from corral.server.cli.cli import main

ABSENT = "pgvector-direct=host=127.0.0.1 port=1 connect_timeout=1"


def plan_of(folder: Path, **options: Any) -> SpeedPlan:
    """Return a small plan."""
    given = {"backends": ["exact"], "sizes": ["200"], "rounds": 2, "queries": 8, **options}
    return make_speed_plan(out=folder / "out", home=folder / "home", **given)


class Here:
    """Stands in for `Worker`: the session runs in this process."""

    systems: ClassVar[dict[str, type[Exact]]] = {}

    def __init__(self, backend: Backend, scratch: Path, questions: Any) -> None:
        kind = self.systems[backend.name]
        self._session = Session(kind(backend.name, scratch), questions, searchable_seconds=0.05)
        self.alive = True

    async def call(self, what: str, *arguments: Any, ends: float = 0) -> Any:
        try:
            return await getattr(self._session, what)(*arguments)
        except RuntimeError as error:
            raise WorkerFailed(str(error)) from error

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class Worst(Exact):
    """The farthest first."""

    def _nearest(
        self, embedding: NDArray[np.float32], k: int, passing: NDArray[np.bool_] | None
    ) -> list[tuple[str, float, float]]:
        return [(i, 1 - s, -r) for i, s, r in super()._nearest(embedding, 200, passing)[::-1][:k]]


class Breaking(Exact):
    """Keyword search does not work."""

    def _worded(self, *_: Any) -> list[tuple[str, float, float]]:
        raise RuntimeError("no words here")


def run_here(
    monkeypatch: pytest.MonkeyPatch, folder: Path, kinds: dict[str, type[Exact]], **options: Any
) -> Report:
    """Run a plan whose backends are these classes."""
    monkeypatch.setattr(speed, "Worker", Here)
    monkeypatch.setattr(Here, "systems", kinds)
    plan = plan_of(folder, backends=list(kinds), **options)
    return asyncio.run(speed.run_speed(plan))


async def test_every_cell_is_measured_in_processes_of_their_own(tmp_path: Path) -> None:
    """Rows for mode x filter x concurrency of each backend; what cannot start has a row, too."""
    options: dict[str, Any] = {"filters": ["10%"], "concurrency": [1, 3]}
    plan = plan_of(tmp_path, backends=["sqlite", ABSENT], **options)
    done: list[tuple[int, int]] = []
    report = await speed.run_speed(plan, lambda *step: done.append(step))
    assert read_report(tmp_path / "out") == report
    [failure] = report.failures
    assert (failure.backend, failure.stage) == ("pgvector-direct", "start")
    cells = {(r.backend, r.mode, r.selectivity, r.concurrency) for r in report.speed}
    modes, filters = ("vector", "keyword", "hybrid"), (None, 0.1)
    assert cells == {
        (name, mode, share, level)
        for name in ("sqlite", "exact")
        for mode in modes
        for share in filters
        for level in (1, 3)
    }
    for row in report.speed:
        assert 0 < row.p50_ms <= row.p95_ms <= row.p99_ms == pytest.approx(row.p99_ms)
        assert row.n_queries == len(row.samples_ms) >= 6
        assert (row.baseline, row.ratio is not None) == ("exact", True)
        assert row.recall_vs_exact == (1.0 if row.mode == "vector" else None)
        if row.backend == "exact":
            assert row.ratio == 1
    assert {row.backend for row in report.builds} == {"sqlite", "exact"}
    for build in report.builds:
        assert build.insert_rate
        assert build.seconds_until_searchable is not None
        assert build.memory_mib is not None
        assert build.disk_mib is not None
    assert sum(units for units, _ in done) == 1
    assert sum(work for _, work in done) == plan.work


def test_a_finished_size_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run measures what is new only, and refuses to write over another's report."""
    first = run_here(monkeypatch, tmp_path, {"exact": Exact})
    with pytest.raises(Conflict):
        plan_of(tmp_path)
    more: dict[str, Any] = {"sizes": ["200", "250"], "resume": True}
    again = run_here(monkeypatch, tmp_path, {"exact": Exact}, **more)
    assert again.speed[: len(first.speed)] == first.speed
    assert [row.size for row in again.builds] == [200, 250]


def test_a_wrong_answer_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The farthest first: its recall stands beside its speed, and a failed check says what it is.

    If this fails: a backend is fast because it does not do the work.
    """
    report = run_here(monkeypatch, tmp_path, {"memory": Worst, "exact": Exact})
    found = {build.backend: build.seconds_until_searchable for build in report.builds}
    assert found["memory"] is None
    assert found["exact"] is not None
    [check] = [failure for failure in report.failures if failure.mode == "vector"]
    assert (check.backend, check.stage) == ("memory", "check")
    assert "0.00 of what can be found" in check.message
    recalls = {row.backend: row.recall_vs_exact for row in report.speed if row.mode == "vector"}
    assert recalls == {"memory": 0.0, "exact": 1.0}


def test_one_mode_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails has a row that says why; the other modes and backends are measured."""
    report = run_here(monkeypatch, tmp_path, {"memory": Breaking, "exact": Exact})
    assert {(f.backend, f.stage, f.mode) for f in report.failures} == {
        ("memory", "search", "keyword"),
        ("memory", "search", "hybrid"),
    }
    measured = {(row.backend, row.mode) for row in report.speed}
    assert ("memory", "vector") in measured
    assert ("exact", "hybrid") in measured
    assert ("memory", "keyword") not in measured


async def test_a_run_ends_when_its_time_is_up(tmp_path: Path) -> None:
    """Each backend's row says so, and the part is not taken for finished."""
    plan = plan_of(tmp_path, sizes=["20k"], max_seconds=2.0)
    begin = time.monotonic()
    with pytest.raises(InvalidRequest, match="too small for one measurement"):
        await speed.run_speed(plan)
    assert time.monotonic() - begin < 30
    assert {f.stage for f in read_report(tmp_path / "out").failures} == {"budget"}
    assert not (tmp_path / "out" / "cells").exists()


async def test_a_worker_that_ends_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exit code is told, and one that hangs is killed when the time is up."""
    corpus = synthetic_corpus(20, 8, 2)
    questions = corpus.questions, corpus.asked
    [backend] = find_backends(["exact"])
    worker = Worker(backend, tmp_path, questions)
    await worker.call("prepare", corpus.collection)
    with pytest.raises(WorkerFailed, match="AttributeError"):
        await worker.call("no such method")
    worker.kill()
    with pytest.raises(WorkerFailed, match="process ended"):
        await worker.call("prepare", corpus.collection)
    worker = Worker(backend, tmp_path, questions)
    with pytest.raises(OutOfTime):
        await worker.call("footprint", ends=time.monotonic() - 1)
    assert worker.alive, "it was not asked"
    worker.kill()
    worker = Worker(backend, tmp_path, questions, call_seconds=-1.0)
    with pytest.raises(WorkerFailed, match="No answer within"):
        await worker.call("footprint")
    assert not worker.alive


async def test_an_interrupted_worker_closes_its_system(tmp_path: Path) -> None:
    """`stop` waits for the call that was given up, then for the system's own end."""
    corpus = synthetic_corpus(20, 8, 2)
    [backend] = find_backends(["exact"])
    worker = Worker(backend, tmp_path, (corpus.questions, corpus.asked))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(worker.call("prepare", corpus.collection), 0.01)
    worker.stop()
    assert not worker.alive
    assert worker.exit_code == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sizes": []}, "Neither --sizes nor --data"),
        ({"sizes": ["many"]}, "is not a size"),
        ({"modes": ["telepathy"]}, "telepathy"),
        ({"filters": ["200%"]}, "is not a share"),
        ({"concurrency": [0]}, "concurrency"),
        ({"rounds": 0}, "rounds"),
        ({"max_seconds": 0.1}, "too small for one measurement"),
        (
            {"backends": ["faiss-flat"], "baseline": "faiss-flat", "modes": ["keyword"]},
            "has the mode",
        ),
        ({"backends": ["pgvector-direct"]}, "pgvector-direct=ADDRESS"),
    ],
)
def test_bad_input_is_refused_before_any_work(
    given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """The message names what is wrong, and nothing was written."""
    with pytest.raises(InvalidRequest, match=message):
        plan_of(tmp_path, **given)
    with pytest.raises(UnknownProvider, match="sqlitt"):
        plan_of(tmp_path, backends=["sqlitt"])
    assert list(tmp_path.iterdir()) == []


def test_ratios_are_medians_of_rounds() -> None:
    """Each round is compared with the baseline's own round, percentiles are of all answers."""
    cell = Cell(SearchMode.KEYWORD, None, 1)
    ours, theirs = map(Measured, find_backends(["sqlite", "exact"]))
    ours.rounds[cell] = [Timed((0.002,) * 3, 0.006), Timed((0.008,) * 3, 0.03), Timed((0.003,), 1)]
    theirs.rounds[cell] = [Timed((0.001,) * 3, 1), Timed((0.002,) * 3, 1), Timed((0.003,), 1)]
    corpus = synthetic_corpus(20, 8, 2)
    [row] = speed_rows(ours, theirs, corpus, 10)
    assert row.ratio == pytest.approx(2)
    assert row.throughput_qps == pytest.approx(100)
    assert row.n_queries == 7
    assert row.p50_ms == pytest.approx(3)
    [alone] = speed_rows(ours, None, corpus, 10)
    assert (alone.ratio, alone.baseline) == (None, None)


def test_ratios_are_made_to_the_bare_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend is compared with its own engine where that is measured and has the mode.

    All others are compared with the baseline, and so is this one where somebody has chosen one.

    If this fails: a ratio to brute force is taken for what Corral adds to an engine.
    """
    kinds: dict[str, type[Exact]] = {"sqlite": Exact, "faiss-flat": Exact, "exact": Exact}
    report = run_here(monkeypatch, tmp_path / "a", kinds, modes=["vector", "keyword"])
    assert {(row.backend, row.mode): row.baseline for row in report.speed} == {
        ("sqlite", "vector"): "faiss-flat",
        ("sqlite", "keyword"): "exact",
        ("faiss-flat", "vector"): "exact",
        ("exact", "vector"): "exact",
        ("exact", "keyword"): "exact",
    }
    built = {row.backend: row.baseline for row in report.builds}
    assert built == {"sqlite": "faiss-flat", "faiss-flat": "exact", "exact": "exact"}
    [table] = [table for _, table in speed_tables(report)]
    assert [getattr(row[6], "note", "") for row in table.cells].count("faiss-flat") == 1
    chosen = run_here(
        monkeypatch, tmp_path / "b", kinds, modes=["vector"], baseline="sqlite", queries=6
    )
    assert {row.baseline for row in chosen.speed} == {"sqlite"}


def test_the_rate_of_inserts_counts_what_was_put_off(tmp_path: Path) -> None:
    """txtai stores everything in `build`; a rate of its `add` alone would be of nothing."""
    [txtai, base] = find_backends(["txtai", "exact"])
    for backend, rate in ((txtai, 20 / 2.5), (base, 20 / 0.5)):
        one = Measured(backend, inserts=[(10, 0.2), (10, 0.3)])
        one.ready = Ready(2.0, 2.1)
        assert one.rate == pytest.approx(rate)
        row = build_row(one, None, synthetic_corpus(20, 8, 2))
        assert row.first_tenth_rate == (None if backend is txtai else pytest.approx(50))


def test_weights_are_of_blocks_and_of_the_whole_family(tmp_path: Path) -> None:
    """A sparse file takes what it holds, and memory is known here."""
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(50 * 2**20)
    (tmp_path / "dense").write_bytes(b"x" * 2**20)
    assert 0.9 < folder_mib(tmp_path) < 2
    assert (memory_mib() or 0) > 10


def test_parts_cover_everything() -> None:
    """Ten parts, or as many as there are rows; together they are all rows."""
    assert spread(25, 10)[0] == (0, 2)
    for rows in (1, 9, 10, 11, 1000):
        parts = spread(rows, 10)
        assert [n for start, end in parts for n in range(start, end)] == list(range(rows))
        assert all(end > start for start, end in parts)


def test_the_command_line_shows_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`corral bench speed` prints its tables and leaves the reports."""
    monkeypatch.setenv("CORRAL_HOME", str(tmp_path / "home"))
    common = ["--modes", "vector,keyword", "--filters", "10%"]
    small = ["--sizes", "200", "--concurrency", "1,2", "--queries", "6", "--rounds", "2"]
    runner = CliRunner()
    out = tmp_path / "speed"
    done = runner.invoke(main, ["bench", "speed", *common, *small, "--out", str(out)])
    assert done.exit_code == 0, done.output
    for shown in (
        "synthetic-200, 200 chunks, storing",
        "x2: answers a second",
        "sqlite",
        "exact",
        "10 %",
    ):
        assert shown in done.stdout
    assert (out / "report.html").exists()
    done = runner.invoke(main, ["bench", "speed", "--concurrency", "some"])
    assert done.exit_code == 2
    assert "takes a list of numbers, got 'some'" in done.stderr
