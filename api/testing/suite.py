"""The base of the conformance suite: the hooks of a provider author, and the test selection."""

from __future__ import annotations

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from corral.api.embedding_index import EmbeddingIndex
from corral.api.provider import Capabilities
from corral.api.testing.indexes import Indexes
from corral.api.vector_dbs import VectorDB

Condition = Callable[[Capabilities], bool]
T = TypeVar("T")

_CONDITIONS: dict[object, Condition] = {}
"""The condition of each test, and of each class of tests, that `needs` restricts."""


def needs(condition: Condition) -> Callable[[T], T]:
    """Restrict a standard test, or a class of tests, to providers with certain capabilities.

    Args:
        condition: Returns True for the capabilities that the test applies to.
    """

    def mark(test: T) -> T:
        _CONDITIONS[test] = condition
        return test

    return mark


class Suite(ABC):
    """Hooks and settings of the suite; see the docstring of `corral.api.testing`.

    Attributes:
        capabilities: The provider's own (`SPEC.capabilities`); decides which tests run.
        xfails: Standard tests that are known to fail, with the reason. They still run, and an
            unexpected pass is a failure, so that the entry is removed once the gap is closed.
        bm25_tolerance: Maximum difference between a raw keyword score and BM25's definition;
            raise it only for an engine that stores weights in lower precision.
        recall_floor: Minimum recall_vs_exact@10 of an approximate provider.
    """

    capabilities: ClassVar[Capabilities]
    xfails: ClassVar[Mapping[str, str]] = {}
    bm25_tolerance: ClassVar[float] = 1e-6
    recall_floor: ClassVar[float] = 0.95

    whole: ClassVar[type[Suite]]
    """The class with every standard test: `IndexConformance`."""
    chosen: ClassVar[dict[str, Any]] = {}
    """By name, each standard test of the class: the test, its xfail form, or None."""

    @abstractmethod
    async def open_index(self, vector_db: VectorDB, folder: Path) -> EmbeddingIndex:
        """Return the index of a vector DB; create it if it does not exist.

        Called again with the same registration and folder, it opens the stored index: this is how
        the suite tests restarts, other processes and several vector DBs in one folder. Close
        nothing here: the suite closes and deletes each index at the end of the test.

        Args:
            vector_db: A registration as the server would pass it.
            folder: The test's own empty folder, for engines that store files. A remote engine may
                derive a name from it.
        """

    def registration(self, vector_db: VectorDB) -> VectorDB:
        """Return the vector DB to register in place of a test's vector DB: by default itself.

        `LiveConformance` gives it a unique name.
        """
        return vector_db

    async def close(self) -> None:
        """Release other resources of `open_index`, such as connections; called after each test."""

    @pytest.fixture
    def indexes(self, tmp_path: Path) -> Iterator[Indexes]:
        """Open indexes in one event loop, and drop them after the test."""
        with asyncio.Runner() as runner:
            indexes = Indexes(self, tmp_path, runner)
            yield indexes
            indexes.drop_all()

    def __init_subclass__(cls, *, whole: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if whole:
            Suite.whole = cls
        if hasattr(cls, "capabilities"):
            _select(cls)


def standard_tests() -> dict[str, Callable[..., None]]:
    """Return every test of the suite by name."""
    return {
        name: test
        for owner in reversed(Suite.whole.__mro__)
        for name, test in vars(owner).items()
        if name.startswith("test_")
    }


def applies(name: str, capabilities: Capabilities) -> bool:
    """Return True if a standard test applies to a provider with these capabilities."""
    [owner] = [owner for owner in Suite.whole.__mro__ if name in vars(owner)]
    conditions = (_CONDITIONS.get(owner), _CONDITIONS.get(vars(owner)[name]))
    return all(condition(capabilities) for condition in conditions if condition)


def _select(cls: type[Suite]) -> None:
    """Give a provider's test class exactly the standard tests that apply to it.

    If the class itself defines a test under a standard name, that test stays and the guards report
    it; only the guards themselves are restored.
    """
    cls.chosen = {}
    for name, test in standard_tests().items():
        choice: Any = test if applies(name, cls.capabilities) else None
        if choice and name in cls.xfails:
            choice = _expected_to_fail(test, cls.xfails[name])
        cls.chosen[name] = choice
        if name not in vars(cls) or name.startswith("test_suite_"):
            setattr(cls, name, choice)


def _expected_to_fail(test: Callable[..., None], reason: str) -> Callable[..., None]:
    """Return a standard test as a strict xfail with the author's reason.

    It fails once the test passes, so that the author removes the entry.
    """

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        test(*args, **kwargs)

    marked: Callable[..., None] = pytest.mark.xfail(reason=reason, strict=True)(run)
    return marked
