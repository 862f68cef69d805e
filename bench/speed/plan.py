"""What a speed run will measure, checked before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corral.api.errors import InvalidRequest
from corral.api.vector_dbs import SearchMode
from corral.bench.data.datasets import read_sets
from corral.bench.data.sources import Source, parse_size, selectivities, sources
from corral.bench.run import Plan, backend_key, key_of, planned
from corral.bench.speed.worker import HTTP, INDEX, Entrant

BASELINE = "exact"
SERVER_SIZE = 5_000
"""Chunks behind a server: its share of a query does not depend on their number."""
LEAST_SECONDS = 2.0
"""What starting one worker process takes, at the very least."""
MOST_CONCURRENCY = 256
INSERTS_PER_SECOND = 2_000
CELL_SHARE = 0.4
"""Of its time limit that a cell takes on average; for the estimate."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement of a system: a mode, a filter, and how many questions are under way."""

    mode: SearchMode
    selectivity: float | None
    concurrency: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedPlan(Plan):
    """A whole run; the baseline is among its backends.

    Attributes:
        sources: What is measured on.
        selectivities: Shares of the chunks that pass a filter; None is no filter.
        concurrencies: Questions under way at once.
        baseline: Name of the backend that ratios are made to.
        server: Whether Corral's backends are measured behind a server, too.
        k: Hits asked for.
        rounds: In which every cell is measured on every system in turn; ratios are medians of
            theirs.
        queries: Most questions of a cell, all rounds together.
        cell_seconds: Longest time of a cell, all rounds together.
    """

    sources: tuple[Source, ...]
    selectivities: tuple[float | None, ...]
    concurrencies: tuple[int, ...]
    baseline: str = BASELINE
    server: bool = False
    k: int = 10
    rounds: int = 3
    queries: int = 300
    cell_seconds: float = 1.0

    def entrants(self, *, served: bool) -> list[Entrant]:
        """Return what is measured against each other: all backends, or each with its server."""
        if not served:
            return [Entrant(backend) for backend in self.backends]
        own = [backend for backend in self.backends if backend.entry is not None]
        return [Entrant(backend, way) for backend in own for way in (INDEX, HTTP)]

    def cells(self, *, served: bool) -> list[Cell]:
        """Return what every entrant is asked, as far as it can."""
        selectivities = (None,) if served else self.selectivities
        return [
            Cell(mode, selectivity, concurrency)
            for mode in self.modes
            for selectivity in selectivities
            for concurrency in self.concurrencies
        ]

    def units(self) -> list[tuple[Source, bool]]:
        """Return (source, whether behind servers): each is measured as a whole, or not at all."""
        plain = [(source, False) for source in self.sources]
        behind = [(Source(None, SERVER_SIZE, self.seed), True)]
        return plain + (behind if self.server and self.entrants(served=True) else [])

    def seconds(self, source: Source, *, served: bool) -> float:
        """Return about how long a workload takes."""
        entrants, cells = self.entrants(served=served), self.cells(served=served)
        asked = len(cells) * self.cell_seconds * CELL_SHARE
        return len(entrants) * (LEAST_SECONDS + source.count / INSERTS_PER_SECOND + asked)

    def key(self, source: Source, *, served: bool) -> str:
        """Return a hash of everything that decides a workload's figures, versions included."""
        names = [(c.label, backend_key(c.backend)) for c in self.entrants(served=served)]
        settings = (self.baseline, self.k, self.rounds, self.queries, self.cell_seconds, self.seed)
        cells = [(c.mode.value, c.selectivity, c.concurrency) for c in self.cells(served=served)]
        return key_of(source.key(), served, names, settings, self.model, cells)

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
    """Return a checked plan; further `options` as `planned` takes them.

    Args:
        backends: As `find_backends` takes them; the baseline is measured too.
        data: Judged sets, as `read_sets` takes them; none for seeded data.
        sizes: Such as 1k; needed for seeded data.
        filters: Shares of the chunks that pass, such as 1%; asking without a filter comes first.

    Raises:
        InvalidRequest, ConfigError: Something cannot work; the message says what.
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
