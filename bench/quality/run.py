"""Measures retrieval quality: runs every query of judged sets on every backend in every mode.

    corral bench quality --data DIR --backends sqlite,faiss --modes vector,keyword,hybrid

A document is stored as one chunk through `Retrieval.store` and queries are asked through
`Retrieval.search`, the code that the server's routes call, so the figures apply to users. Foreign
systems (`peers`) get the same chunks, texts and embeddings.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from corral.api.chunks import Chunk
from corral.api.errors import ContractViolation
from corral.bench.backends import Backend
from corral.bench.data.embedded import EmbeddedSet, Embedding
from corral.bench.data.judged import JudgedSet
from corral.bench.data.readers import write_run
from corral.bench.quality.checks import OrderChecks, check_answer
from corral.bench.quality.metrics import AGREES, NDCG, measure, measured
from corral.bench.quality.plan import Cell, QualityPlan, cell_key
from corral.bench.quality.results import FinishedCell, with_comparisons, with_documents
from corral.bench.quality.statistics import bootstrap, seed_of
from corral.bench.report.report import Report
from corral.bench.report.rows import QualityRow
from corral.bench.run import (
    Advance,
    Finished,
    OutOfTime,
    Run,
    fill,
    said,
)
from corral.bench.stopwatch import clocked
from corral.bench.system import Collection, Ranked, Search, System

EMBED_WORK, ADD_WORK, QUERY_WORK = 20, 1, 2
"""Relative work of embedding, storing and querying one text, to estimate the remaining time."""


def work_of(plan: QualityPlan) -> tuple[int, int]:
    """Return the number of a plan's cells and the amount of their work, with embedding."""
    cells = len(plan.all_cells())
    work = 0
    for judged in plan.sets:
        stored = len(plan.backends) * len(judged.documents) * ADD_WORK
        asked = cells * len(judged.queries) * QUERY_WORK
        work += _texts(judged) * EMBED_WORK + stored + asked
    return cells * len(plan.sets), work


def _texts(judged: JudgedSet) -> int:
    return len(judged.documents) + len(judged.queries)


async def run_quality(plan: QualityPlan, advance: Advance = lambda cells, work: None) -> Report:
    """Carry out the plan and return the report, which is also written to `plan.out`.

    The report is written after every cell. A failed backend gets a row with the reason, and the
    others continue.

    Raises:
        InvalidRequest: The budget ended before anything was measured.
        NotFound, MissingDependency: The embedding model is missing.
        ProviderError: The embedding model failed.
    """
    async with Embedding.opened(plan.config, plan.home, plan.model) as embedding:
        run = _QualityRun(plan, embedding, advance)
        try:
            for judged in plan.sets:
                await run.measure_set(judged)
        finally:  # so that finished cells have comparisons even after an interruption
            whole = with_comparisons(run.report, plan.seed)
            run.report = with_documents(whole, plan.sets, plan.out)
            run.save()
    hint = "What was embedded is kept: with more time the same run gets further."
    return run.finish(run.report.quality, hint)


