"""A pytest plugin that writes the outcome of each conformance test, one JSON object per line.

    pytest -p corral.api.testing.report --conformance-report FILE tests/...

The first line is `{"cases": N}`, the number of tests of conformance classes that will run; each
other line is an `Outcome`, written when its test has ended, so that a reader can follow the file.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from corral.api.testing.readers import ReaderConformance
from corral.api.testing.suite import Suite

MESSAGE_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one test.

    Attributes:
        file: Its file, as pytest names it.
        suite: Its class, as pytest names it.
        test: Its name.
        case: The same with parameters.
        outcome: `passed`, `failed`, or `skipped` (an expected failure, too).
        message: The reason for a failure, at most 500 characters.
    """

    file: str
    suite: str
    test: str
    case: str
    outcome: str
    message: str


def read_outcomes(lines: Iterable[str]) -> list[Outcome]:
    """Return the outcomes in the lines of a report."""
    objects = [json.loads(line) for line in lines if line.strip()]
    return [Outcome(**one) for one in objects if "case" in one]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option that names the file."""
    parser.addoption(
        "--conformance-report", type=Path, help="Write what became of each conformance test here."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start reporting if the option names a file."""
    path = config.getoption("--conformance-report")
    if path is not None:
        config.pluginmanager.register(_Reporter(path))


class _Reporter:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._worst: dict[str, tuple[str, str]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._write({"cases": sum(_suite_of(item) is not None for item in session.items)})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        suite = _suite_of(item)
        if suite is None:
            return report
        if report.outcome != "passed":
            self._worst.setdefault(item.nodeid, (report.outcome, _message(report)))
        if report.when == "teardown":
            outcome, message = self._worst.pop(item.nodeid, ("passed", ""))
            name = getattr(item, "originalname", item.name)
            file = item.nodeid.partition("::")[0]
            self._write(asdict(Outcome(file, suite, name, item.name, outcome, message)))
        return report

    def pytest_unconfigure(self) -> None:
        self._file.close()

    def _write(self, line: object) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def _suite_of(item: pytest.Item) -> str | None:
    cls = getattr(item, "cls", None)
    is_ours = isinstance(cls, type) and issubclass(cls, (Suite, ReaderConformance))
    return item.nodeid.split("::")[1] if is_ours else None


def _message(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail}"[:MESSAGE_LENGTH]
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    return text.strip()[:MESSAGE_LENGTH]
