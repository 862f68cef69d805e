"""How good is retrieval? Runs every query of judged sets on every backend, in every mode.

    corral bench quality --data DIR --backends sqlite,faiss --modes vector,keyword,hybrid

A document is stored as one chunk through `Retrieval.store` and queries are asked through
`Retrieval.search`, the code that the server's routes call, so what is measured is what users get.
Foreign systems get the same chunks, texts and embeddings through their adapters.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from corral.api.chunks import Chunk
from corral.api.errors import ContractViolation, CorralError, InvalidRequest
from corral.bench.backends import Backend, Collection, Ranked, System, prepared
from corral.bench.data.embedded import EmbeddedSet, Embedding
from corral.bench.data.judged import JudgedSet
from corral.bench.data.trec import write_run
from corral.bench.quality.checks import check_answer
from corral.bench.quality.metrics import NDCG, measure
from corral.bench.quality.plan import Cell, QualityPlan, cell_key
from corral.bench.quality.results import FinishedCells, with_comparisons, with_documents
from corral.bench.quality.statistics import bootstrap, seed_of
from corral.bench.report.environment import begin_report
from corral.bench.report.report import Report, write_report
from corral.bench.report.rows import Failure, QualityRow

Advance = Callable[[int, int], None]
"""Called with the cells and the work that a step did, as `work_of` counts them."""

ADD_BATCH = 500
EMBED_WORK, ADD_WORK, QUERY_WORK = 20, 1, 2
"""About a millisecond each, for the estimate of the time that is left."""


async def work_of(plan: QualityPlan) -> tuple[int, int]:
    """Return how many cells a plan has and how much work they are, embedding included.

    Raises:
        NotFound, MissingDependency: The embedding model is not there.
    """
    cells = len(plan.all_cells())
    work = 0
    async with Embedding.opened(plan.config, plan.home, plan.model) as embedding:
        for judged in plan.sets:
            stored = len(plan.backends) * len(judged.documents) * ADD_WORK
            asked = cells * len(judged.queries) * QUERY_WORK
            work += embedding.missing(judged) * EMBED_WORK + stored + asked
    return cells * len(plan.sets), work


async def run_quality(plan: QualityPlan, advance: Advance = lambda cells, work: None) -> Report:
    """Measure everything that is planned and return the report, which `plan.out` then holds.

    The report is written after every cell. A backend that fails has a row that says why, and the
    others go on.

    Raises:
        InvalidRequest: The budget ended before anything was measured.
        NotFound, MissingDependency: The embedding model is not there.
        ProviderError: The embedding model failed.
    """
    async with Embedding.opened(plan.config, plan.home, plan.model) as embedding:
        run = _Run(plan, embedding, advance)
        try:
            for judged in plan.sets:
                await run.measure_set(judged)
        finally:  # what is finished has its comparisons after an interruption, too
            whole = with_comparisons(run.report, plan.seed)
            run.report = with_documents(whole, plan.sets, plan.out)
            write_report(run.report, plan.out)
    if plan.max_seconds is not None and run.out_of_time and not run.report.quality:
        raise InvalidRequest(
            f"--max-seconds {plan.max_seconds:g} was too small for one measurement.",
            hint="What was embedded is kept: with more time the same run gets further.",
            field="max_seconds",
        )
    run.report = run.report.done()
    write_report(run.report, plan.out)
    return run.report


class _OutOfTime(Exception):
    """The budget is used up."""


class _Run:
    """A run under way: the report so far, and the time that is left."""

    def __init__(self, plan: QualityPlan, embedding: Embedding, advance: Advance) -> None:
        self.plan = plan
        self.out_of_time = False
        self.report = begin_report(plan.command, plan.seed, plan.requires()).model_copy(
            update={
                "embedding_model": plan.model,
                "embedding_dimension": embedding.info.dimension,
                "baseline": plan.baseline or plan.all_cells()[0].label,
            }
        )
        self._embedding = embedding
        self._advance = advance
        self._finished = FinishedCells(plan.out)
        self._ends = time.monotonic() + (plan.max_seconds or float("inf"))

    async def measure_set(self, judged: JudgedSet) -> None:
        """Measure one set on all backends."""
        self.report = self.report.with_rows(judged.row())
        waiting = [(b, self._not_kept(judged, b)) for b in self.plan.backends]
        if not any(cells for _, cells in waiting):
            return
        try:
            embedded = await self._embedding.embed(judged, self._embedded)
        except _OutOfTime:
            for backend, _ in waiting:
                self._fail(backend, "budget", "No time was left after embedding.", judged)
            return
        for backend, cells in waiting:
            if cells:
                await self._measure_backend(backend, embedded, cells)

    async def _measure_backend(
        self, backend: Backend, embedded: EmbeddedSet, cells: list[Cell]
    ) -> None:
        judged, stage = embedded.judged, "start"
        collection = Collection(judged.name, self._embedding.info.dimension, judged.language)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            try:
                self._check_time()
                async with prepared(backend, Path(folder), collection) as system:
                    stage = "ingest"
                    await self._fill(system, embedded)
                    stage = "search"
                    for cell in cells:
                        await self._measure_cell(system, cell, embedded)
                    stage = "close"
            except _OutOfTime:
                self._fail(backend, "budget", "No time was left for all of it.", judged)
            except Exception as error:  # noqa: BLE001 - whatever a backend raises is its own row
                self._fail(backend, stage, said(error), judged)

    async def _fill(self, system: System, embedded: EmbeddedSet) -> None:
        """Store the documents, each as one chunk."""
        chunks = [
            Chunk(chunk_id=key, content=text)
            for key, text in zip(embedded.judged.documents, embedded.contents, strict=True)
        ]
        for start in range(0, len(chunks), ADD_BATCH):
            self._check_time()
            part = slice(start, start + ADD_BATCH)
            await system.add(chunks[part], embedded.documents[part])
            self._advance(0, len(chunks[part]) * ADD_WORK)
        await system.build()

    async def _measure_cell(self, system: System, cell: Cell, embedded: EmbeddedSet) -> None:
        """Ask all queries in one mode, and keep what was found as a row."""
        judged = embedded.judged
        try:
            answers, seconds = await self._ask(system, cell, embedded)
        except _OutOfTime:
            raise
        except Exception as error:  # noqa: BLE001 - one mode may fail where the others work
            stage = "check" if isinstance(error, ContractViolation) else "search"
            self._fail(cell.backend, stage, said(error), judged, cell)
            self._advance(1, len(judged.queries) * QUERY_WORK)
            return
        failures = []
        try:
            embedded.oracle.check_order(cell.mode, answers)
        except ContractViolation as error:
            failures.append(_failure(cell.backend, "check", said(error), judged, cell))
        row = self._row(cell, judged, answers, seconds)
        self._finished.keep(self._key(judged, cell), row, failures)
        self.report = self.report.with_rows(row, *failures)
        write_report(self.report, self.plan.out)
        self._advance(1, 0)

    async def _ask(
        self, system: System, cell: Cell, embedded: EmbeddedSet
    ) -> tuple[dict[str, Ranked], float]:
        """Return the checked answers by query id, and the seconds that they took."""
        ranker = cell.fusion.ranker if cell.fusion else None
        known, k, spent = embedded.judged.documents, self.plan.k, 0.0
        answers = {}
        pairs = zip(embedded.judged.queries.items(), embedded.queries, strict=True)
        for (key, text), embedding in pairs:
            self._check_time()
            start = time.perf_counter()
            found = await system.search(cell.mode, text, embedding, k, ranker=ranker)
            spent += time.perf_counter() - start
            check_answer(found, k, known)
            answers[key] = found
            self._advance(0, QUERY_WORK)
        return answers, spent

    def _row(
        self, cell: Cell, judged: JudgedSet, answers: dict[str, Ranked], seconds: float
    ) -> QualityRow:
        """Measure the answers, and write them as a TREC run."""
        run = {key: [one for one, _ in ranked] for key, ranked in answers.items()}
        path = Path("runs", judged.name, f"{cell.label.replace(':', '.').replace('/', '-')}.run")
        write_run(self.plan.out / path, run, cell.backend.name)
        values = measure(judged.qrels, run)
        seed = seed_of(self.plan.seed, judged.name, "bootstrap")
        return QualityRow(
            backend=cell.backend.name,
            mode=cell.mode.value,
            fusion=cell.fusion_label,
            ranker=cell.fusion.ranker.model_dump(mode="json") if cell.fusion else None,
            data_set=judged.name,
            n_queries=len(judged.queries),
            k=self.plan.k,
            seconds=seconds,
            metrics={name: bootstrap(list(of.values()), seed) for name, of in values.items()},
            ndcg_by_query=values[NDCG],
            run_file=path.as_posix(),
        )

    def _not_kept(self, judged: JudgedSet, backend: Backend) -> list[Cell]:
        """Take over finished cells of an interrupted run, and return the others."""
        cells = self.plan.cells(backend)
        if not self.plan.resume:
            return cells
        waiting = []
        for cell in cells:
            kept = self._finished.find(self._key(judged, cell))
            if kept is None:
                waiting.append(cell)
            else:
                self.report = self.report.with_rows(kept.row, *kept.failures)
                self._advance(1, len(judged.queries) * QUERY_WORK)
        if not waiting:
            self._advance(0, len(judged.documents) * ADD_WORK)
        return waiting

    def _key(self, judged: JudgedSet, cell: Cell) -> str:
        return cell_key(self.plan, judged, cell, self._embedding.info.dimension)

    def _embedded(self, texts: int) -> None:
        self._advance(0, texts * EMBED_WORK)
        self._check_time()

    def _check_time(self) -> None:
        if time.monotonic() > self._ends:
            self.out_of_time = True
            raise _OutOfTime

    def _fail(
        self,
        backend: Backend,
        stage: str,
        message: str,
        judged: JudgedSet,
        cell: Cell | None = None,
    ) -> None:
        self.report = self.report.with_rows(_failure(backend, stage, message, judged, cell))


def said(error: Exception) -> str:
    """Return what an error says to a reader of the report; foreign ones with their type."""
    return str(error) if isinstance(error, CorralError) else f"{type(error).__name__}: {error}"


def _failure(
    backend: Backend, stage: str, message: str, judged: JudgedSet, cell: Cell | None
) -> Failure:
    mode = cell.label.partition(":")[2] if cell else None
    return Failure(
        backend=backend.name, stage=stage, message=message, data_set=judged.name, mode=mode
    )
