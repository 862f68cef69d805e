"""The pytest plugin that reports, and the matrix that is made of its report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from toy_engine import CAPABILITIES

from corral.api.testing.matrix import Group, matrix, standard_groups
from corral.api.testing.report import Outcome, read_outcomes
from corral.api.testing.suite import standard_tests

HERE = Path(__file__).parent
OR = "test_words_are_joined_by_or"
ANGLES = "test_normalized_embeddings_score_by_their_angle"
METRICS = ("cosine", "l2", "dot")


def passed(test: str) -> Outcome:
    """Return the outcome of a test that passed."""
    return Outcome("file", "TestToy", test, test, "passed", "")


def group_of(outcomes: list[Outcome], name: str) -> Group:
    """Return one group of the matrix of the toy provider."""
    [found] = [group for group in matrix(CAPABILITIES, outcomes) if group.name == name]
    return found


def test_the_plugin_reports_each_case(tmp_path: Path) -> None:
    """The number of cases first, then each with its class, its outcome and what was found.

    No test is left to a twin here: what is published was seen.
    """
    report = tmp_path / "report.jsonl"
    names = [f"TestKeywordAnd::{OR}", f"TestKnownGap::{OR}", f"TestTwin::{OR}"]
    names.append(f"TestKeywordAnd::{ANGLES}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider",
         "-p", "corral.api.testing.report", f"--conformance-report={report}",
         f"--rootdir={HERE.parents[1]}", *(f"{HERE / 'broken_suite.py'}::{n}" for n in names)],
        capture_output=True, text=True, check=False, timeout=100,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    first, *lines = report.read_text("utf-8").splitlines()
    assert json.loads(first) == {"cases": 6}
    failed, gap, twin, *angles = read_outcomes(lines)
    assert (twin.suite, twin.outcome) == ("TestTwin", "passed")
    assert (failed.suite, failed.test, failed.outcome) == ("TestKeywordAnd", OR, "failed")
    assert "assert ['c'] == ['c', 'a', 'b']" in failed.message
    assert (gap.suite, gap.outcome) == ("TestKnownGap", "skipped")
    assert gap.message == "expected to fail: joins by AND"
    assert [(one.test, one.case, one.outcome) for one in angles] == [
        (ANGLES, f"{ANGLES}[{metric}]", "passed") for metric in METRICS
    ]


def test_groups_hold_every_standard_test_once() -> None:
    """If this fails: a part of the suite is no base of IndexConformance itself."""
    grouped = [test for tests in standard_groups().values() for test in tests]
    assert sorted(grouped) == sorted(standard_tests())
    assert {"lifecycle", "vector", "hostile text", "persistence"} <= set(standard_groups())


def test_a_test_passes_when_all_its_cases_do() -> None:
    """One case of three fails: the test counts as failed, and that case is named with the rule."""
    outcomes = [passed(test) for test in standard_tests()]
    wrong = Outcome("file", "TestToy", ANGLES, f"{ANGLES}[l2]", "failed", "0.5 != 1.0")
    group = group_of([*outcomes, wrong], "vector")
    assert (group.outcome, group.failed, group.not_run) == ("failed", 1, 0)
    [failure] = group.failures
    assert (failure.test, failure.message) == (f"{ANGLES}[l2]", "0.5 != 1.0")
    assert failure.rule.startswith("(1 + cos) / 2 under every metric: identical 1")


def test_what_did_not_run_is_not_passed() -> None:
    """An applying test without an outcome makes its group `not run`; its own tests count not."""
    outcomes = [passed(test) for test in standard_tests() if test != ANGLES]
    assert group_of([*outcomes, passed("test_of_its_own")], "vector").outcome == "not run"
    assert group_of(outcomes, "keyword").outcome == "passed"
    gap = [replace(one, outcome="skipped") if one.test == OR else one for one in outcomes]
    assert group_of(gap, "keyword").outcome == "failed"
    everything = [passed(test) for test in standard_tests()]
    assert group_of(everything, "not fuzzy").outcome == "not applicable"
