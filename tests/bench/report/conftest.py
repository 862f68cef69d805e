"""The example report."""

from __future__ import annotations

import pytest

from corral.bench.report.report import Report

from .example_report import example_report


@pytest.fixture(scope="session")
def report() -> Report:
    """Return a made-up report with every kind of row."""
    return example_report()
