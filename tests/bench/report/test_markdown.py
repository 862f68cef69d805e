"""report.md: every figure is there, and no text breaks out of its cell."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt

from corral.bench.quality.metrics import NDCG
from corral.bench.report import render_markdown
from corral.bench.report.markdown import escaped
from corral.bench.report.report import Report
from corral.bench.report.wording import clean

from .hostile import PAYLOADS, hostile


def tables(text: str) -> list[list[int]]:
    """Return, for every table, how many bars that separate cells each of its lines has."""
    found: list[list[int]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            found[-1].append(len(re.findall(r"(?<!\\)\|", line)))
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def test_every_quality_row_stands_in_its_data_sets_table(report: Report) -> None:
    """A row shows backend, mode, fusion, each metric with its interval, and the verdict.

    If this fails: figures of report.json are not in report.md, or in another row.
    """
    text = render_markdown(report)
    for row in report.quality:
        block = text.split(f"### {row.data_set}, ")[1].split("\n### ")[0].split("\n## ")[0]
        name = escaped(f"{row.backend} {row.fusion or ''}")
        lines = [li for li in block.splitlines() if li.startswith(f"| {name} | {row.mode} |")]
        assert len(lines) == 1, row.label
        for metric, value in row.metrics.items():
            mean = f"**{value.mean:.3f}**" if metric == NDCG else f"{value.mean:.3f}"
            assert f"{mean} [{value.low:.3f}, {value.high:.3f}]" in lines[0]
        said = row.comparison.verdict if row.comparison else "baseline"
        assert f" {said}" in lines[0]


def test_tables_are_tables(report: Report) -> None:
    """Each table has as many cells in every row as headings, and there is one for each section."""
    text = render_markdown(report)
    found = tables(text)
    assert len(found) >= 15
    for lines in found:
        assert len(lines) > 2
        assert len(set(lines)) == 1
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    assert sum(token.type == "table_open" for token in tokens) == len(found)


def test_failures_have_rows_with_their_message(report: Report) -> None:
    """A failure stands in the table of its data set, or in all, and in the section Failures."""
    text = render_markdown(report)
    refused = escaped("Connection refused at 127.0.0.1:19530. Start the service first.")
    assert text.count(refused) == 4
    assert text.count("Scores rise.") == 2


def test_what_the_run_can_be_repeated_with_is_there(report: Report) -> None:
    """Command, seed, machine, versions and the hash of every file."""
    text = render_markdown(report)
    for data in report.data_sets:
        assert all(f"| {value} |" in text for value in data.sha256.values())
    for said in (report.command, report.hardware.cpu, "Seed: 7", "faiss-cpu 1.15.1"):
        assert escaped(said) in text


def test_hostile_text_stays_text(report: Report) -> None:
    """No payload becomes HTML, a link, an image, a heading, code, or a further cell."""
    text = render_markdown(hostile(report))
    tokens = MarkdownIt("commonmark", {"linkify": False}).enable(["table"]).parse(text)
    inline = [child.type for token in tokens for child in token.children or []]
    kinds = {token.type for token in tokens} | set(inline)
    assert not kinds & {"html_block", "html_inline", "link_open", "image", "code_inline"}
    assert not kinds & {"fence", "code_block", "em_open", "blockquote_open"}
    assert not re.search("^#+ Heading", text, re.MULTILINE)
    assert not re.search(r"(?<!&#58;)https?://|@someone", text)
    assert all(len(set(lines)) == 1 for lines in tables(text))


@pytest.mark.parametrize("payload", PAYLOADS)
def test_escaped_text_reads_as_it_was(payload: str) -> None:
    """Rendered, an escaped text is the text itself, in one line."""
    (block,) = [t for t in MarkdownIt("commonmark").parse(escaped(payload)) if t.type == "inline"]
    assert {child.type for child in block.children or []} <= {"text", "text_special"}
    assert "".join(child.content for child in block.children or []) == " ".join(
        clean(payload).split()
    )


def test_an_empty_report_is_a_report(report: Report) -> None:
    """A run that ended before it measured anything says how it was started, and nothing else."""
    sections = ("quality", "answers", "speed", "builds", "tune", "failures", "data_sets")
    text = render_markdown(report.model_copy(update=dict.fromkeys(sections, ())))
    assert re.findall("^## (.*)$", text, re.MULTILINE) == ["How it was measured"]
