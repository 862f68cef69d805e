"""The examples in docstrings run, and the contract's names are found in one place."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path

import pytest

import corral.api

ROOT = Path(__file__).parents[2]
WITH_EXAMPLES = sorted(
    "corral." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for room in ("api", "bench", "providers", "server")
    for path in (ROOT / room).rglob("*.py")
    if "    >>> " in path.read_text("utf-8")
)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_in_the_docstrings_run(name: str) -> None:
    """Each `>>>` gives what is printed below it, in whatever room it is.

    If this fails: the meaning of a score, a fusion or a filter changed, or its example is wrong.
    """
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert failed == 0
    assert attempted > 0


def test_each_room_of_examples_is_found() -> None:
    """The contract and the kit of provider authors have examples.

    If this fails: they were deleted, or `WITH_EXAMPLES` no longer finds them.
    """
    contract = {f"corral.api.{name}" for name in ("scoring", "fusion", "filters")}
    assert {*contract, "corral.providers.text.bm25"} <= set(WITH_EXAMPLES)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_have_their_own_section(name: str) -> None:
    """`>>>` is below `Examples:`; elsewhere the Python reference runs it into the text."""
    for test in doctest.DocTestFinder().find(importlib.import_module(name)):
        if test.examples:
            assert "\nExamples:\n    >>> " in inspect.cleandoc(test.docstring or ""), test.name


def test_the_contract_is_re_exported() -> None:
    """Every name of `corral.api.__all__` is there, once and in order."""
    assert sorted(set(corral.api.__all__)) == sorted(corral.api.__all__)
    assert all(hasattr(corral.api, name) for name in corral.api.__all__)
