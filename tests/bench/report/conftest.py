"""The example report, and the browser that looks at its page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from corral.bench.report.report import Report

from .example_report import example_report
from .headless import Browser, find_browser


@pytest.fixture(scope="session")
def report() -> Report:
    """Return a made-up report with every kind of row."""
    return example_report()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Yield a headless browser; `make test` installs one."""
    binary = find_browser()
    if binary is None:
        pytest.skip("no Chromium: run `make test`, which installs one with npm")
    with Browser(binary) as started:
        yield started
