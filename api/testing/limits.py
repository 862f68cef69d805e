"""Standard tests: large but valid inputs work."""

from __future__ import annotations

from corral.api.checks import MAX_K
from corral.api.testing.indexes import Indexes, chunk, ids
from corral.api.testing.suite import Suite
from corral.api.wire import MAX_ID_LENGTH

MANY = 6_000
"""More chunks than some engines accept in one request."""


class LimitTests(Suite):
    """Many chunks, long texts and wide metadata."""

    def test_thousands_of_chunks_in_one_call(self, indexes: Indexes) -> None:
        """6,000 chunks are added, read, counted, listed and deleted in one call each.

        If this fails: the engine's batch or its number of parameters is limited; split the call.
        """
        index = indexes.open()
        names = [f"c{number:04}" for number in range(MANY)]
        index.add([chunk(name, "zebra") for name in names])
        assert index.count() == MANY
        assert [c.chunk_id for c in index.get(*names)] == names
        assert index.chunk_ids(limit=MANY + 1) == names
        for mode in self.capabilities.modes:
            hit_ids = ids(index.search(mode, [1, 0], "zebra", k=MAX_K))
            assert len(set(hit_ids)) == MAX_K
            if self.capabilities.exact:
                assert hit_ids == names[:MAX_K]
        index.remove(*names[:-1])
        assert index.count() == 1
        assert index.get(*names) == [chunk(names[-1], "zebra")]

    def test_long_texts(self, indexes: Indexes) -> None:
        """A chunk of a million characters, with one word of 100,000, is stored and found."""
        index = indexes.open()
        text = "x" * 100_000 + " zebra " + "filler " * 128_570
        index.add([chunk("a", text), chunk("b", "short")])
        assert index.get("a")[0].content == text
        for mode in self.capabilities.modes:
            assert "a" in ids(index.search(mode, [1, 0], "zebra"))

    def test_long_ids(self, indexes: Indexes) -> None:
        """255 characters of any script, and ids that differ only at the end, stay apart."""
        index = indexes.open()
        names = ["i" * (MAX_ID_LENGTH - 1) + last for last in "xyX"] + ["🙂" * MAX_ID_LENGTH]
        index.add_texts({name: f"text {n}" for n, name in enumerate(names)})
        assert index.count() == 4
        assert [c.content for c in index.get(*names)] == ["text 0", "text 1", "text 2", "text 3"]

    def test_wide_metadata(self, indexes: Indexes) -> None:
        """200 keys and a list of 1,000 values come back equal."""
        index = indexes.open()
        wide = chunk("a", "zebra", tags=list(range(1000)), **{f"key{n}": n for n in range(200)})
        index.add([wide])
        assert index.get("a") == [wide]

    def test_the_longest_query(self, indexes: Indexes) -> None:
        """A query of 20,000 words finds the chunk with one of them."""
        index = indexes.open()
        index.add_texts({"a": "zebra", "b": "lion"})
        text = " ".join(f"word{number}" for number in range(20_000)) + " zebra"
        for mode in self.capabilities.modes:
            if mode != "vector":
                assert ids(index.search(mode, [1, 0], text))[:1] == ["a"]
