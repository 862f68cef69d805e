"""Standard tests of the tests: the suite is complete, and calls go through the contract."""

from __future__ import annotations

import inspect

from corral.api.embedding_index import EmbeddingIndex
from corral.api.engine import Engine
from corral.api.engine_index import EngineIndex
from corral.api.testing.indexes import Indexes
from corral.api.testing.suite import Suite, applies, standard_tests

PUBLIC = (
    "query", "add_chunks", "set_acl", "change_document", "get_chunks", "delete_chunks", "count",
    "chunk_ids", "documents", "document_page", "document_chunk_ids", "scoped_to", "delete",
)  # fmt: skip
CALLS = (
    "add", "search_vector", "search_keyword", "search_fuzzy", "search_hybrid", "get", "delete",
    "count", "chunk_ids", "documents", "document_chunk_ids", "count_passing", "chunk_ids_passing",
    "documents_passing", "document_page", "drop",
)  # fmt: skip


def complaints(cls: type[Suite]) -> list[str]:
    """Return the forbidden changes of a provider's test class to the standard tests."""
    wrong = []
    for name, choice in cls.chosen.items():
        if vars(cls).get(name) is not choice:
            wrong.append(f"{name} is a standard test: do not override it, list it in xfails")
    for name, reason in cls.xfails.items():
        if name not in standard_tests() or name.startswith("test_suite_"):
            wrong.append(f"xfails names {name}, which is not a standard test")
        elif not applies(name, cls.capabilities):
            wrong.append(f"xfails names {name}, which the capabilities exclude")
        elif not reason.strip():
            wrong.append(f"xfails gives no reason for {name}")
    return wrong


class GuardTests(Suite):
    """Guards against changed tests and methods. They cannot be overridden or expected to fail."""

    def test_suite_is_whole(self) -> None:
        """Every standard test that the capabilities select runs unmodified.

        If this fails: list a test that cannot pass yet in `xfails`, with the reason.
        """
        assert complaints(type(self)) == []

    def test_suite_tests_the_contracts_own_methods(self, indexes: Indexes) -> None:
        """The public methods take the arguments of `EmbeddingIndex`, under their names.

        `EngineIndex` cannot be subclassed, so a provider's own code is in its engine.
        """
        index = type(indexes.open().index)
        assert index is EngineIndex or EngineIndex not in index.__mro__
        for name in PUBLIC:
            check_signature(EmbeddingIndex, index, name)

    def test_suite_calls_engines_as_the_contract_does(self, indexes: Indexes) -> None:
        """Every call of an engine takes the arguments of its declaration, under their names."""
        index = indexes.open().index
        if isinstance(index, EngineIndex):
            for name in CALLS:
                check_signature(Engine, type(index.engine), name)


def check_signature(contract: type, written: type, name: str) -> None:
    """Assert that a method has the contract's parameters, and defaults for any others."""
    declared = inspect.signature(getattr(contract, name)).parameters
    own = inspect.signature(getattr(written, name)).parameters
    assert list(own)[: len(declared)] == list(declared), name
    extra = [own[one] for one in list(own)[len(declared) :]]
    assert all(one.default is not one.empty for one in extra), name
