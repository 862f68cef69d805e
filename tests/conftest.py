"""What holds for every test."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Generator

import pytest

# A shell that runs the tests in the background ignores Ctrl-C for them, and what they start would
# inherit that; tests that interrupt a process need it to listen.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Engines have to be there. The browser comes from npm's registry, which a machine may not reach.
MAY_BE_MISSING = "no Chromium"

FAIL_ON_SKIP = bool(os.environ.get("CORRAL_FAIL_ON_SKIP"))


def pytest_report_header() -> str:
    """Say what remote::weaviate is tested against; see its real_server.py."""
    found = os.environ.get("CORRAL_TEST_WEAVIATE") or shutil.which("weaviate-server")
    return f"weaviate: {found or 'a stand-in; no CORRAL_TEST_WEAVIATE, no weaviate-server on PATH'}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where everything is installed, as in CI."""
    report = yield
    if (
        FAIL_ON_SKIP
        and report.skipped
        and not hasattr(report, "wasxfail")
        and MAY_BE_MISSING not in str(report.longrepr)
    ):
        report.outcome = "failed"
        report.longrepr = f"skipped, where nothing may be skipped: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run coroutine tests on asyncio, the only event loop that Corral supports."""
    return "asyncio"
