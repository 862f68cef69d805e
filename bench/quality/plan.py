"""The plan of a quality run, checked before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corral.api.checks import AnyRanker
from corral.api.errors import InvalidRequest
from corral.api.vector_dbs import SearchMode
from corral.bench.backends import Backend
from corral.bench.data.datasets import read_sets
from corral.bench.data.judged import JudgedSet
from corral.bench.quality.fusions import label_of, parse_fusion
from corral.bench.quality.metrics import NDCG, measured
from corral.bench.run import Plan, backend_key, key_of, planned, refuse_unknown
from corral.providers.base.config import RunConfig

FASTEST_DOCUMENT_SECONDS = 20e-6
FASTEST_QUERY_SECONDS = 50e-6
"""No measured backend stores a document or answers a query in less time, so a smaller budget cannot
fit one measurement."""

OWN = "own"
"""The fusion label of a foreign system with its own fusion."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: a backend in a mode, with a ranker in hybrid mode, on a set."""

    backend: Backend
    mode: SearchMode
    fusion: str | None = None
    ranker: AnyRanker | None = None

    @property
    def label(self) -> str:
        """As in `QualityRow.label`."""
        parts = (self.backend.name, self.mode.value, self.fusion)
        return ":".join(part for part in parts if part)

    @property
    def has_truth(self) -> bool:
        """True if there is one right answer; foreign systems may weigh words differently."""
        keyword = self.mode is SearchMode.KEYWORD and self.backend.entry is not None
        return self.mode is SearchMode.VECTOR or keyword


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityPlan(Plan):
    """A whole run.

    Attributes:
        sets: The judged sets to measure on.
        fusions: Fusions for hybrid mode.
        model: The embedding model, served by `config`.
        baseline: Label of the cell to compare with; None for the first.
        k: Hits per query, at least 10; R@100 needs 100.
    """

    sets: tuple[JudgedSet, ...]
    fusions: tuple[AnyRanker, ...]
    model: str
    baseline: str | None = None
    k: int = 100

    def cells(self, backend: Backend) -> list[Cell]:
        """Return the cells of a backend, the same on every set."""
        found = []
        for mode in (mode for mode in self.modes if mode in backend.modes):
            if mode is not SearchMode.HYBRID:
                found.append(Cell(backend, mode))
            elif backend.kind.own_fusion:
                found.append(Cell(backend, mode, OWN))
            else:
                found += [Cell(backend, mode, label_of(ranker), ranker) for ranker in self.fusions]
        return found

    def all_cells(self) -> list[Cell]:
        """Return every cell of one set."""
        return [cell for backend in self.backends for cell in self.cells(backend)]

    def check(self) -> None:
        """Refuse a plan that cannot work."""
        if not self.sets:
            raise InvalidRequest("Name a data set with --data.", field="data")
        if not 1 <= self.k <= 1000:
            raise InvalidRequest(f"--k must be 1 to 1000 (got {self.k}).", field="k")
        if NDCG not in measured(self.k):
            raise InvalidRequest(
                f"--k must be >= 10: {NDCG} needs 10 hits (got {self.k}).", field="k"
            )
        Plan.check(self)
        if self.baseline is not None:
            labels = [cell.label for cell in self.all_cells()]
            refuse_unknown(self.baseline, labels, "baseline", "baseline", "Measured")
        _check_budget(self)


def make_plan(
    *,
    data: Sequence[str],
    fusions: Sequence[str] = ("weighted",),
    config: RunConfig | None = None,
    model: str | None = None,
    seed: int = 0,
    max_documents: int | None = None,
    languages: dict[str, str] | None = None,
    split: str | None = None,
    **options: Any,
) -> QualityPlan:
    """Return a checked plan; `options` as for `planned`.

    Raises:
        InvalidRequest, ConfigError: The plan is invalid; the message says where.
        Conflict: `out` holds another run's report, and `resume` is not set.
    """
    settings = config or RunConfig()
    sets = read_sets(data, languages=languages, split=split, max_documents=max_documents, seed=seed)
    return planned(
        QualityPlan,
        sets=tuple(sets),
        fusions=tuple({label_of(ranker): ranker for ranker in map(parse_fusion, fusions)}.values()),
        config=settings,
        model=model or settings.default_embedding_model,
        seed=seed,
        **options,
    )


def cell_key(plan: QualityPlan, judged: JudgedSet, cell: Cell, model: str) -> str:
    """Return a hash of everything that determines a cell's figures.

    `model` is the embedder's fingerprint.
    """
    ranker = cell.ranker and cell.ranker.model_dump(mode="json")
    data = (judged.fingerprint(), model)
    return key_of(data, backend_key(cell.backend), cell.mode.value, ranker, plan.k, plan.seed)


def _check_budget(plan: QualityPlan) -> None:
    least = min(
        len(judged.documents) * FASTEST_DOCUMENT_SECONDS
        + len(judged.queries) * FASTEST_QUERY_SECONDS
        for judged in plan.sets
    )
    if plan.max_seconds is not None and plan.max_seconds < least:
        raise InvalidRequest(
            f"--max-seconds {plan.max_seconds:g} is too small for one measurement: storing the "
            f"documents and asking the queries takes {least:.2g} s at the very least.",
            field="max_seconds",
        )
