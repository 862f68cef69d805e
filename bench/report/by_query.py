"""Wins and losses of each query against the baseline. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from corral.bench.report import views
from corral.bench.report.report import Report
from corral.bench.report.rows import QualityRow, ShownDocument

EXAMPLES = 5
"""Maximum wins, and maximum losses, shown with their texts."""


@dataclass(frozen=True, slots=True)
class Change:
    """One query: nDCG@10 here minus the baseline's.

    Attributes:
        documents: The documents that explain the change, with excerpts; empty if the report has
            none.
    """

    query_id: str
    text: str
    value: float
    baseline: float
    documents: tuple[tuple[ShownDocument, str], ...] = ()

    @property
    def difference(self) -> float:
        """Difference of nDCG@10; positive if this system is better."""
        return self.value - self.baseline


def compared(report: Report) -> dict[str, list[tuple[str, QualityRow, list[Change]]]]:
    """Return, by data set, the name, row and changes of each system with a baseline.

    Backends with equal answers are merged under their joined names.
    """
    found: dict[str, list[tuple[str, QualityRow, list[Change]]]] = {}
    for name, rows in views.quality_by_set(report).items():
        others = [row for row in rows if row.comparison]
        for row, *_ in views.grouped(others, views.answers_of).values():
            if differences := changes(report, row):
                found.setdefault(name, []).append((views.name_of(rows, row), row, differences))
    return found


def changes(report: Report, row: QualityRow) -> list[Change]:
    """Return every query's change against the baseline, greatest win first; [] without one."""
    if row.comparison is None:
        return []
    same_set = [other for other in report.quality if other.data_set == row.data_set]
    wanted = row.comparison.baseline
    base = next((other.ndcg_by_query for other in same_set if other.label == wanted), {})
    data = next((d for d in report.data_sets if d.name == row.data_set), None)
    texts, excerpts = (data.query_texts, data.excerpts) if data else ({}, {})
    found = [
        Change(
            query_id,
            texts.get(query_id, ""),
            value,
            base[query_id],
            _shown(row, query_id, excerpts),
        )
        for query_id, value in row.ndcg_by_query.items()
        if query_id in base
    ]
    return sorted(found, key=lambda change: (-change.difference, change.query_id))


def wins(found: Iterable[Change]) -> list[Change]:
    """Return the improvements, the greatest first."""
    return [change for change in found if change.difference > 0]


def losses(found: Sequence[Change]) -> list[Change]:
    """Return the deteriorations, the greatest first."""
    return [change for change in reversed(found) if change.difference < 0]


def _shown(
    row: QualityRow, query_id: str, excerpts: Mapping[str, str]
) -> tuple[tuple[ShownDocument, str], ...]:
    shown = row.shown.get(query_id, ())
    return tuple((each, excerpts.get(each.document_id, "")) for each in shown)
