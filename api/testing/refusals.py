"""Standard tests: bad arguments raise the contract's errors, and the index still works."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from corral.api.checks import MAX_K, MAX_QUERY_CHARACTERS
from corral.api.errors import InvalidEmbedding, InvalidFilter, InvalidRequest, UnsupportedMode
from corral.api.testing.indexes import Indexes, chunk, ids
from corral.api.testing.suite import Suite

QUERIES: list[tuple[dict[str, Any], type[InvalidRequest]]] = [
    ({"mode": "semantic"}, UnsupportedMode),
    ({"k": 0}, InvalidRequest),
    ({"k": MAX_K + 1}, InvalidRequest),
    ({"k": True}, InvalidRequest),
    ({"score_threshold": 1.5}, InvalidRequest),
    ({"score_threshold": math.nan}, InvalidRequest),
    ({"embedding": [1.0]}, InvalidEmbedding),
    ({"embedding": [1.0, 0.0, 0.0]}, InvalidEmbedding),
    ({"embedding": [math.nan, 0.0]}, InvalidEmbedding),
    ({"embedding": [math.inf, 0.0]}, InvalidEmbedding),
    ({"embedding": [0.0, 0.0]}, InvalidEmbedding),
    ({"embedding": None}, InvalidRequest),
    ({"filters": {"type": "like", "key": "x", "value": 1}}, InvalidFilter),
    ({"filters": {"type": "eq", "key": "x"}}, InvalidFilter),
    ({"ranker": {"type": "magic"}}, InvalidRequest),
    ({"query_string": "x" * (MAX_QUERY_CHARACTERS + 1)}, InvalidRequest),
]

EMBEDDINGS: list[Any] = [
    [[1.0]],
    [[math.nan, 1]],
    [[math.inf, 1]],
    [[1e300, 1]],
    [[0, 0]],
    [["1", "2"]],
    [],
    [[1, 0], [0, 1]],
]
"""Values that are not an embedding of one chunk in two dimensions."""


@contextmanager
def refusal(error: type[InvalidRequest], what: object) -> Iterator[None]:
    """Expect an error; a failure names the bad argument."""
    try:
        yield
    except error:
        return
    except Exception as other:  # any other error fails the test, which names the bad argument
        raise AssertionError(f"{what}: {error.__name__} expected, not {other!r}") from other
    raise AssertionError(f"{what}: not refused")


class RefusalTests(Suite):
    """Bad arguments."""

    def test_bad_queries_are_refused(self, indexes: Indexes) -> None:
        """The contract's error, never the engine's, and the next query works.

        If this fails: the provider overrides `query`, or swallows errors.
        """
        index = indexes.open()
        index.add_texts({"a": "zebra"})
        query: dict[str, Any] = {"embedding": [1, 0], "query_string": "zebra", "k": 5}
        query["mode"] = "vector" if self.capabilities.hybrid == "no" else "hybrid"
        for arguments, error in QUERIES:
            what = f"query({str(arguments)[:80]})"
            with refusal(error, what):
                indexes.run(index.index.query(**{**query, **arguments}))
            assert ids(indexes.run(index.index.query(**query))) == ["a"], what

    def test_bad_embeddings_are_refused(self, indexes: Indexes) -> None:
        """Nothing is stored, and the next add works."""
        index = indexes.open()
        for rows in EMBEDDINGS:
            with refusal(InvalidRequest, rows):
                index.add([chunk("a")], rows)
            assert index.count() == 0, rows
            index.add([chunk("a")])
            assert index.count() == 1, rows
            index.remove("a")
