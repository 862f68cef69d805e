"""What a fidelity run will measure, checked before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corral.api.errors import InvalidRequest
from corral.bench.backends import Backend
from corral.bench.data.datasets import read_sets
from corral.bench.data.sources import Source, parse_size, selectivities, sources
from corral.bench.run import Plan, backend_key, key_of, planned

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

    def check(self) -> None:
        """Refuse a plan that cannot work."""
        if not self.sources:
            raise InvalidRequest("Neither --data nor --synthetic is given.", field="data")
        Plan.check(self)


def make_fidelity_plan(
    *,
    data: Sequence[str] = (),
    synthetic: Sequence[str] = (),
    filters: Sequence[str] = (),
    max_documents: int | None = None,
    seed: int = 0,
    **options: Any,
) -> FidelityPlan:
    """Return a checked plan; further `options` as `planned` takes them.

    Args:
        data: Judged sets, as `read_sets` takes them.
        synthetic: Sizes of seeded data, such as 5k; one of both is needed.
        filters: Shares of the chunks that pass, such as 1%.

    Raises:
        InvalidRequest, ConfigError: Something cannot work; the message says what.
        Conflict: `out` holds another run's report, and `resume` is not set.
    """
    seeded = sources((), [parse_size(size) for size in synthetic], seed, max_documents)
    judged = sources(read_sets(data), (), seed, max_documents) if data else []
    return planned(
        FidelityPlan,
        sources=(*seeded, *judged),
        selectivities=selectivities(filters),
        seed=seed,
        **options,
    )
