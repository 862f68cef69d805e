"""All sections of a report as data, in order; includes the sections on failures and the run."""

from __future__ import annotations

from collections.abc import Iterable

from corral.bench.report import answer_sections, quality_sections, speed_sections, wording
from corral.bench.report.blocks import (
    Block,
    Cell,
    Column,
    Facts,
    Folded,
    Heading,
    Item,
    Items,
    Section,
    Table,
    Text,
    figures,
)
from corral.bench.report.report import Report
from corral.bench.report.rows import Failure


def sections(report: Report) -> list[Section]:
    """Return the sections of a report, except those without rows."""
    return [section for make in SECTIONS if (section := make(report)) is not None]


def failures(report: Report) -> Section | None:
    """Return the failed measurements, with their reasons."""
    table = failures_table(report.failures)
    return Section("failures", "Failures", "Failures", [table]) if report.failures else None


def failures_table(rows: Iterable[Failure]) -> Table:
    """Return failures with their reasons."""
    names = ("Backend", "Stage", "Data set", "Mode")
    columns = [*(Column(name, wraps=True) for name in names), Column("Message", wraps=True)]
    cells = [[r.backend, r.stage, r.data_set or "all", r.mode or "all", r.message] for r in rows]
    return Table("What could not be measured", columns, cells)


def method(report: Report) -> Section:
    """Return the facts for repeating the run: command, seed, machine, versions, data hashes."""
    dimension = report.embedding_dimension
    model = f"{report.embedding_model}, {dimension} dimensions" if dimension else None
    facts = {
        "Seed": str(report.seed),
        "Machine": wording.machine(report),
        "Threads": ", ".join(f"{k}={v}" for k, v in report.hardware.threads.items()),
        "Embedding model": model or report.embedding_model or "",
        "Baseline": report.baseline or "",
        "Started": f"{report.started:%Y-%m-%d %H:%M} {report.started.tzname() or ''}",
        "Took": wording.duration(report),
        "Versions": f"Corral {report.corral_version}, Python {report.python}",
    }
    packages = Text(", ".join(f"{name} {version}" for name, version in report.packages.items()))
    count = wording.count(len(report.packages), "package")
    blocks: list[Block] = [
        Text(report.command, "code"),
        Facts({name: said for name, said in facts.items() if said}),
        *([_data_table(report), _hash_table(report)] if report.data_sets else []),
        *([Folded("Versions", [packages], f"of {count}")] if report.packages else []),
        *([Heading("Notes")] if report.notes else []),
        *([Items([Item("", note) for note in report.notes])] if report.notes else []),
    ]
    return Section("method", "How it was measured", "Method", blocks)


def _data_table(report: Report) -> Table:
    columns = [
        Column("Data set", wraps=True),
        Column("Kind"),
        Column("Language"),
        *figures("Documents", "Left out", "Queries", "Judgments", "MiB"),
    ]
    rows = [
        [
            found.name,
            found.kind,
            found.language,
            *(f"{n:,}" for n in (found.documents, found.cut, found.queries, found.judgements)),
            wording.number(found.bytes / 2**20),
        ]
        for found in report.data_sets
    ]
    return Table("Data", columns, rows)


def _hash_table(report: Report) -> Table:
    columns = [
        Column("Data set", wraps=True),
        Column("File", wraps=True),
        Column("sha256", wraps=True),
    ]
    rows: list[list[Cell | str]] = [
        [found.name, name, Cell(value, style="hash")]
        for found in report.data_sets
        for name, value in found.sha256.items()
    ]
    return Table("Files", columns, rows)


SECTIONS = (
    quality_sections.findings,
    quality_sections.quality,
    answer_sections.answers,
    quality_sections.heat_map,
    quality_sections.sweep,
    quality_sections.queries,
    quality_sections.tuning,
    speed_sections.fronts,
    speed_sections.latencies,
    speed_sections.builds,
    speed_sections.growth,
    failures,
    method,
)
