"""Standard tests: the ids of an index can be listed, in the same order on every backend."""

from __future__ import annotations

from corral.api.testing.hostile import QUERIES
from corral.api.testing.indexes import Handle, Indexes, chunk
from corral.api.testing.suite import Suite, needs

UNLIKE = [
    "a", "aa", "ab", "a-b", "a b", "a_b", "a/b", "ab ", "A", "AB", "B", "Z", "_", "~", "-", " ",
    "0", "10", "9", "é", "e\u0301", "E\u0301", "ø", "ß", "ss", "ａ", "天气", "気", "\u1e9e", "\x01",
    "\x7f", "\u2028", "\ufb01", "\ufffd", "\uffee", "\U00010000", "🙂", "\U0010ffff", "🙂" * 255,
]  # fmt: skip
"""Ids that sort differently by locale, in lower case, as UTF-16 or as numbers."""


def pages(index: Handle, limit: int, after: str = "") -> list[str]:
    """Return all ids after `after`, read in pages of `limit`."""
    listed: list[str] = []
    while page := index.chunk_ids(listed[-1] if listed else after, limit):
        listed += page
        if len(page) < limit:
            break
    return listed


class EnumerationTests(Suite):
    """chunk_ids, which copies, comparisons and exports rely on."""

    def test_an_empty_index_has_no_ids(self, indexes: Indexes) -> None:
        """An empty index lists no ids from any start."""
        index = indexes.open()
        assert index.chunk_ids() == index.chunk_ids("a") == []

    def test_ids_are_in_the_order_of_code_points(self, indexes: Indexes) -> None:
        """Ids ascend by code point: not by locale, by lower case, by UTF-16 or by insertion.

        If this fails: give the engine's column a binary collation, or sort the ids as Python does.
        """
        index = indexes.open()
        index.add_texts(dict.fromkeys(UNLIKE[::2], "zebra"))
        index.add_texts(dict.fromkeys(UNLIKE[1::2], "lion"))
        assert index.chunk_ids() == sorted(UNLIKE)

    def test_pages_join_to_the_whole(self, indexes: Indexes) -> None:
        """Each page continues after the last id of the previous page, without gap or repetition."""
        index = indexes.open()
        index.add_texts(dict.fromkeys(UNLIKE, "zebra"))
        for limit in (1, 2, 7, 38, 39, 40):
            assert pages(index, limit) == sorted(UNLIKE), f"limit={limit}"

    def test_one_can_begin_anywhere(self, indexes: Indexes) -> None:
        """Any text is a valid start, stored or not, and is data even if it looks like syntax.

        If this fails: the text reaches the engine's query language.
        """
        index = indexes.open()
        index.add_texts(dict.fromkeys(UNLIKE, "zebra"))
        for after in [*UNLIKE, *QUERIES, "a" * 10_000, "aa\0", "b\0c"]:
            assert index.chunk_ids(after) == sorted(i for i in UNLIKE if i > after), repr(after)

    def test_writes_between_two_pages(self, indexes: Indexes) -> None:
        """Unchanged ids are listed once; an id deleted ahead is not listed, an id added ahead is.

        The chunk of the last id itself may be deleted. If this fails: the position is a number of
        rows, or the ids were read once and cached.
        """
        index = indexes.open()
        index.add_texts(dict.fromkeys("abcdefgh", "zebra"))
        assert index.chunk_ids(limit=3) == ["a", "b", "c"]
        index.remove("a", "c", "e")
        index.add_texts({"aa": "lion", "cc": "lion", "d": "lion", "i": "lion"})
        assert index.chunk_ids("c", limit=3) == ["cc", "d", "f"]
        assert index.chunk_ids("f", limit=9) == ["g", "h", "i"]
        assert index.chunk_ids() == ["aa", "b", "cc", "d", "f", "g", "h", "i"]

    @needs(lambda can: can.persistent)
    def test_one_can_go_on_after_a_restart(self, indexes: Indexes) -> None:
        """After a restart, the last id still continues the listing."""
        index = indexes.open()
        index.add_texts(dict.fromkeys(UNLIKE, "zebra"))
        first = index.chunk_ids(limit=10)
        index = indexes.restart(index)
        assert first + pages(index, 10, first[-1]) == sorted(UNLIKE)

    @needs(lambda can: can.concurrent_processes and can.vector != "no")
    def test_ids_of_another_process_are_seen(self, indexes: Indexes) -> None:
        """The next page shows the additions and deletions of another process."""
        index = indexes.open()
        index.add_texts({"a": "zebra", "b": "lion", "d": "okapi"})
        assert index.chunk_ids(limit=1) == ["a"]
        new = [chunk("c").model_dump(mode="json") | {"embedding": [1, 0]}]
        indexes.in_another_process(index, ("add", new), ("delete", ["b"]))
        assert index.chunk_ids("a") == ["c", "d"]
