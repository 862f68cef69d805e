"""The section on answers."""

from __future__ import annotations

from collections.abc import Iterable

from corral.bench.report import wording
from corral.bench.report.blocks import Block, Cell, Column, Section, Table, Text, figures
from corral.bench.report.report import Report
from corral.bench.report.rows import AnswerRow, Estimate

MEASURES = {
    "answered": "Answered, of the answerable questions",
    "refused": "Refused, of the unanswerable questions",
    "precision": "Citation precision",
    "recall": "Citation recall",
    "retrieved": "A judged source was retrieved",
    "contained": "Has a right answer",
    "contained_retrieved": "Has a right answer, if a source was retrieved",
    "first": "First sentence has a right answer",
    "first_retrieved": "First sentence has it, if a source was retrieved",
    "sentences": "Sentences of an answer",
    "cited_statements": "Statements with a citation",
    "faithful": "Statements that their sources support",
    "prompt_tokens": "Prompt tokens",
    "completion_tokens": "Completion tokens",
}
"""The measures in the order of a table, with their display names."""

LEAD = (
    "Means over the questions to which a measure applies, with bootstrap 95 % intervals. A refused "
    "answer cites nothing or says that nothing was found. Precision and recall count documents; "
    "precision is of the answers that cite. A document without a judgment counts as wrong."
)


def answers(report: Report) -> Section | None:
    """Return a table for each data set, vector DB and mode."""
    blocks: list[Block] = [Text(LEAD), *answer_tables(report)]
    return Section("answers", "Answers", "Answers", blocks) if report.answers else None


def answer_tables(report: Report) -> Iterable[Table]:
    """Yield a table for each row."""
    for row in report.answers:
        count = wording.count(row.n_questions, "question")
        caption = f"{row.data_set}, {row.mode} on {row.backend}, answers of {row.model}, {count}"
        yield Table(
            caption,
            [Column("Measure", wraps=True), *figures("Mean", "Questions")],
            list(_lines(row)),
        )


def _lines(row: AnswerRow) -> Iterable[list[Cell | str]]:
    for key, name in MEASURES.items():
        if key in row.metrics:
            yield [name, _mean(row.metrics[key]), f"{row.counts[key]:,}"]
    if row.judge is not None:
        unparseable = f"{row.unparseable:,} of {row.verdicts:,}"
        yield [f"Verdicts of {row.judge} that are not yes or no", unparseable, ""]
    yield ["Latency, median", wording.number(row.p50_ms, "ms"), f"{row.n_questions:,}"]
    yield ["Latency, p95", wording.number(row.p95_ms, "ms"), f"{row.n_questions:,}"]


def _mean(value: Estimate) -> Cell:
    """Return a share to three decimals, or a count to about three digits, with its interval."""
    if value.high <= 1:
        return wording.estimate(value)
    low, high = wording.number(value.low), wording.number(value.high)
    return Cell(wording.number(value.mean), f"[{low}, {high}]")
