"""What a fidelity run will measure, checked before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.api.errors import InvalidRequest
from corral.api.vector_dbs import SearchMode
from corral.bench.backends import Backend, find_backends
from corral.bench.data.datasets import read_sets
from corral.bench.run import Plan, backend_key, key_of
from corral.bench.speed.load_data import parse_size
from corral.bench.speed.load_plan import Source, parse_share, sources
from corral.providers.config import RunConfig

KS = (1, 10, 100)
QUESTIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityPlan(Plan):
    """A whole run: backends are compared with brute force, and with each other.

    Attributes:
        sources: What is stored on each backend.
        selectivities: Shares of the chunks that pass a filter; None is no filter.
        ks: Hits asked for; with a filter 10 only.
        questions: How many are asked, at most.
    """

    sources: tuple[Source, ...]
    selectivities: tuple[float | None, ...]
    ks: tuple[int, ...] = KS
    questions: int = QUESTIONS

    def key(self, source: Source, backend: Backend) -> str:
        """Return a hash of everything that decides a backend's answers, versions included."""
        modes = [mode.value for mode in self.modes]
        asked = (modes, self.selectivities, self.ks, self.questions, self.seed, self.model)
        return f"answers-{key_of(source.key(), backend_key(backend), asked)}"

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
    **options: Any,
) -> FidelityPlan:
    """Return a checked plan; nothing has been started or written yet.

    Args:
        backends: As `find_backends` takes them.
        data: Judged sets, as `read_sets` takes them.
        synthetic: Sizes of seeded data, such as 5k; one of both is needed.
        filters: Shares of the chunks that pass, such as 1%.
        options: Further fields of `FidelityPlan`.

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
        **options,
    )
    if not plan.sources:
        raise InvalidRequest("Neither --data nor --synthetic is given.", field="data")
    plan.check()
    return plan
