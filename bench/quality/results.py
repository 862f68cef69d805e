"""Finished measurements: stored for resuming, compared with the baseline, explained."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from corral.bench.data.judged import JudgedSet
from corral.bench.quality.statistics import compare, seed_of
from corral.bench.report import by_query
from corral.bench.report.report import Report
from corral.bench.report.rows import Failure, QualityRow, Row, ShownDocument
from corral.bench.report.wording import clean

EXCERPT = 200
"""Characters of a document in a report, enough to see its subject."""

NDCG_DEPTH = 10

_Run = Mapping[str, Sequence[str]]


class FinishedCell(Row):
    """A finished cell: its row, without comparison, and the results of the suite's checks."""

    row: QualityRow
    failures: tuple[Failure, ...] = ()


def with_comparisons(report: Report, seed: int) -> Report:
    """Return the report with each row compared to the baseline on the same data set.

    Rows have no comparison if the baseline was not measured on their data set; a note says so.
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


def with_documents(report: Report, sets: Iterable[JudgedSet], out: Path) -> Report:
    """Return the report with the documents that decided the greatest wins and losses.

    A system has at most `2 * by_query.EXAMPLES` of these queries. Each gets up to three documents:
    the first hit of the system, the first of the baseline, and the relevant one with the greatest
    effect on nDCG@10. The report contains the first `EXCERPT` characters of these texts only.
    Systems with equal answers are listed once.

    Args:
        report: A report with comparisons.
        sets: The data of its runs.
        out: The folder of its runs.
    """
    compared, shown = by_query.compared(report), {}
    data_sets = list(report.data_sets)
    for judged in sets:
        texts: dict[str, str] = {}
        baselines: dict[str, _Run] = {}
        for _, row, changes in compared.get(judged.name, []):
            base = row.comparison.baseline if row.comparison else ""
            if base not in baselines:
                baselines[base] = _run_of(report, judged.name, base, out)
            found = _documents(changes, judged, _read_run(row, out), baselines[base])
            shown[judged.name, row.label] = found
            for each in (document.document_id for some in found.values() for document in some):
                texts[each] = _excerpt(judged.documents[each])
        data_sets = [
            data.model_copy(update={"excerpts": texts}) if data.name == judged.name else data
            for data in data_sets
        ]
    rows = (
        row.model_copy(update={"shown": shown.get((row.data_set, row.label), {})})
        for row in report.quality
    )
    return report.model_copy(update={"quality": tuple(rows), "data_sets": tuple(data_sets)})


def _documents(
    changes: Sequence[by_query.Change], judged: JudgedSet, here: _Run, base: _Run
) -> dict[str, tuple[ShownDocument, ...]]:
    greatest = by_query.wins(changes), by_query.losses(changes)
    return {
        change.query_id: _deciding(
            judged.qrels[change.query_id],
            here.get(change.query_id, ()),
            base.get(change.query_id, ()),
        )
        for some in greatest
        for change in some[: by_query.EXAMPLES]
    }


def _deciding(
    qrels: Mapping[str, int], here: Sequence[str], base: Sequence[str]
) -> tuple[ShownDocument, ...]:
    """Return the first hit of each, and the relevant document that moved nDCG@10 most."""
    ranks, base_ranks = _ranks(here), _ranks(base)

    def moved(document_id: str) -> float:
        gains = (_discount(found.get(document_id)) for found in (ranks, base_ranks))
        return qrels[document_id] * abs(next(gains) - next(gains))

    relevant = sorted(document_id for document_id, grade in qrels.items() if grade > 0)
    decided = [max(relevant, key=moved)] if relevant else []
    return tuple(
        ShownDocument(
            document_id=document_id,
            relevance=qrels.get(document_id),
            rank=ranks.get(document_id),
            baseline_rank=base_ranks.get(document_id),
        )
        for document_id in dict.fromkeys([*here[:1], *base[:1], *decided])
    )


def _ranks(ranked: Sequence[str]) -> dict[str, int]:
    return {document_id: rank for rank, document_id in enumerate(ranked, start=1)}


def _discount(rank: int | None) -> float:
    """The gain of a document at a rank in nDCG@10 (`corral.bench.quality.metrics`)."""
    return 0.0 if rank is None or rank > NDCG_DEPTH else 1 / math.log2(rank + 1)


def _run_of(report: Report, data_set: str, label: str, out: Path) -> _Run:
    rows = (row for row in report.quality if (row.data_set, row.label) == (data_set, label))
    return _read_run(next(rows), out)


def _read_run(row: QualityRow, out: Path) -> _Run:
    """Return document ids by query id, best first, from a file of `write_run`."""
    run: dict[str, list[str]] = {}
    for line in (out / str(row.run_file)).read_text("utf-8").splitlines():
        query_id, _, document_id, *_ = line.split()
        run.setdefault(query_id, []).append(document_id)
    return run


def _excerpt(text: str) -> str:
    """Return the beginning of a text in one line, with invalid characters replaced."""
    line = " ".join(clean(text).split())
    return line if len(line) <= EXCERPT else f"{line[: EXCERPT - 1].rstrip()}…"
