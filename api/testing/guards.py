"""Standard tests of the tests: the suite is whole, and the contract's own road is in use."""

from __future__ import annotations

import inspect

from corral.api.embedding_index import EmbeddingIndex
from corral.api.testing.indexes import Indexes
from corral.api.testing.suite import Suite, applies, standard_tests

PUBLIC = (
    "query", "add_chunks", "set_acl", "change_document", "get_chunks", "delete_chunks", "count",
    "chunk_ids", "documents", "document_chunk_ids", "seen_by", "delete",
)  # fmt: skip
HOOKS = (
    "_add", "_query_vector", "_query_keyword", "_query_fuzzy", "_query_hybrid", "_get",
    "_delete_chunks", "_count", "_chunk_ids", "_documents", "_document_chunk_ids",
    "_count_passing", "_chunk_ids_passing", "_documents_passing", "_drop",
)  # fmt: skip


def complaints(cls: type[Suite]) -> list[str]:
    """Return what a provider's test class has done to the standard tests that it may not do."""
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
    """What keeps a provider honest. These cannot be overridden or expected to fail."""

    def test_suite_is_whole(self) -> None:
        """Every standard test that the capabilities ask for is run as it was written.

        If this fails: a test that cannot pass yet belongs into `xfails`, with the reason.
        """
        assert complaints(type(self)) == []

    def test_suite_tests_the_contracts_own_methods(self, indexes: Indexes) -> None:
        """The provider writes hooks; the public methods are those of EmbeddingIndex.

        If this fails: move what the override does into a hook, so that its checks stay in force.
        """
        index = type(indexes.open().index)
        overridden = [n for n in PUBLIC if getattr(index, n) is not getattr(EmbeddingIndex, n)]
        assert overridden == []

    def test_suite_calls_hooks_as_the_contract_does(self, indexes: Indexes) -> None:
        """Every hook takes the arguments of its declaration, under their names."""
        index = type(indexes.open().index)
        for name in HOOKS:
            declared = inspect.signature(getattr(EmbeddingIndex, name)).parameters
            written = inspect.signature(getattr(index, name)).parameters
            assert list(written)[: len(declared)] == list(declared), name
            extra = [written[one] for one in list(written)[len(declared) :]]
            assert all(one.default is not one.empty for one in extra), name
