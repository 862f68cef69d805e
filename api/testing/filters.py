"""Standard tests: filters equal the reference evaluator, and apply before the top k is taken."""

from __future__ import annotations

from typing import Any

import numpy as np

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.filters import MAX_DEPTH, MAX_NODES, MAX_VALUES, matches, parse_filter
from corral.api.testing.indexes import PLAIN, Handle, Indexes, chunk, ids
from corral.api.testing.suite import Suite, needs

HOSTILE = [
    "it's",
    'a"b',
    "a\\b",
    "a.b",
    "$[0]",
    "a b",
    "%",
    "_",
    "'; DROP TABLE chunks; --",
    "天气 🙂",
    "",
    "{}",
]

VALUES: list[Any] = [
    0, 1, 5, -3, 2**53, 2**53 + 1, 2**63 - 1, -(2**63) + 1, 0.0, 1.0, 0.1, 5.5, -2.5, 1e300,
    True, False, None, "a", "A", "b", "é", "e\u0301", "1", "5", "true", "null", "2024-05-01",
    [], [1, 2], ["a", "b"], [True], ["5", 5], [None], [["a"]], {}, {"x": 1}, {"a": "a"},
    [0.5, "it's"], ["天气"], [1, "1", True], *HOSTILE,
]  # fmt: skip
"""Metadata under the key "x", one chunk each; one more chunk lacks the key."""

LONG = 40
"""Maximum length of a list of filters that is tested completely in hybrid mode."""

SCALARS: list[Any] = [value for value in VALUES if isinstance(value, str | int | float)]


def operators(data: dict[str, Any]) -> set[str]:
    """Return the types used in a filter."""
    return {data["type"]}.union(*(operators(part) for part in data.get("filters", ())))


