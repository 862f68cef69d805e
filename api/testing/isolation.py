"""Standard tests: vector DBs stay separate, however similar their ids are."""

from __future__ import annotations

from corral.api.testing.indexes import Handle, Indexes, ids
from corral.api.testing.suite import Suite, needs

ALIKE = [
    "a-b", "a_b", "A-B", "A_B", "a/b", "../a", "..", ".", "a", "a.b", "a b", " ", "a?b#c%d",
    "a%2Fb", "it's", 'a"b', "`a`", "a;b", "--", "🙂", "🙁", "天气", "é", "e\u0301", "ﬁ", "fi",
    "CON", "null", "0", "x" * 254 + "y", "x" * 254 + "z", "🙂" * 255, "sqlite_master", "pg_catalog",
    "a\\b", "a:b",
]  # fmt: skip
"""Ids that an engine or file system may reject or confuse with each other."""


class IsolationTests(Suite):
    """Any string of 1 to 255 characters without NUL is a valid, distinct id."""

    def test_every_id_is_usable_and_apart_from_the_others(self, indexes: Indexes) -> None:
        """Each vector DB finds only its own chunks, whatever its id looks like.

        Deleting every second vector DB does not change the others. If this fails: two ids are
        mapped to one name.
        """
        opened = list(enumerate(map(indexes.open, ALIKE)))
        for number, index in opened:
            index.add_texts({f"c{number}": f"zebra number{number}", "same": f"number{number}"})
        for number, index in opened:
            assert self.mine(index, number), index.vector_db.identifier
        for _, index in opened[::2]:
            indexes.drop(index)
        for number, index in opened[1::2]:
            assert self.mine(index, number), index.vector_db.identifier

    def mine(self, index: Handle, number: int) -> bool:
        """Return True if an index has exactly its own two chunks."""
        everywhere = [
            set(ids(index.search(mode, [1, 0], f"zebra number{number}", k=100)))
            for mode in self.capabilities.modes
        ]
        contents = [c.content for c in index.get(f"c{number}", "same")]
        return (
            index.count() == 2
            and all(hit_ids == {f"c{number}", "same"} for hit_ids in everywhere)
            and contents == [f"zebra number{number}", f"number{number}"]
        )

    def test_different_settings_side_by_side(self, indexes: Indexes) -> None:
        """Vector DBs with different dimensions, metrics and languages do not affect each other."""
        one = indexes.open("one", dimension=3, metric="l2", language="norwegian")
        two = indexes.open("two", dimension=2, metric="cosine", language="simple")
        one.add_texts({"a": "hundene"})
        two.add_texts({"a": "hundene"})
        if "keyword" in self.capabilities.modes:
            assert ids(one.keyword("hund")) == ["a"]
            assert ids(two.keyword("hund")) == []
        if "vector" in self.capabilities.modes:
            assert ids(one.vector([1, 0, 0])) == ids(two.vector([1, 0])) == ["a"]

    @needs(lambda can: can.persistent)
    def test_two_installations_register_one_id_at_one_time(self, indexes: Indexes) -> None:
        """Each has its own index, also after a restart; dropping one leaves the other.

        If this fails: names leave out `VectorDB.installation`, and two Corrals that share this
        engine overwrite or delete each other's chunks.
        """
        ours = indexes.open("notes", installation="a" * 32)
        ours.add_texts({"c": "zebra"})
        theirs = indexes.open("notes", installation="b" * 32)
        assert theirs.count() == 0
        theirs.add_texts({"c": "lion", "d": "okapi"})
        ours = indexes.restart(ours)
        assert [one.content for one in ours.get("c", "d")] == ["zebra"]
        indexes.drop(ours)
        theirs = indexes.restart(theirs)
        assert [one.content for one in theirs.get("c", "d")] == ["lion", "okapi"]
