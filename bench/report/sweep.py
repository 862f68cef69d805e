"""The fusion-weight sweep: nDCG@10 over the weight of the vector leg. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from corral.bench.quality.metrics import NDCG
from corral.bench.report.report import Report
from corral.bench.report.rows import Estimate, TuneSection
from corral.bench.report.views import grouped

_Trial = tuple[str, Mapping[str, Any] | None, Mapping[str, Estimate]]


@dataclass(frozen=True, slots=True)
class Sweep:
    """nDCG@10 over the weight of the vector leg.

    Attributes:
        title: Data set and backend.
        series: (alpha, estimate) by alpha, for each combination of other settings.
        references: Values for comparison by name: the single modes and the best rrf.
    """

    title: str
    series: dict[str, list[tuple[float, Estimate]]]
    references: dict[str, Estimate]


def sweeps(report: Report) -> list[Sweep]:
    """Return a sweep for each data set, backend and tuning with at least two weights.

    Backends with equal figures share one.
    """
    groups = grouped(report.quality, lambda row: (row.data_set, row.backend))
    found: dict[str, Sweep] = {}
    for (data_set, backend), rows in groups.items():
        sweep = _sweep(data_set, [(row.mode, row.ranker, row.metrics) for row in rows])
        same = repr(sweep)
        title = f"{found[same].title}, {backend}" if same in found else f"{data_set}: {backend}"
        found[same] = replace(sweep, title=title)
    swept = [*found.values(), *(_tuned(section) for section in report.tune)]
    return [sweep for sweep in swept if sweep.series]


def _sweep(title: str, trials: list[_Trial]) -> Sweep:
    """Build a sweep from (mode, ranker, metrics); a single weight is no sweep."""
    series: dict[str, list[tuple[float, Estimate]]] = {}
    others: dict[str, list[Estimate]] = {}
    for mode, ranker, metrics in trials:
        if NDCG not in metrics:
            continue
        alpha = (ranker or {}).get("alpha")
        if ranker and isinstance(alpha, int | float):
            series.setdefault(_rest(ranker), []).append((float(alpha), metrics[NDCG]))
        else:
            name = str(ranker.get("type")) if ranker else mode
            others.setdefault(name, []).append(metrics[NDCG])
    references = {
        name if len(found) == 1 else f"best {name}": max(found, key=lambda e: e.mean)
        for name, found in others.items()
        if name in ("vector", "keyword", "rrf")
    }
    return Sweep(title, _distinct(series), references)


def _distinct(
    series: dict[str, list[tuple[float, Estimate]]],
) -> dict[str, list[tuple[float, Estimate]]]:
    """Return series of at least two weights; merge series with equal figures under joined names."""
    names: dict[str, str] = {}
    found: dict[str, list[tuple[float, Estimate]]] = {}
    for name, points in series.items():
        line = sorted(points, key=lambda point: point[0])
        if len({alpha for alpha, _ in line}) > 1:
            names[repr(line)] = " = ".join(part for part in (names.get(repr(line)), name) if part)
            found[repr(line)] = line
    return {names[key]: line for key, line in found.items()}


def _tuned(section: TuneSection) -> Sweep:
    trials: list[_Trial] = []
    for trial in section.trials:
        if "rerank" in trial.settings:  # the weight makes no difference there
            continue
        mode, ranker = trial.settings["search_mode"], trial.settings.get("ranker")
        trials.append((mode, ranker, {NDCG: trial.train}))
    return _sweep(f"{section.data_set}: {section.backend}, training half", trials)


def _rest(ranker: Mapping[str, Any]) -> str:
    """Name the settings other than the weight, so that only equal ones are connected."""
    rest = {key: value for key, value in ranker.items() if key not in ("alpha", "type", "weights")}
    plain = [f"{key} {value}" for key, value in sorted(rest.items()) if value is not None]
    return ", ".join([str(ranker.get("type", "weighted")), *plain])