class _QualityRun(Run):
    """A run in progress, with the embedding model."""

    def __init__(self, plan: QualityPlan, embedding: Embedding, advance: Advance) -> None:
        baseline = plan.baseline or plan.all_cells()[0].label
        dimension = embedding.info.dimension
        about = {"embedding_model": plan.model, "embedding_dimension": dimension}
        super().__init__(plan, advance, baseline=baseline, **about)
        self.plan = plan
        self._embedding = embedding
        self._finished = Finished(plan, FinishedCell)

    async def measure_set(self, judged: JudgedSet) -> None:
        """Measure one set on all backends."""
        self.add(judged.row())
        waiting = [(b, self._unfinished(judged, b)) for b in self.plan.backends]
        if not any(cells for _, cells in waiting):
            self.advance(0, _texts(judged) * EMBED_WORK)
            return
        try:
            embedded = await self._embedding.embed(
                judged, lambda texts: self.step("embed", texts * EMBED_WORK)
            )
        except OutOfTime:
            for backend, _ in waiting:
                self.fail(backend, "budget", "No time was left after embedding.", judged.name)
            return
        embedding = self._embedding
        collection = Collection(
            judged.name, embedding.info.dimension, judged.language, embedding.tokenizer
        )
        for backend, cells in waiting:
            if cells:
                await self.on(backend, collection, partial(self._measure, cells, embedded))

    async def _measure(self, cells: list[Cell], embedded: EmbeddedSet, system: System) -> None:
        """Store the documents, each as one chunk, and measure the cells."""
        chunks = [
            Chunk(chunk_id=key, content=text)
            for key, text in zip(embedded.judged.documents, embedded.contents, strict=True)
        ]
        await fill(system, chunks, embedded.documents, self.step)
        checks = OrderChecks(embedded.judged, embedded.documents, embedded.queries)
        for cell in cells:
            await self._measure_cell(system, cell, embedded, checks)
        self.stage = "close"

    async def _measure_cell(
        self, system: System, cell: Cell, embedded: EmbeddedSet, checks: OrderChecks
    ) -> None:
        """Ask all queries in one mode, and add a row with the result."""
        judged, mode = embedded.judged, cell.label.partition(":")[2]
        try:
            answers, seconds = await self._ask(system, cell, embedded)
        except OutOfTime:
            raise
        except Exception as error:  # noqa: BLE001 - the report lists it; other modes go on
            stage = "check" if isinstance(error, ContractViolation) else "search"
            self.fail(cell.backend, stage, said(error), judged.name, mode)
            self.advance(1, len(judged.queries) * QUERY_WORK)
            return
        row, before = self._row(cell, judged, answers, seconds, checks), len(self.report.failures)
        try:
            checks.check_order(cell.mode, answers)
        except ContractViolation as error:
            self.fail(cell.backend, "check", said(error), judged.name, mode)
        self.add(row)
        found = FinishedCell(row=row, failures=self.report.failures[before:])
        self._finished.keep(self._key(judged, cell), found)
        self.save()
        self.advance(1, 0)

    async def _ask(
        self, system: System, cell: Cell, embedded: EmbeddedSet
    ) -> tuple[dict[str, Ranked], float]:
        """Return the checked answers by query id, and the elapsed seconds."""
        known, k, spent = embedded.judged.documents, self.plan.k, 0.0
        answers = {}
        pairs = zip(embedded.judged.queries.items(), embedded.queries, strict=True)
        for (key, text), embedding in pairs:
            self.step("search")
            asked = Search(cell.mode, text, embedding, k, ranker=cell.ranker)
            seconds, found = await clocked(system.search, asked)
            spent += seconds
            check_answer(found, k, known)
            answers[key] = found
            self.advance(0, QUERY_WORK)
        return answers, spent

    def _row(
        self,
        cell: Cell,
        judged: JudgedSet,
        answers: dict[str, Ranked],
        seconds: float,
        checks: OrderChecks,
    ) -> QualityRow:
        """Measure the answers, and write them as a TREC run."""
        run = {key: [one for one, _ in ranked] for key, ranked in answers.items()}
        path = Path("runs", judged.name, f"{cell.label.replace(':', '.').replace('/', '-')}.run")
        write_run(self.plan.out / path, run, cell.backend.name)
        values = measure(judged.qrels, run)
        seed = seed_of(self.plan.seed, judged.name, "bootstrap")
        metrics = {
            name: bootstrap(list(values[name].values()), seed) for name in measured(self.plan.k)
        }
        if cell.has_truth:
            metrics[AGREES] = bootstrap(checks.agreement(cell.mode, answers), seed)
        return QualityRow(
            backend=cell.backend.name,
            mode=cell.mode.value,
            fusion=cell.fusion,
            ranker=cell.ranker and cell.ranker.model_dump(mode="json"),
            data_set=judged.name,
            n_queries=len(judged.queries),
            k=self.plan.k,
            seconds=seconds,
            metrics=metrics,
            ndcg_by_query=values[NDCG],
            run_file=path.as_posix(),
        )

    def _unfinished(self, judged: JudgedSet, backend: Backend) -> list[Cell]:
        """Take over the finished cells of an interrupted run, and return the others."""
        waiting = []
        for cell in self.plan.cells(backend):
            found = self._finished.find(self._key(judged, cell))
            if found is None or not (self.plan.out / str(found.row.run_file)).exists():
                waiting.append(cell)
                continue
            self.add(found.row, *found.failures)
            self.advance(1, len(judged.queries) * QUERY_WORK)
        if not waiting:
            self.advance(0, len(judged.documents) * ADD_WORK)
        return waiting

    def _key(self, judged: JudgedSet, cell: Cell) -> str:
        return cell_key(self.plan, judged, cell, self._embedding.fingerprint)