def random_filter(rng: np.random.Generator, depth: int = 3) -> dict[str, Any]:
    """Return a random filter on the metadata of `varied`."""
    if depth > 1 and rng.random() < 0.6:
        parts = [random_filter(rng, depth - 1) for _ in range(rng.integers(1, 4))]
        return {"type": str(rng.choice(["and", "or"])), "filters": parts}
    key, values = FIELDS[rng.integers(len(FIELDS))]
    kind = str(rng.choice(["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]))
    picked = [values[n] for n in rng.integers(len(values), size=3)]
    if kind in ("in", "nin"):
        return {"type": kind, "key": key, "value": picked}
    ordered = [value for value in picked if not isinstance(value, bool)]
    if kind not in ("eq", "ne") and not ordered:
        return {"type": "eq", "key": key, "value": picked[0]}
    value = picked[0] if kind in ("eq", "ne") else ordered[0]
    return {"type": kind, "key": key, "value": value}


FIELDS: list[tuple[str, list[Any]]] = [
    ("year", [2020, 2021, 2022, 2021.5, "2021"]),
    ("lang", ["en", "no", "zh", "天气", ""]),
    ("tags", ["x", "y", "z", 1, True]),
    ("draft", [True, False, 1, "true"]),
    ("absent", ["a", 1]),
]


def varied(rng: np.random.Generator, number: int) -> Chunk:
    """Return a chunk with random metadata, some keys missing."""
    metadata: dict[str, Any] = {}
    for key, values in FIELDS[:4]:
        if rng.random() < 0.8:
            size = int(rng.integers(0, 3))
            picked = [values[n] for n in rng.integers(len(values), size=max(size, 1))]
            metadata[key] = picked if key == "tags" and rng.random() < 0.7 else picked[0]
    return chunk(f"c{number:03}", f"word w{number % 3}", **metadata)


@needs(lambda can: bool(can.filter_operators))
class FilterTests(Suite):
    """Filters, with the operators that the provider supports."""

    def wrong(
        self, index: Handle, chunks: list[Chunk], filters: list[Any], modes: tuple[str, ...] = ()
    ) -> list[Any]:
        """Return the filters, and the modes, with answers that differ from the reference.

        Args:
            index: The index to query.
            chunks: All chunks of the index.
            filters: Every fifth filter is also tested on `chunk_ids`; if the list is long, only
                every fifth is tested in hybrid mode, which repeats both other modes. Lists cycle
                through two or four types of filter, so each type is tested.
            modes: The modes to test; empty for all.
        """
        differing = []
        hybrid_step = 5 if len(filters) > LONG else 1
        for number, data in enumerate(filters):
            if not operators(data) <= set(self.capabilities.filter_operators):
                continue
            parsed = parse_filter(data)
            passing = {c.chunk_id for c in chunks if matches(parsed, c.metadata)}
            if number % 5 == 0 and index.chunk_ids(filters=data) != sorted(passing):
                differing.append(("list", data, sorted(passing)))
            for mode in modes or self.capabilities.modes:
                if mode == "hybrid" and number % hybrid_step:
                    continue
                hit_ids = set(ids(index.search(mode, [1, 0], "word", k=1000, filters=data)))
                if hit_ids != passing:
                    differing.append((mode, data, sorted(hit_ids ^ passing)))
        return differing

    def stored(self, indexes: Indexes, values: list[Any]) -> tuple[Handle, list[Chunk]]:
        """Return an index with a chunk for each value of "x", and one without."""
        chunks = [chunk(f"c{n:02}", "word", x=value) for n, value in enumerate(values)]
        chunks.append(chunk("missing", "word"))
        index = indexes.open(**PLAIN)
        index.add(chunks)
        return index, chunks

    def test_equality_with_every_kind_of_value(self, indexes: Indexes) -> None:
        """eq and ne for each scalar against each stored value: numbers, booleans, strings, lists.

        1 equals 1.0 but neither "1" nor true; a list holds its elements; null, objects and missing
        keys have no element. If this fails: the third part of each entry names the chunks.
        """
        index, chunks = self.stored(indexes, VALUES)
        filters = [{"type": t, "key": "x", "value": v} for v in SCALARS for t in ("eq", "ne")]
        assert self.wrong(index, chunks, filters) == []

    def test_ordering_of_numbers_and_strings(self, indexes: Indexes) -> None:
        """gt, gte, lt, lte: numbers with numbers, strings with strings by code point."""
        index, chunks = self.stored(indexes, [*VALUES, "\uffff", "\U0001f600", "z", [9, "z"]])
        values = [0, 1, 5, 0.1, -3, 2**53, "a", "b", "1", "", "é", "\uffff", "2024", -1e300]
        filters = [
            {"type": t, "key": "x", "value": v} for v in values for t in ("gt", "gte", "lt", "lte")
        ]
        assert self.wrong(index, chunks, filters) == []

    def test_in_and_nin(self, indexes: Indexes) -> None:
        """One of several values, of mixed kinds, up to 1,000 of them; nin is the negation."""
        index, chunks = self.stored(indexes, VALUES)
        lists: list[Any] = [
            [1], [1, "a"], [True, "b"], ["a", 5.5, False], HOSTILE, [*range(MAX_VALUES)], ["none"],
        ]  # fmt: skip
        filters = [{"type": t, "key": "x", "value": v} for v in lists for t in ("in", "nin")]
        assert self.wrong(index, chunks, filters) == []

    def test_in_an_empty_list_is_nothing(self, indexes: Indexes) -> None:
        """`in` with no value passes no chunk and `nin` every chunk, also inside and / or.

        If this fails: the engine's language has no empty list, or treats it as no condition.
        """
        index, chunks = self.stored(indexes, [1, "a", None, ["a", "b"]])
        nothing: dict[str, Any] = {"type": "in", "key": "x", "value": []}
        everything: dict[str, Any] = {"type": "nin", "key": "x", "value": []}
        some: dict[str, Any] = {"type": "eq", "key": "x", "value": "a"}
        filters = [nothing, everything] + [
            {"type": joint, "filters": [some, empty]}
            for joint in ("and", "or")
            for empty in (nothing, everything)
        ]
        assert self.wrong(index, chunks, filters) == []

    def test_keys_are_data(self, indexes: Indexes) -> None:
        """Quotes, dots, brackets and SQL in a key refer to exactly that key.

        If this fails: the key became part of a query or a path, which allows injection.
        """
        keys = [
            *[key for key in HOSTILE if key],
            "content",
            "chunk_id",
            "id",
            "rowid",
            "metadata",
            "x.y",
        ]
        chunks = [chunk(f"c{n:02}", "word", **{key: "yes"}) for n, key in enumerate(keys)]
        chunks.append(Chunk(content="word", chunk_id="nested", metadata={"x": {"y": "yes"}}))
        index = indexes.open(**PLAIN)
        index.add(chunks)
        filters = [
            {"type": t, "key": key, "value": v}
            for key in keys
            for t, v in (("eq", "yes"), ("ne", "yes"), ("eq", "word"))
        ]
        assert self.wrong(index, chunks, filters) == []

    def test_random_filters_equal_the_reference(self, indexes: Indexes) -> None:
        """120 random nested filters over 80 random chunks, cycling through the modes.

        Each chunk has replaced an older chunk; filters must no longer match the old metadata.
        """
        rng, earlier = np.random.default_rng(11), np.random.default_rng(12)
        chunks = [varied(rng, number) for number in range(80)]
        index = indexes.open(**PLAIN)
        index.add([varied(earlier, number) for number in range(80)])
        index.add(chunks)
        filters = [random_filter(rng) for _ in range(120)]
        modes = self.capabilities.modes
        for number, mode in enumerate(modes):
            some = filters[number :: len(modes)]
            assert self.wrong(index, chunks, some, (mode,)) == []

    @needs(lambda can: {"and", "or", "eq"} <= set(can.filter_operators))
    def test_the_largest_filters_work(self, indexes: Indexes) -> None:
        """8 levels deep, and 256 nodes wide."""
        index, chunks = self.stored(indexes, VALUES)
        leaf: dict[str, Any] = {"type": "eq", "key": "x", "value": "a"}
        deep, wide = leaf, [{**leaf, "value": n} for n in range(MAX_NODES - 1)]
        for level in range(MAX_DEPTH - 1):
            deep = {"type": ("and", "or")[level % 2], "filters": [deep]}
        filters = [deep, {"type": "or", "filters": wide}, {"type": "and", "filters": [leaf, leaf]}]
        assert self.wrong(index, chunks, filters) == []

    @needs(lambda can: "eq" in can.filter_operators)
    def test_a_filter_is_applied_before_the_top_k(self, indexes: Indexes) -> None:
        """One far chunk passes, 200 near ones do not: k = 1 finds the far one, in every mode.

        If this fails: the engine filters after the search, and a selective filter finds nothing.
        """
        index = indexes.open(**PLAIN)
        near = [chunk(f"n{n:03}", "zebra zebra", x=0) for n in range(200)]
        far = chunk("z", "zebra " + "filler " * 30, x=1)
        index.add([*near, far], [[1, 0.001 * n] for n in range(200)] + [[-1, 0]])
        only = {"type": "eq", "key": "x", "value": 1}
        for mode in self.capabilities.modes:
            assert ids(index.search(mode, [1, 0], "zebra", k=1, filters=only)) == ["z"]

    @needs(lambda can: "eq" in can.filter_operators)
    def test_a_filter_changes_no_score(self, indexes: Indexes) -> None:
        """A passing chunk has the same score with and without the filter.

        If this fails for keywords: the statistics cover only the passing chunks.
        """
        index = indexes.open(**PLAIN)
        index.add([chunk(f"c{n}", "zebra " * (n + 1), x=n % 2) for n in range(10)])
        only = {"type": "eq", "key": "x", "value": 1}
        for mode in sorted({"vector", "keyword"} & set(self.capabilities.modes)):
            everything = index.search(mode, [1, 0], "zebra", k=20)
            expected = [
                (h.chunk.chunk_id, h.score) for h in everything.hits if h.chunk.metadata["x"]
            ]
            filtered = index.search(mode, [1, 0], "zebra", k=20, filters=only)
            assert [(h.chunk.chunk_id, h.score) for h in filtered.hits] == expected

    @needs(lambda can: "eq" in can.filter_operators)
    def test_filters_follow_updates(self, indexes: Indexes) -> None:
        """After an upsert filters match only the new metadata, after a delete nothing.

        A key that the new chunk lacks no longer matches. If this fails only for comparisons of
        order: the engine's upsert keeps the columns that the new row lacks.
        """
        index = indexes.open(**PLAIN)
        old = {"x": "old", "year": 2020, "tags": ["p", "q"]}
        index.add([chunk("a", "word", **old), chunk("b", "word", **old)])
        index.add([chunk("a", "word", x="new", tags=["q"])])

        def found(key: str, value: Any, kind: str = "eq") -> set[str]:
            only = {"type": kind, "key": key, "value": value}
            return set(ids(index.search(self.capabilities.modes[0], [1, 0], "word", filters=only)))

        assert (found("x", "old"), found("x", "new")) == ({"b"}, {"a"})
        assert (found("tags", "p"), found("tags", "q")) == ({"b"}, {"a", "b"})
        if {"lt", "gte"} <= set(self.capabilities.filter_operators):
            assert (found("tags", "q", "lt"), found("tags", "q", "gte")) == ({"b"}, {"a", "b"})
            assert (found("year", 2021, "lt"), found("year", 2020, "gte")) == ({"b"}, {"b"})
        index.remove("b")
        assert found("x", "old") == found("tags", "p") == set()

    @needs(lambda can: "eq" in can.filter_operators)
    def test_chunks_can_be_found_by_their_document(self, indexes: Indexes) -> None:
        """document_id is ordinary metadata, even if it came in the chunk's `chunk_metadata`."""
        index = indexes.open(**PLAIN)
        recorded = Chunk(
            content="word", chunk_id="b", chunk_metadata=ChunkMetadata(document_id="d")
        )
        index.add(
            [chunk("a", "word", document_id="d"), recorded, chunk("c", "word", document_id="e")]
        )
        only = {"type": "eq", "key": "document_id", "value": "d"}
        for mode in self.capabilities.modes:
            assert ids(index.search(mode, [1, 0], "word", filters=only)) == ["a", "b"]
