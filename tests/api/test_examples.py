"""The contract's examples run, and its names are found in one place."""

from __future__ import annotations

import doctest
import importlib

import pytest

import corral.api


@pytest.mark.parametrize("name", ["scoring", "fusion", "filters"])
def test_the_examples_in_the_docstrings_run(name: str) -> None:
    """Each `>>>` gives what is printed below it; each of these modules has some.

    If this fails: the meaning of a score, a fusion or a filter changed, or its example is wrong.
    """
    failed, attempted = doctest.testmod(importlib.import_module(f"corral.api.{name}"))
    assert failed == 0
    assert attempted > 0


def test_the_contract_is_re_exported() -> None:
    """Every name of `corral.api.__all__` is there, once and in order."""
    assert sorted(set(corral.api.__all__)) == sorted(corral.api.__all__)
    assert all(hasattr(corral.api, name) for name in corral.api.__all__)
