"""What a fidelity run will measure, checked before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from corral.api.errors import Conflict, InvalidRequest
from corral.api.provider import Api
from corral.api.vector_dbs import SearchMode
from corral.bench.backends import Backend, find_backends, load_peer
from corral.bench.data.datasets import read_sets
from corral.bench.report.environment import package_versions
from corral.bench.report.report import REPORT_NAME
from corral.bench.speed.load_data import parse_size
from corral.bench.speed.load_plan import Source, key_of, parse_share, sources
from corral.providers.config import RunConfig
from corral.providers.registry import check_config

KS = (1, 10, 100)
QUESTIONS = 100


@dataclass(frozen=True, slots=True)
class FidelityPlan:
    """A whole run.

    Attributes:
        backends: What is compared with brute force, and with each other.
        sources: What is stored on each.
        modes, selectivities: What is asked; None is no filter.
        ks: Hits asked for; with a filter 10 only.
        questions: How many are asked, at most.
        seed: Of data and samples.
        model: Embedding model for judged sets; None takes the configuration's default.
        max_seconds: After so many, nothing more is begun.
    """

    backends: tuple[Backend, ...]
    sources: tuple[Source, ...]
    modes: tuple[SearchMode, ...]
    selectivities: tuple[float | None, ...]
    config: RunConfig
    out: Path
    home: Path
    ks: tuple[int, ...] = KS
    questions: int = QUESTIONS
    seed: int = 0
    model: str | None = None
    max_seconds: float | None = None
    resume: bool = False
    command: str = ""

    def key(self, source: Source, backend: Backend) -> str:
        """Return a hash of everything that decides a backend's answers, versions included."""
        entry = backend.entry and backend.entry.model_dump(mode="json")
        modes = [mode.value for mode in self.modes]
        asked = (modes, self.selectivities, self.ks, self.questions, self.seed, self.model)
        versions = package_versions(self.requires())
        return key_of(source.key(), backend.name, backend.address, entry, asked, versions)

    def requires(self) -> list[str]:
        """Return the distributions of the foreign systems, whose versions count."""
        foreign = [backend.name for backend in self.backends if backend.entry is None]
        return [name for each in foreign for name in load_peer(each).requires]

    def work(self) -> int:
        """Return how many questions and chunks all backends have to deal with."""
        rounds = len(self.modes) * (len(self.ks) + len(self.selectivities) - 1)
        each = sum(source.count + rounds * self.questions for source in self.sources)
        return each * len(self.backends)


def make_fidelity_plan(
    *,
    backends: Sequence[str],
    out: Path,
    home: Path,
    config: RunConfig | None = None,
    data: Sequence[str] = (),
    synthetic: Sequence[str] = (),
    modes: Sequence[str] = tuple(SearchMode),
    filters: Sequence[str] = (),
    max_documents: int | None = None,
    seed: int = 0,
    model: str | None = None,
    max_seconds: float | None = None,
    resume: bool = False,
    command: str = "",
) -> FidelityPlan:
    """Return a checked plan; nothing has been started or written yet.

    Args:
        backends: As `find_backends` takes them.
        data: Judged sets, as `read_sets` takes them.
        synthetic: Sizes of seeded data, such as 5k; one of both is needed.
        filters: Shares of the chunks that pass, such as 1%.

    Raises:
        InvalidRequest, ConfigError: Something cannot work; the message says what.
        Conflict: `out` holds another run's report, and `resume` is not set.
    """
    settings = config or RunConfig()
    sizes = [parse_size(size) for size in synthetic]
    seeded = sources((), sizes, seed, max_documents)
    judged = sources(read_sets(data), (), seed, max_documents) if data else []
    plan = FidelityPlan(
        backends=tuple(find_backends(backends, settings)),
        sources=(*seeded, *judged),
        modes=tuple(dict.fromkeys(map(SearchMode.parse, modes))),
        selectivities=tuple(dict.fromkeys([None, *map(parse_share, filters)])),
        config=settings,
        out=out,
        home=home,
        seed=seed,
        model=model,
        max_seconds=max_seconds,
        resume=resume,
        command=command,
    )
    _check(plan)
    return plan


def _check(plan: FidelityPlan) -> None:
    if not plan.sources:
        raise InvalidRequest("Neither --data nor --synthetic is given.", field="data")
    for backend in plan.backends:
        if backend.entry is not None:
            check_config(Api.VECTOR_IO, backend.entry)
    if not any(mode in backend.modes for backend in plan.backends for mode in plan.modes):
        raise InvalidRequest("None of these backends has such a mode.", field="modes")
    if (plan.out / REPORT_NAME).exists() and not plan.resume:
        raise Conflict(
            f"{plan.out} holds a report already.",
            hint="Give --resume to go on with it, or another --out.",
            field="out",
        )
