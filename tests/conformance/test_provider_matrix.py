"""docs/conformance.json claims what the providers' suites, run by `make test`, prove."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from provider_matrix import DATA, STAND_IN, SUITES, conformance, own_specs, promised, row, table

from corral.api.testing.matrix import standard_groups

COMMITTED = json.loads(DATA.read_text("utf-8"))


def test_every_provider_is_in_the_matrix() -> None:
    """Each vector_io provider of ours has a suite and a part of the file.

    If this fails: add its suite to SUITES in provider_matrix.py and run `make matrix`.
    """
    assert sorted(COMMITTED) == sorted(SUITES) == sorted(own_specs())


@pytest.mark.parametrize("provider_type", SUITES)
def test_what_is_claimed_is_what_the_suite_runs(provider_type: str) -> None:
    """A group is claimed where the suite runs all of it that the capabilities ask for.

    The suite itself runs with the other tests, so a group that is claimed and fails fails there,
    or in the suite's twin, over the same code; `make matrix` leaves nothing to a twin.
    If this fails: a capability, a suite or a standard test's condition was changed; `make matrix`.
    """
    assert COMMITTED[provider_type] == row(provider_type, promised(provider_type))


@pytest.mark.parametrize("provider_type", SUITES)
def test_a_twin_runs_what_is_left_to_it(provider_type: str) -> None:
    """The twin leaves nothing to another one, and runs tests of each group that is left to it.

    If this fails: a chain of twins, a misspelled group, or one that the twin cannot do.
    """
    twin: Any
    twin, groups = getattr(SUITES[provider_type].load(), "same_as", (None, ()))
    assert not hasattr(twin, "same_as")
    for group in groups:
        assert any(twin.chosen[test] for test in standard_groups()[group]), group


@pytest.mark.parametrize("provider_type", SUITES)
def test_a_suite_claims_no_more_than_its_provider(provider_type: str) -> None:
    """Suites run with their provider's capabilities; only `exact` may be stricter.

    On a stand-in, what it cannot show may be left out, and is `not run` in the matrix.
    """
    suite, spec = SUITES[provider_type], own_specs()[provider_type]
    theirs = suite.load().capabilities
    assert theirs.exact >= spec.capabilities.exact
    if suite.tested_on == STAND_IN:
        assert not theirs.concurrent_processes or spec.capabilities.concurrent_processes
        theirs = replace(theirs, concurrent_processes=spec.capabilities.concurrent_processes)
    assert replace(theirs, exact=spec.capabilities.exact) == spec.capabilities


def test_nothing_has_failed() -> None:
    """No committed group failed, and only a stand-in leaves one out."""
    for provider_type, one in COMMITTED.items():
        wanted = {"passed", "not applicable"}
        wanted |= {"not run"} if one["tested_on"] == STAND_IN else set()
        assert set(one["groups"].values()) <= wanted, provider_type


def test_a_failure_shows_in_file_and_table() -> None:
    """One failed case makes its group failed, and the table names it."""
    test = "test_a_new_index_is_empty"
    outcomes = [
        replace(o, outcome="failed") if o.test == test else o for o in promised("inline::memory")
    ]
    one = row("inline::memory", outcomes)
    assert one["groups"]["lifecycle"] == "failed"
    assert conformance(one).endswith(" on its engine; failed: lifecycle")
    assert "failed: lifecycle" in table({"inline::memory": one})
    without = row("inline::memory", [o for o in outcomes if o.test != test])
    assert without["groups"]["lifecycle"] == "not run"
    assert conformance(without).endswith("; not run in full: lifecycle")
