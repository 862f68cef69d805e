"""Finished measurements: kept for a run that is resumed, and compared with the baseline."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from corral.bench.quality.statistics import compare, seed_of
from corral.bench.reports.report import Report
from corral.bench.reports.rows import Failure, QualityRow, Row

FOLDER = "cells"


class KeptCell(Row):
    """A finished cell: its row, without comparison, and what the suite's checks said."""

    row: QualityRow
    failures: tuple[Failure, ...] = ()


class FinishedCells:
    """Finished cells in a run's folder, by a hash of what determines them.

    Args:
        out: The folder of the run.
    """

    def __init__(self, out: Path) -> None:
        self._out = out

    def find(self, key: str) -> KeptCell | None:
        """Return a finished cell; None where there is none, or its files are not whole."""
        path = self._path(key)
        try:
            kept = KeptCell.model_validate_json(path.read_text("utf-8"))
        except (FileNotFoundError, ValidationError):  # of another version, or never finished
            return None
        run_file = kept.row.run_file
        return kept if run_file and (self._out / run_file).exists() else None

    def keep(self, key: str, row: QualityRow, failures: Sequence[Failure]) -> None:
        """Write a finished cell, whole or not at all."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")
        cell = KeptCell(row=row, failures=tuple(failures))
        scratch.write_text(cell.model_dump_json(), encoding="utf-8")
        scratch.replace(path)

    def _path(self, key: str) -> Path:
        return self._out / FOLDER / f"{key}.json"


def with_comparisons(report: Report, seed: int) -> Report:
    """Return a report whose rows are compared with the baseline, each data set by itself.

    Rows of a data set on which the baseline was not measured have no comparison; a note says so.
    """
    rows: list[QualityRow] = []
    notes = list(report.notes)
    for name in dict.fromkeys(row.data_set for row in report.quality):
        here = [row for row in report.quality if row.data_set == name]
        found = [row for row in here if row.label == report.baseline]
        if not found:
            notes.append(f"{name}: the baseline {report.baseline} was not measured.")
            rows += here
            continue
        rows += _compared(here, found[0], seed_of(seed, name, "comparison"))
    return report.model_copy(update={"quality": tuple(rows), "notes": tuple(notes)})


def _compared(rows: Sequence[QualityRow], baseline: QualityRow, seed: int) -> list[QualityRow]:
    others = {row.label: row.ndcg_by_query for row in rows if row is not baseline}
    said = compare(others, baseline.label, baseline.ndcg_by_query, seed)
    return [row.model_copy(update={"comparison": said.get(row.label)}) for row in rows]
