"""The section on fidelity: how far the backends agree."""

from __future__ import annotations

from collections.abc import Sequence

from corral.bench.report import views, wording
from corral.bench.report.blocks import Block, Cell, Column, Folded, Section, Table, Text, figures
from corral.bench.report.quality_sections import mode_cell
from corral.bench.report.report import Report
from corral.bench.report.rows import FidelityRow

FIDELITY_SIGNS = {"agrees": "=", "approximate": "≈", "mapping": "✕"}


def fidelity(report: Report) -> Section | None:
    """Return how far the backends agree on the same vectors and texts."""
    lead = Text(
        "Approximate: neighbors are missed, but the scores of those found are right. "
        "Mapping: scores, ids or hits are wrong, which is a defect."
    )
    blocks = fidelity_blocks(report)
    return Section("fidelity", "Fidelity", "Fidelity", [lead, *blocks]) if blocks else None


def fidelity_blocks(report: Report) -> list[Block]:
    """Return, for each data set, what differs as a table and what agrees as one line."""
    blocks: list[Block] = []
    for name, rows in views.fidelity_by_set(report).items():
        differ = [row for row in rows if row.verdict != "agrees"]
        agree = [row for row in rows if row.verdict == "agrees"]
        if differ:
            blocks.append(_fidelity_table(f"{name}, answers that differ", differ))
        if agree:
            said = f"{len(agree)} of {wording.count(len(rows), 'comparison')} agree"
            names = wording.listed(list(dict.fromkeys(row.backend for row in agree)))
            table = _fidelity_table(f"{name}, answers that agree", agree)
            title = f"{name}, against brute force and each other"
            blocks.append(Folded(title, [table], f"{said}: {names}", agrees=True))
    return blocks


def _fidelity_table(caption: str, rows: Sequence[FidelityRow]) -> Table:
    columns = [
        Column("Backend", wraps=True),
        Column("Against", wraps=True),
        Column("Mode"),
        Column("Filter"),
        *figures("k"),
        *figures("Recall", "Overlap", brief="text"),
        *figures("RBO", brief="none"),
        *figures("Score diff"),
        Column("Verdict", wraps=True, brief="below"),
    ]
    return Table(caption, columns, [_fidelity_cells(row) for row in rows])


def _fidelity_cells(row: FidelityRow) -> list[Cell | str]:
    error = row.score_difference_max
    return [
        row.backend,
        row.reference,
        mode_cell(row.mode),
        row.data_set.partition(", ")[2].removesuffix(" filter"),
        str(row.k),
        wording.estimate(row.recall_vs_exact),
        wording.estimate(row.overlap),
        wording.estimate(row.rank_biased_overlap),
        wording.NONE if error is None else f"{error:.1e}" if error else "0",
        Cell(f"{FIDELITY_SIGNS[row.verdict]} {row.verdict}", row.note, f"verdict {row.verdict}"),
    ]
