"""All sections of a report, in their order, as data."""

from __future__ import annotations

from corral.bench.report import fidelity_sections, quality_sections, run_sections, speed_sections
from corral.bench.report.blocks import Section
from corral.bench.report.report import Report

SECTIONS = (
    quality_sections.findings,
    quality_sections.quality,
    quality_sections.heat_map,
    quality_sections.sweep,
    quality_sections.queries,
    quality_sections.tuning,
    fidelity_sections.fidelity,
    speed_sections.fronts,
    speed_sections.latencies,
    speed_sections.builds,
    run_sections.failures,
    run_sections.method,
)


def sections(report: Report) -> list[Section]:
    """Return the sections of a report, those without rows left out."""
    return [section for make in SECTIONS if (section := make(report)) is not None]
