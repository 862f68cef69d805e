"""The matrix of a conformance run: passed, failed and inapplicable standard tests by group.

Groups are the parts of `IndexConformance`; only capabilities decide which tests apply. The matrix
counts standard tests, not their parameters: a test passes if all its cases pass.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from corral.api.provider import Capabilities
from corral.api.testing import IndexConformance, ReaderConformance
from corral.api.testing.report import Outcome
from corral.api.testing.suite import applies, standard_tests


@dataclass(frozen=True, slots=True)
class Failure:
    """One case that failed.

    Attributes:
        test: Its name, with parameters.
        rule: The requirement of the standard test: the first paragraph of its docstring.
        message: The error message of the case.
    """

    test: str
    rule: str
    message: str


@dataclass(slots=True)
class Group:
    """The results of one group.

    Attributes:
        name: As in `standard_groups`.
        passed, failed: Standard tests that ran.
        not_run: Standard tests that apply but did not run; their result is unknown.
        not_applicable: Standard tests that the capabilities exclude.
        failures: Every case that failed.
    """

    name: str
    passed: int = 0
    failed: int = 0
    not_run: int = 0
    not_applicable: int = 0
    failures: list[Failure] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """The first that holds of `failed`, `not run`, `passed` and `not applicable`."""
        if self.failed:
            return "failed"
        if self.not_run:
            return "not run"
        return "passed" if self.passed else "not applicable"

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome and all fields except the name as JSON values."""
        fields = asdict(self)
        del fields["name"]
        return {"outcome": self.outcome, **fields}


def standard_groups() -> dict[str, list[str]]:
    """Return the names of the standard tests by group, both in the order of the suite.

    A group is a part of `IndexConformance` and is named by its class: HostileTextTests is
    `hostile text`.
    """
    return {
        re.sub("(?<=[a-z])(?=[A-Z])", " ", part.__name__.removesuffix("Tests")).lower(): [
            name for name in vars(part) if name.startswith("test_")
        ]
        for part in IndexConformance.__bases__
    }


def matrix(capabilities: Capabilities, outcomes: Iterable[Outcome]) -> list[Group]:
    """Return the results of each group.

    Args:
        capabilities: Capabilities that select the applicable tests.
        outcomes: The outcomes of one provider, one for each case. Outcomes of the provider's own
            tests are not counted. An expected failure counts as a failure, because the provider
            lacks the behavior.
    """
    cases = _by_test(outcomes)
    documented = standard_tests()
    groups = []
    for name, tests in standard_groups().items():
        applying = {test: documented[test] for test in tests if applies(test, capabilities)}
        group = _group(name, applying, cases)
        group.not_applicable = len(tests) - len(applying)
        groups.append(group)
    return groups


def reader_matrix(outcomes: Iterable[Outcome]) -> list[Group]:
    """Return the results of a reader as one group."""
    tests = {name: test for name, test in vars(ReaderConformance).items() if name[:5] == "test_"}
    return [_group("reader", tests, _by_test(outcomes))]


def _by_test(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    cases: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        cases.setdefault(outcome.test, []).append(outcome)
    return cases


def _group(
    name: str, tests: Mapping[str, Callable[..., None]], cases: Mapping[str, list[Outcome]]
) -> Group:
    """Return the results of the standard tests that apply."""
    group = Group(name)
    for test, documented in tests.items():
        if test not in cases:
            group.not_run += 1
        elif wrong := [case for case in cases[test] if case.outcome != "passed"]:
            group.failed += 1
            requirement = rule(documented)
            group.failures += [Failure(case.case, requirement, case.message) for case in wrong]
        else:
            group.passed += 1
    return group


def rule(test: Callable[..., None]) -> str:
    """Return the requirement of a standard test as one line."""
    return " ".join((inspect.getdoc(test) or "").split("\n\n")[0].split())
