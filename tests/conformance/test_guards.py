"""The guards: which tests a provider gets, and that it cannot quietly lose one."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from toy_engine import CAPABILITIES, ToyEngine

from corral.api.embedding_index import EmbeddingIndex
from corral.api.engine_index import EngineIndex
from corral.api.provider import Capabilities
from corral.api.testing import IndexConformance
from corral.api.testing.guards import complaints
from corral.api.testing.suite import standard_tests
from corral.api.vector_dbs import VectorDB


def suite(capabilities: Capabilities = CAPABILITIES, **members: Any) -> type[IndexConformance]:
    """Return a provider's test class with these members."""

    async def open_index(self: object, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        return EngineIndex(ToyEngine(vector_db, folder))

    members = {"capabilities": capabilities, "open_index": open_index, **members}
    return type("TestProvider", (IndexConformance,), members)


def running(cls: type[IndexConformance]) -> set[str]:
    """Return the standard tests that pytest would collect."""
    return {name for name in standard_tests() if callable(getattr(cls, name))}


def test_a_provider_that_can_do_all_runs_all() -> None:
    """With every capability, only tests of approximate search and of refusals do not apply."""
    assert complaints(suite()) == []
    assert set(standard_tests()) - running(suite()) == {
        "test_approximate_search_is_near_brute_force",
        "test_approximate_search_is_near_brute_force_on_raw_embeddings",
        "test_filtered_vector_search_is_near_brute_force",
        "test_fuzzy_search_is_refused",
    }
    assert len(standard_tests()) > 90


ANGLES, OR = "test_in_three_dimensions", "test_words_are_joined_by_or"
RESTART, FILTERS = "test_a_restart_changes_no_answer", "test_in_and_nin"


@pytest.mark.parametrize(
    ("lost", "gone", "stays"),
    [
        ({"exact": False}, "test_exact_search_equals_brute_force", ANGLES),
        ({"exact": False}, "test_filtered_vector_search_equals_brute_force", ANGLES),
        ({"persistent": False}, RESTART, "test_dropping_removes_everything"),
        ({"transactional": False}, "test_a_killed_writer_leaves_whole_calls_only", RESTART),
        ({"concurrent_processes": False}, "test_two_processes_write_at_once", RESTART),
        ({"keyword": "no"}, OR, ANGLES),
        ({"hybrid": "no"}, "test_first_in_both_legs_scores_1", OR),
        ({"vector": "no"}, ANGLES, OR),
        ({"metrics": ("cosine",)}, "test_l2_of_raw_embeddings", "test_cosine_of_raw_embeddings"),
        ({"filter_operators": ("ne",)}, "test_a_filter_is_applied_before_the_top_k", FILTERS),
        ({"filter_operators": ()}, FILTERS, ANGLES),
        ({"max_dimension": 0}, "test_the_largest_dimension_works", "test_any_dimension"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_capabilities_decide_which_tests_run(lost: dict[str, Any], gone: str, stays: str) -> None:
    """Without an ability its tests do not exist, and the others do."""
    cls = suite(replace(CAPABILITIES, **lost))
    assert gone not in running(cls)
    assert stays in running(cls)
    assert complaints(cls) == []


def test_every_capability_decides_something() -> None:
    """Each field of Capabilities changes the set of tests, so that no claim goes unchecked."""
    everything = running(suite())
    for field in fields(Capabilities):
        without: dict[str, Any] = {field.name: field.default}
        less = replace(CAPABILITIES, **without)
        assert running(suite(less)) != everything, field.name


@pytest.mark.parametrize(
    ("members", "complaint"),
    [
        ({"test_words_are_joined_by_or": lambda self: None}, "do not override"),
        ({"test_words_are_joined_by_or": None}, "do not override"),
        ({"test_in_and_nin": pytest.mark.xfail(lambda self: None)}, "do not override"),
        ({"xfails": {"test_no_such_thing": "reason"}}, "not a standard test"),
        ({"xfails": {"test_suite_is_whole": "reason"}}, "not a standard test"),
        ({"xfails": {"test_in_and_nin": " "}}, "no reason"),
        ({"xfails": {"test_approximate_search_is_near_brute_force": "slow"}}, "exclude"),
    ],
)
def test_a_lost_test_is_complained_about(members: dict[str, Any], complaint: str) -> None:
    """Overriding, deleting, a wrong name, a missing reason: each fails test_suite_is_whole."""
    [found] = complaints(suite(**members))
    assert complaint in found
    with pytest.raises(AssertionError):
        suite(**members)().test_suite_is_whole()


def test_deleting_a_test_afterwards_is_noticed() -> None:
    """Setting the attribute on the class after its body does not help."""
    cls = suite()
    cls.test_words_are_joined_by_or = None  # type: ignore[assignment,method-assign]
    assert len(complaints(cls)) == 1


def test_the_guards_themselves_cannot_be_overridden() -> None:
    """A class that replaces the guard gets the guard back."""
    cls = suite(test_suite_is_whole=lambda self: None, test_words_are_joined_by_or=None)
    assert cls.test_suite_is_whole is IndexConformance.test_suite_is_whole
    with pytest.raises(AssertionError):
        cls().test_suite_is_whole()


def test_a_mixin_cannot_take_a_test_away() -> None:
    """What another base class says about a standard test does not count."""

    class Mixin:
        test_words_are_joined_by_or = None

    members = {"capabilities": CAPABILITIES, "open_index": suite().open_index}
    cls = type("TestProvider", (Mixin, IndexConformance), members)
    assert "test_words_are_joined_by_or" in running(cls)


def test_an_expected_failure_is_strict_and_keeps_its_reason() -> None:
    """`xfails` marks the standard test itself, strictly, and leaves other classes alone."""
    cls = suite(xfails={"test_in_and_nin": "the engine has no nin"})
    assert complaints(cls) == []
    [mark] = cls.test_in_and_nin.pytestmark  # type: ignore[attr-defined]
    assert (mark.name, mark.kwargs) == (
        "xfail", {"reason": "the engine has no nin", "strict": True}
    )  # fmt: skip
    assert not hasattr(suite().test_in_and_nin, "pytestmark")


def test_own_tests_may_stand_beside_the_standard_ones() -> None:
    """A provider adds what it likes under other names."""
    assert complaints(suite(test_of_my_own=lambda self: None)) == []


def test_every_standard_test_states_its_rule() -> None:
    """Each has a docstring, and no two groups share a name."""
    names = [n for owner in IndexConformance.__mro__ for n in vars(owner) if n.startswith("test_")]
    assert len(names) == len(set(names))
    assert all(test.__doc__ for test in standard_tests().values())


def test_a_provider_must_say_how_it_is_opened() -> None:
    """Without open_index the class cannot be used."""
    incomplete = type("TestProvider", (IndexConformance,), {"capabilities": CAPABILITIES})
    with pytest.raises(TypeError, match="open_index"):
        incomplete()
