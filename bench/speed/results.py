"""Converts measurements to rows of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from corral.bench.backends import Backend
from corral.bench.data.corpus import Corpus
from corral.bench.report.rows import BuildRow, SpeedRow
from corral.bench.speed.load import Timed
from corral.bench.speed.plan import Cell
from corral.bench.speed.worker import Footprint, Ready
from corral.bench.system import BlockingSystem

MOST_SAMPLES = 1000


@dataclass
class Measured:
    """The measurements of one backend so far.

    Attributes:
        inserts: (chunks, seconds) of each tenth.
        right: Quality of the answers by mode and selectivity, 0 to 1.
        failed: Failed modes and selectivities, which are not measured again.
        rounds: Results of each round, by cell.
    """

    backend: Backend
    inserts: list[tuple[int, float]] = field(default_factory=list)
    ready: Ready | None = None
    footprint: Footprint | None = None
    right: dict[tuple[str, float | None], float] = field(default_factory=dict)
    failed: set[tuple[str, float | None]] = field(default_factory=set)
    rounds: dict[Cell, list[Timed]] = field(default_factory=dict)

    @property
    def deferred(self) -> bool:
        """Return True if inserts are only stored by `build`."""
        kind = self.backend.kind
        return issubclass(kind, BlockingSystem) and kind.deferred

    @property
    def remote(self) -> bool:
        """Return True if it stores its data on a server."""
        if self.backend.entry is not None:
            return self.backend.entry.provider_type.startswith("remote::")
        return self.backend.kind.service

    @property
    def rate(self) -> float | None:
        """Chunks per second over all inserts; includes the build if that stores the inserts."""
        seconds = sum(spent for _, spent in self.inserts)
        if self.deferred and self.ready is not None:
            seconds += self.ready.build_seconds
        return sum(count for count, _ in self.inserts) / seconds if seconds else None


def build_row(one: Measured, base: Measured | None, corpus: Corpus) -> BuildRow:
    """Return the time and space for storing."""
    rates = [count / seconds for count, seconds in one.inserts if seconds and not one.deferred]
    footprint = None if one.remote else one.footprint
    ratio = one.rate / base.rate if base and base.rate and one.rate else None
    return BuildRow(
        backend=one.backend.name,
        data_set=corpus.name,
        size=len(corpus.texts),
        dimension=corpus.embeddings.shape[1],
        insert_rate=one.rate,
        first_tenth_rate=rates[0] if rates else None,
        last_tenth_rate=rates[-1] if rates else None,
        build_seconds=one.ready.build_seconds if one.ready else None,
        seconds_until_searchable=one.ready.searchable_seconds if one.ready else None,
        memory_mib=footprint.memory_mib if footprint else None,
        disk_mib=footprint.disk_mib if footprint else None,
        baseline=base.backend.name if base and ratio else None,
        ratio=ratio,
    )


def speed_rows(one: Measured, base: Measured | None, corpus: Corpus, k: int) -> list[SpeedRow]:
    """Return a row for every measured cell, with its ratio to `base`."""
    rows = []
    for cell, rounds in one.rounds.items():
        ratio = _ratio(rounds, base.rounds.get(cell, []) if base else [])
        latencies = np.sort([seconds for timed in rounds for seconds in timed.latencies]) * 1000
        p50, p95, p99 = np.quantile(latencies, [0.5, 0.95, 0.99])
        right = one.right.get((cell.mode.value, cell.selectivity))
        rows.append(
            SpeedRow(
                backend=one.backend.name,
                data_set=corpus.name,
                mode=cell.mode.value,
                size=len(corpus.texts),
                selectivity=cell.selectivity,
                concurrency=cell.concurrency,
                k=k,
                n_queries=len(latencies),
                p50_ms=float(p50),
                p95_ms=float(p95),
                p99_ms=float(p99),
                throughput_qps=float(np.median([len(t.latencies) / t.seconds for t in rounds])),
                samples_ms=_samples(latencies.tolist()),
                recall_vs_exact=right if cell.mode.value == "vector" else None,
                baseline=base.backend.name if base and ratio is not None else None,
                ratio=ratio,
            )
        )
    return rows


def _ratio(ours: Sequence[Timed], theirs: Sequence[Timed]) -> float | None:
    """Return the median over the rounds of the ratio of p50s, which were measured side by side."""
    pairs = [
        float(np.median(a.latencies) / np.median(b.latencies))
        for a, b in zip(ours, theirs, strict=False)
        if a.latencies and b.latencies
    ]
    return float(np.median(pairs)) if pairs else None


def _samples(latencies: list[float]) -> tuple[float, ...]:
    """Return at most `MOST_SAMPLES` sorted latencies, evenly spaced, including the longest."""
    if len(latencies) > MOST_SAMPLES:
        places = np.linspace(0, len(latencies) - 1, MOST_SAMPLES).round().astype(int)
        latencies = [latencies[place] for place in places]
    return tuple(round(one, 4) for one in latencies)
