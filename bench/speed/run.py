"""Measures speed: every backend on the same data, interleaved, each in a separate process.

    corral bench speed --backends all-inline --sizes 1k,10k --concurrency 1,4,16 --filters 1%,50%

All systems are filled first, a tenth at a time in turn, then asked in rounds: every cell (mode,
filter, concurrency) on every system, one after the other, before the next round begins. A machine's
speed drifts, so ratios to the baseline are computed within a round, and their median is shown.
Warm-up questions come first and do not count; their answers show whether the system works
correctly.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from corral.bench.backends import Backend
from corral.bench.data.corpus import Corpus, share_limit
from corral.bench.data.sources import corpus_of, percent
from corral.bench.report.report import Report, begin_report
from corral.bench.report.rows import Failure, Row, SpeedRow
from corral.bench.run import NO_TIME, Advance, Finished, OutOfTime, Run
from corral.bench.scratch import BATCH
from corral.bench.speed.checks import LEAST, SpeedChecks
from corral.bench.speed.load import Load
from corral.bench.speed.plan import BASELINE, CELL_SECONDS, PARTS, Cell, K, SpeedPlan
from corral.bench.speed.results import Measured, build_row, speed_rows
from corral.bench.speed.worker import Worker, WorkerFailed, spread

QUESTIONS = 200


async def run_speed(plan: SpeedPlan, advance: Advance = lambda sizes, work: None) -> Report:
    """Run the plan and return the report, which is also written to `plan.out`.

    The report is written after every source, a data set at one size. A resumed run
    keeps the finished sources and repeats an interrupted one, because its stored data is lost.

    Raises:
        InvalidRequest: The budget ended before anything was measured.
        NotFound, MissingDependency, ProviderError: Judged data could not be embedded.
    """
    run = Run(plan, advance, baseline=plan.baseline, embedding_model=plan.model)
    finished = Finished(plan, Report)
    for source in plan.sources:
        part = finished.find(plan.key(source))
        if part is None:
            corpus = await corpus_of(source, plan.config, plan.home, plan.model, QUESTIONS)
            rows = await Workload(plan, corpus, run.ends, advance).measure()
            part = begin_report(plan.command, plan.seed).with_rows(*rows)
            if not any(failure.stage == "budget" for failure in part.failures):
                finished.keep(plan.key(source), part)
        else:
            advance(0, plan.work)
        run.add(*part.rows)
        run.save()
        advance(1, 0)
    return run.finish(run.report.speed)


class Workload:
    """One corpus on all systems: they are filled, checked, then asked in rounds.

    Args:
        plan: The plan of the run.
        corpus: The data to measure on.
        ends: On the clock of `time.monotonic`; nothing starts after it.
        advance: Called with finished work, `plan.work` in total.
    """

    def __init__(self, plan: SpeedPlan, corpus: Corpus, ends: float, advance: Advance) -> None:
        self._plan = plan
        self._corpus = corpus
        self._ends = ends
        self._advance = advance
        self._workers: dict[str, Worker] = {}
        self._measured = {backend.name: Measured(backend) for backend in plan.backends}
        self._failures: list[Failure] = []
        self._random = np.random.default_rng(plan.seed)

    async def measure(self) -> list[Row]:
        """Measure all systems and return the rows."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            try:
                await self._start(Path(folder))
                await self._fill()
                await self._check()
                await self._ask()
            finally:
                for worker in self._workers.values():
                    worker.stop()
        measured = self._measured.values()
        builds = [build_row(one, self._bare(one) or self._base(), self._corpus) for one in measured]
        filled = [row for row in builds if row.insert_rate is not None]
        asked = [row for one in measured for row in self._speed_rows(one)]
        return [self._corpus.row(), *filled, *asked, *self._failures]

    async def _start(self, folder: Path) -> None:
        corpus = self._corpus
        for number, backend in enumerate(self._plan.backends):
            scratch = folder / f"system-{number}"
            scratch.mkdir()
            questions = corpus.questions, corpus.asked
            self._workers[backend.name] = Worker(backend, scratch, questions)
            await self._call(backend, "start", "prepare", corpus.collection)

    async def _fill(self) -> None:
        """Store a tenth on each system in turn, until all is stored; then build the indexes."""
        for start, end in spread(len(self._corpus.texts), PARTS):
            for backend in self._in_turn():
                await self._store(backend, start, end)
                self._advance(0, 1)
        last = self._corpus.chunks(-1)[0], self._corpus.embeddings[-1]
        for backend in self._in_turn():
            ready = await self._call(backend, "ingest", "ready", *last)
            self._measured[backend.name].ready = ready

    async def _store(self, backend: Backend, start: int, end: int) -> None:
        spent = 0.0
        for first in range(start, end, BATCH):
            until = min(first + BATCH, end)
            rows = self._corpus.embeddings[first:until]
            chunks = self._corpus.chunks(first, until)
            seconds = await self._call(backend, "ingest", "add", chunks, rows)
            if seconds is None:
                return
            spent += seconds
        self._measured[backend.name].inserts.append((end - start, spent))

    async def _check(self) -> None:
        """Warm up every system, check its answers, and measure its footprint."""
        checks = SpeedChecks(self._corpus, K)
        kinds = dict.fromkeys((cell.mode, cell.selectivity) for cell in self._plan.cells())
        for backend in self._in_turn():
            for mode, selectivity in kinds:
                if not _can(backend, Cell(mode, selectivity, 1)):
                    continue
                asked = (mode, selectivity, K, checks.number)
                answers = await self._call(backend, "search", "answers", *asked, mode=mode)
                if answers is not None:
                    right = checks.right(mode, selectivity, answers)
                    self._judge(backend, mode.value, selectivity, right)
            footprint = await self._call(backend, "search", "footprint")
            self._measured[backend.name].footprint = footprint

    def _judge(self, backend: Backend, mode: str, selectivity: float | None, right: float) -> None:
        self._measured[backend.name].right[mode, selectivity] = right
        if right < LEAST:
            filtered = f" with a {percent(selectivity)} filter" if selectivity is not None else ""
            self._fail(
                backend,
                "check",
                f"Its answers{filtered} hold {right:.2f} of what can be found: its times there are "
                "not those of a right answer.",
                mode,
            )

    async def _ask(self) -> None:
        """Ask in rounds, each cell on each backend in turn."""
        plan = self._plan
        most = max(1, plan.queries // plan.rounds)
        for number in range(plan.rounds):
            for cell in plan.cells():
                load = Load(
                    cell.mode,
                    K,
                    share_limit(cell.selectivity),
                    cell.concurrency,
                    max(most, cell.concurrency),
                    CELL_SECONDS / plan.rounds,
                )
                for backend in self._in_turn():
                    await self._round(backend, cell, load, number * most)
                    self._advance(0, 1)

    async def _round(self, backend: Backend, cell: Cell, load: Load, first: int) -> None:
        one, kind = self._measured[backend.name], (cell.mode.value, cell.selectivity)
        spent = sum(timed.seconds for timed in one.rounds.get(cell, ()))
        if kind not in one.right or kind in one.failed or spent >= CELL_SECONDS:
            return  # it does not support this, has failed, or needed all the time for one round
        timed = await self._call(backend, "search", "load", load, first, mode=cell.mode)
        if timed is None:
            one.failed.add(kind)
        else:
            one.rounds.setdefault(cell, []).append(timed)

    async def _call(
        self, backend: Backend, stage: str, what: str, *arguments: Any, mode: str | None = None
    ) -> Any:
        """Return the worker's result; if it fails, add a row with the failure and return None."""
        worker = self._workers.get(backend.name)
        if worker is None:
            return None
        try:
            return await worker.call(what, *arguments, ends=self._ends)
        except OutOfTime:
            self._fail(backend, "budget", NO_TIME, mode)
            self._workers.pop(backend.name).stop()
            return None
        except WorkerFailed as error:
            self._fail(backend, stage, str(error), mode)
            if mode is None or not worker.alive:
                self._workers.pop(backend.name).stop()
            return None

    def _fail(self, backend: Backend, stage: str, message: str, mode: str | None = None) -> None:
        failure = Failure(
            backend=backend.name,
            stage=stage,
            message=message,
            data_set=self._corpus.name,
            mode=mode,
        )
        if failure not in self._failures:
            self._failures.append(failure)

    def _in_turn(self) -> list[Backend]:
        """Return the backends in a new order, so that none always follows the same one."""
        backends = self._plan.backends
        return [backends[n] for n in self._random.permutation(len(backends))]

    def _base(self) -> Measured | None:
        """Return the reference systems for the backends."""
        return self._measured.get(self._plan.baseline)

    def _bare(self, one: Measured) -> Measured | None:
        """Return the bare engine of a backend, unless the user chose other references."""
        entry = one.backend.entry
        if entry is None or self._plan.baseline != BASELINE:
            return None
        engines = (
            other
            for other in self._measured.values()
            if entry.provider_type in other.backend.kind.engine_of
        )
        return next(engines, None)

    def _speed_rows(self, one: Measured) -> list[SpeedRow]:
        rows = speed_rows(one, self._base(), self._corpus, K)
        if bare := self._bare(one):
            beside = speed_rows(one, bare, self._corpus, K)
            pairs = zip(beside, rows, strict=True)
            rows = [row if row.ratio is not None else other for row, other in pairs]
        return rows


def _can(backend: Backend, cell: Cell) -> bool:
    """Return True if a backend supports the mode, and the filter if there is one."""
    return cell.mode in backend.modes and (cell.selectivity is None or backend.kind.filters)
