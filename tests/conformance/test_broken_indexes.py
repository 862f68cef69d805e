"""The tests are tested: every known defect fails the standard test that is named for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from broken_indexes import CAUGHT_BY
from toy_engine import ToyEngine

HERE = Path(__file__).parent
CASES = [(index, test) for index, tests in CAUGHT_BY.items() for test in tests]
RECALL = (
    "test_approximate_search_is_near_brute_force",
    "test_filtered_vector_search_is_near_brute_force",
)
OTHERS = [
    "TestKnownGap::test_words_are_joined_by_or",
    "TestClosedGap::test_words_are_joined_by_or",
    *(f"TestApproximate::{test}" for test in RECALL),
    *(f"TestHalfBlind::{test}" for test in RECALL),
]
LEFT_OUT = "TestTwin::test_words_are_joined_by_or"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run the named tests in one pytest of their own; return the outcome by class and test."""
    report = tmp_path_factory.mktemp("report") / "report.xml"
    names = [*OTHERS, *(f"Test{index.__name__}::{test}" for index, test in CASES)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no"]
    command += [f"--junitxml={report}", f"--rootdir={HERE.parents[1]}"]
    # The settings in pyproject.toml are those of these two; others take their time to load.
    command += ["-p", "pytest_timeout", "-p", "anyio.pytest_plugin"]
    run = subprocess.run(
        [*command, *(f"{HERE / 'broken_suite.py'}::{name}" for name in [*names, LEFT_OUT])],
        capture_output=True, text=True, check=False, timeout=250,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
             "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    cases = list(ElementTree.parse(report).iter("testcase"))
    assert len(cases) == len(names), run.stdout
    return {
        f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}": outcome(case)
        for case in cases
    }


def outcome(case: ElementTree.Element) -> str:
    """Return passed, failure, error or skipped (an expected failure is skipped, here)."""
    return next(
        (child.tag for child in case if child.tag not in ("properties", "system-out")), "passed"
    )


@pytest.mark.parametrize(("index", "test"), CASES, ids=lambda v: getattr(v, "__name__", v))
def test_a_broken_index_fails(outcomes: dict[str, str], index: type[ToyEngine], test: str) -> None:
    """An index with this defect does not get through this test.

    If this fails: the standard test has become too weak to see the defect.
    """
    assert outcomes[f"Test{index.__name__}::{test}"] == "failure"


def test_a_known_gap_is_an_expected_failure(outcomes: dict[str, str]) -> None:
    """A test listed in `xfails` that fails is no failure of the run."""
    assert outcomes["TestKnownGap::test_words_are_joined_by_or"] == "skipped"


def test_a_closed_gap_is_noticed(outcomes: dict[str, str]) -> None:
    """A test listed in `xfails` that passes is a failure, so that the list gets shorter."""
    assert outcomes["TestClosedGap::test_words_are_joined_by_or"] == "failure"


def test_what_a_twin_runs_is_left_out(outcomes: dict[str, str]) -> None:
    """A test of a group that a suite shares with its twin runs there, and not again.

    With a report of the conformance, as in `make matrix`, it runs: see test_report.py.
    """
    assert LEFT_OUT not in outcomes


@pytest.mark.parametrize("test", RECALL)
def test_recall_is_measured_where_search_is_approximate(
    outcomes: dict[str, str], test: str
) -> None:
    """An index that finds all passes, one that misses half of the chunks does not."""
    assert outcomes[f"TestApproximate::{test}"] == "passed"
    assert outcomes[f"TestHalfBlind::{test}"] == "failure"
