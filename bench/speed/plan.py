"""The plan of a speed run, checked before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corral.api.errors import InvalidRequest
from corral.api.vector_dbs import SearchMode
from corral.bench.data.datasets import read_sets
from corral.bench.data.sources import Source, parse_size, selectivities, sources
from corral.bench.run import Plan, backend_key, key_of, planned

BASELINE = "exact"
LEAST_SECONDS = 2.0
"""Minimum seconds to start a worker process."""
PARTS = 10
"""Number of parts in which the data are stored, alternating between systems."""
MOST_CONCURRENCY = 256
K = 10
"""Hits per query."""
CELL_SECONDS = 1.0
"""Maximum time of a cell, over all rounds."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement of a system: mode, filter and concurrency."""

    mode: SearchMode
    selectivity: float | None
    concurrency: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedPlan(Plan):
    """A whole run; the baseline is among its backends.

    Attributes:
        sources: The data to measure on; each source is measured in full, or not at all.
        selectivities: Shares of the chunks that pass a filter; None is no filter.
        concurrencies: Numbers of concurrent questions.
        baseline: Name of the backend for ratios.
        rounds: In each round, every cell is measured on every system; ratios are medians over the
            rounds.
        queries: Maximum questions of a cell, over all rounds.
    """

    sources: tuple[Source, ...]
    selectivities: tuple[float | None, ...]
    concurrencies: tuple[int, ...]
    baseline: str = BASELINE
    rounds: int = 3
    queries: int = 300

    def cells(self) -> list[Cell]:
        """Return the cells: every mode, selectivity and concurrency."""
        return [
            Cell(mode, selectivity, concurrency)
            for mode in self.modes
            for selectivity in self.selectivities
            for concurrency in self.concurrencies
        ]

    @property
    def work(self) -> int:
        """Number of steps for a source: parts to store, and rounds of questions."""
        return len(self.backends) * (PARTS + self.rounds * len(self.cells()))

    def key(self, source: Source) -> str:
        """Return a hash of everything that determines a source's figures, versions included."""
        backends = [backend_key(backend) for backend in self.backends]
        settings = (self.baseline, K, self.rounds, self.queries, CELL_SECONDS, self.seed)
        cells = [(c.mode.value, c.selectivity, c.concurrency) for c in self.cells()]
        return key_of(source.key(), backends, settings, self.model, cells)

    def check(self) -> None:
        """Refuse a plan that cannot work."""
        if not self.sources:
            raise InvalidRequest("Neither --sizes nor --data is given.", field="sizes")
        for name, value, most in (("rounds", self.rounds, 100), ("queries", self.queries, 100_000)):
            if not 1 <= value <= most:
                raise InvalidRequest(f"--{name} must be 1 to {most} (got {value}).", field=name)
        wrong = [each for each in self.concurrencies if not 1 <= each <= MOST_CONCURRENCY]
        if wrong or not self.concurrencies:
            raise InvalidRequest(
                f"--concurrency takes numbers from 1 to {MOST_CONCURRENCY} "
                f"(got {', '.join(map(str, wrong)) or 'none'}).",
                field="concurrency",
            )
        if self.max_seconds is not None and self.max_seconds < LEAST_SECONDS:
            raise InvalidRequest(
                f"--max-seconds {self.max_seconds:g} is too small for one measurement: starting "
                f"takes {LEAST_SECONDS:g} s.",
                field="max_seconds",
            )
        Plan.check(self)


def make_speed_plan(
    *,
    backends: Sequence[str],
    data: Sequence[str] = (),
    sizes: Sequence[str] = (),
    filters: Sequence[str] = (),
    concurrency: Sequence[int] = (1,),
    baseline: str = BASELINE,
    max_documents: int | None = None,
    **options: Any,
) -> SpeedPlan:
    """Return a checked plan; further `options` as for `planned`.

    Args:
        backends: As for `find_backends`; the baseline is measured too.
        data: Judged sets, as for `read_sets`; none for seeded data.
        sizes: Such as 1k; needed for seeded data.
        filters: Shares of the chunks that pass, such as 1%; unfiltered queries are always included.

    Raises:
        InvalidRequest, ConfigError: The plan is invalid; the message says why.
        Conflict: `out` holds another run's report, and `resume` is not set.
    """
    wanted = [parse_size(size) for size in sizes]
    return planned(
        SpeedPlan,
        backends=[*backends, *([] if baseline in backends else [baseline])],
        sources=tuple(sources(read_sets(data), wanted, options.get("seed", 0), max_documents)),
        selectivities=selectivities(filters),
        concurrencies=tuple(sorted(set(concurrency))),
        baseline=baseline.partition("=")[0],
        **options,
    )
