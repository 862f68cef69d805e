"""One data set of one size, measured on all systems at once, each in its own process."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from corral.bench.backends import Backend
from corral.bench.data.corpus import Corpus, share_limit, write_corpus
from corral.bench.data.sources import Source, corpus_of, percent
from corral.bench.report.report import Report
from corral.bench.report.rows import BuildRow, Failure, SpeedRow
from corral.bench.run import NO_TIME, Advance, OutOfTime
from corral.bench.speed.checks import LEAST, SpeedChecks
from corral.bench.speed.load import Load
from corral.bench.speed.plan import (
    BASELINE,
    CELL_SHARE,
    INSERTS_PER_SECOND,
    LEAST_SECONDS,
    Cell,
    SpeedPlan,
)
from corral.bench.speed.results import Measured, build_row, overheads, speed_rows
from corral.bench.speed.session import spread
from corral.bench.speed.worker import INDEX, Entrant, Worker, WorkerFailed
from corral.providers.embedding.hashing.embedder import embed_text

PARTS = 10
"""In so many parts the data are stored, on each system in turn."""
QUESTIONS = 200
CALL_SECONDS = 600.0
"""A system that is at one step for so long hangs, and is ended."""


class Workload:
    """All systems are filled, then checked, then asked in rounds.

    Args:
        plan: The run that this is a part of.
        source: What is measured on.
        served: Whether backends are measured against themselves behind a server.
        ends: On the clock of `time.monotonic`; nothing is begun after it.
        advance: For the work that is done, `plan.seconds` of this workload in all.
    """

    def __init__(
        self, plan: SpeedPlan, source: Source, served: bool, ends: float, advance: Advance
    ) -> None:
        self._plan = plan
        self._source = source
        self._served = served
        self._ends = ends
        self._advance = advance
        self._entrants = plan.entrants(served=served)
        self._workers: dict[str, Worker] = {}
        self._measured = {c.label: Measured(c, _remote(c.backend)) for c in self._entrants}
        self._failures: list[Failure] = []
        self._random = np.random.default_rng(plan.seed)
        self._work_left = round(plan.seconds(source, served=served) * 100)

    async def measure(self, part: Report) -> Report:
        """Return a report with its rows only."""
        self._corpus = await self._make_corpus()
        part = part.with_rows(self._corpus.row())
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            folder = Path(name)
            write_corpus(self._corpus, folder)
            try:
                await self._start(folder)
                await self._fill()
                await self._check()
                await self._ask()
            finally:
                for worker in self._workers.values():
                    worker.stop()
        self._advance(0, self._work_left)
        rows = self._rows()
        notes = overheads(rows) if self._served else []
        builds = [] if self._served else [self._build(one) for one in self._measured.values()]
        filled = [row for row in builds if row.insert_rate is not None]
        part = part.with_rows(*filled, *(r for each in rows.values() for r in each))
        part = part.with_rows(*self._failures)
        return part.model_copy(update={"notes": tuple(notes)})

    async def _make_corpus(self) -> Corpus:
        plan = self._plan
        made = await corpus_of(self._source, plan.config, plan.home, plan.model, QUESTIONS)
        return _hashed(made) if self._served else made

    async def _start(self, folder: Path) -> None:
        for number, entrant in enumerate(self._entrants):
            scratch = folder / f"system-{number}"
            scratch.mkdir()
            self._workers[entrant.label] = Worker(entrant, folder, scratch)
            await self._call(entrant, "start", "prepare")
            self._progress(LEAST_SECONDS)

    async def _fill(self) -> None:
        """Store a tenth on each in turn, until all is stored; then have it made searchable."""
        for start, end in spread(len(self._corpus.texts), PARTS):
            for entrant in self._in_turn():
                seconds = await self._call(entrant, "ingest", "add", start, end)
                if seconds is not None:
                    self._measured[entrant.label].inserts.append((end - start, seconds))
                self._progress((end - start) / INSERTS_PER_SECOND)
        for entrant in self._in_turn():
            self._measured[entrant.label].ready = await self._call(entrant, "ingest", "ready")

    async def _check(self) -> None:
        """Warm everything up, see whether the answers are right, and measure the footprint."""
        checks = SpeedChecks(self._corpus, self._plan.k)
        kinds = dict.fromkeys((cell.mode, cell.selectivity) for cell in self._cells())
        for entrant in self._in_turn():
            for mode, selectivity in kinds:
                if not _can(entrant.backend, Cell(mode, selectivity, 1)):
                    continue
                asked = (mode, selectivity, self._plan.k, checks.number)
                answers = await self._call(entrant, "search", "answers", *asked, mode=mode)
                if answers is not None:
                    self._judge(
                        entrant,
                        mode.value,
                        selectivity,
                        checks.right(mode, selectivity, answers),
                    )
            self._measured[entrant.label].footprint = await self._call(
                entrant, "search", "footprint"
            )

    def _judge(self, entrant: Entrant, mode: str, selectivity: float | None, right: float) -> None:
        self._measured[entrant.label].right[mode, selectivity] = right
        if right < LEAST:
            filtered = f" with a {percent(selectivity)} filter" if selectivity is not None else ""
            self._fail(
                entrant,
                "check",
                f"Its answers{filtered} hold {right:.2f} of what can be found: its times there are "
                "not those of a right answer. `corral bench fidelity` tells why.",
                mode,
            )

    async def _ask(self) -> None:
        """Ask in rounds: each cell on each entrant in turn."""
        plan = self._plan
        most = max(1, plan.queries // plan.rounds)
        for number in range(plan.rounds):
            for cell in self._cells():
                load = Load(
                    cell.mode,
                    plan.k,
                    share_limit(cell.selectivity),
                    cell.concurrency,
                    max(most, cell.concurrency),
                    plan.cell_seconds / plan.rounds,
                )
                for entrant in self._in_turn():
                    await self._round(entrant, cell, load, number * most)
                    self._progress(plan.cell_seconds * CELL_SHARE / plan.rounds)

    async def _round(self, entrant: Entrant, cell: Cell, load: Load, first: int) -> None:
        one, kind = self._measured[entrant.label], (cell.mode.value, cell.selectivity)
        spent = sum(timed.seconds for timed in one.rounds.get(cell, ()))
        if kind not in one.right or kind in one.failed or spent >= self._plan.cell_seconds:
            return  # it cannot, or could not, or is so slow that one round took all the time
        timed = await self._call(entrant, "search", "load", load, first, mode=cell.mode)
        if timed is None:
            one.failed.add(kind)
        else:
            one.rounds.setdefault(cell, []).append(timed)

    async def _call(
        self,
        entrant: Entrant,
        stage: str,
        what: str,
        *arguments: Any,
        mode: str | None = None,
    ) -> Any:
        """Return the worker's answer; None where it failed, which its row then says."""
        worker = self._workers.get(entrant.label)
        if worker is None:
            return None
        begin = time.monotonic()
        try:
            if begin > self._ends:
                worker.stop()
                raise OutOfTime
            answer = await worker.call(what, *arguments, ends=min(self._ends, begin + CALL_SECONDS))
        except OutOfTime:
            if time.monotonic() > self._ends:
                self._fail(entrant, "budget", NO_TIME, mode)
            else:
                self._fail(entrant, stage, f"No answer within {CALL_SECONDS:g} s.", mode)
            self._workers.pop(entrant.label)
            return None
        except WorkerFailed as error:
            self._fail(entrant, stage, str(error), mode)
            if mode is None or not worker.alive:
                self._workers.pop(entrant.label).stop()
            return None
        return answer

    def _fail(self, entrant: Entrant, stage: str, message: str, mode: str | None = None) -> None:
        failure = Failure(
            backend=entrant.label,
            stage=stage,
            message=message,
            data_set=self._corpus.name,
            mode=mode,
        )
        if failure not in self._failures:
            self._failures.append(failure)

    def _in_turn(self) -> list[Entrant]:
        """Return the entrants in a new order, so that none always follows the same one."""
        return [self._entrants[n] for n in self._random.permutation(len(self._entrants))]

    def _cells(self) -> list[Cell]:
        return self._plan.cells(served=self._served)

    def _base(self, one: Measured) -> Measured | None:
        """Return what an entrant is compared with."""
        for other in self._measured.values():
            same = other.entrant.backend == one.entrant.backend
            if self._served and same and other.entrant.variant == INDEX:
                return other
            if not self._served and other.entrant.backend.name == self._plan.baseline:
                return other
        return None

    def _bare(self, one: Measured) -> Measured | None:
        """Return the bare engine of a backend, unless somebody chose what to compare with."""
        entry = one.entrant.backend.entry
        if entry is None or self._served or self._plan.baseline != BASELINE:
            return None
        for other in self._measured.values():
            if entry.provider_type in other.entrant.backend.kind.engine_of:
                return other
        return None

    def _rows(self) -> dict[str, list[SpeedRow]]:
        found = {}
        for name, one in self._measured.items():
            base = self._base(one)
            label = base.entrant.label if base else ""
            rows = speed_rows(one, base, self._corpus, self._plan.k, label)
            if bare := self._bare(one):
                label = bare.entrant.label
                beside = speed_rows(one, bare, self._corpus, self._plan.k, label)
                pairs = zip(beside, rows, strict=True)
                rows = [row if row.ratio is not None else other for row, other in pairs]
            found[name] = rows
        return found

    def _build(self, one: Measured) -> BuildRow:
        return build_row(one, self._bare(one) or self._base(one), self._corpus)

    def _progress(self, seconds: float) -> None:
        """Count a step that was expected to take so long; the bar estimates from what it took."""
        done = min(self._work_left, round(seconds * 100))
        self._work_left -= done
        self._advance(0, done)


def _can(backend: Backend, cell: Cell) -> bool:
    """Return whether a backend has the mode, and filters where there is one."""
    return cell.mode in backend.modes and (cell.selectivity is None or backend.kind.filters)


def _remote(backend: Backend) -> bool:
    """Return whether a backend keeps its data elsewhere."""
    if backend.entry is not None:
        return backend.entry.provider_type.startswith("remote::")
    return backend.kind.service


def _hashed(corpus: Corpus) -> Corpus:
    """Return a corpus whose embeddings are those that a server's `inline::hashing` makes."""
    dimension = corpus.embeddings.shape[1]
    rows = np.stack([embed_text(text, dimension) for text in corpus.texts])
    asked = np.stack([embed_text(text, dimension) for text in corpus.questions])
    return replace(corpus, embeddings=rows, asked=asked)
