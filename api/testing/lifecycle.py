"""Standard tests: an index is created, counts its chunks, and is dropped."""

from __future__ import annotations

import pytest

from corral.api.testing.indexes import Indexes, ids
from corral.api.testing.suite import Suite, needs


class LifecycleTests(Suite):
    """Creation, counting and deletion of an index."""

    def test_a_new_index_is_empty(self, indexes: Indexes) -> None:
        """A new index has count 0 and no chunks, and no mode finds a hit.

        If this fails: look at the engine's answer for an empty or missing table.
        """
        index = indexes.open()
        assert index.count() == 0
        assert index.get("a") == []
        for mode in self.capabilities.modes:
            assert index.search(mode, [1, 0], "words").hits == []
        index.remove("a")
        assert index.count() == 0

    def test_an_empty_index_can_be_dropped(self, indexes: Indexes) -> None:
        """Registering and deleting a vector DB without chunks raises no error."""
        indexes.drop(indexes.open())

    def test_dropping_removes_everything(self, indexes: Indexes) -> None:
        """A vector DB that is dropped and registered again is empty, with another dimension too."""
        index = indexes.open()
        index.add_texts({"a": "zebra", "b": "quagga"})
        indexes.drop(index)
        index = indexes.recreate(index)
        assert index.count() == 0
        assert index.get("a", "b") == []
        for mode in self.capabilities.modes:
            assert index.search(mode, [1, 0], "zebra").hits == []
        index.add_texts({"c": "zebra"})
        for mode in self.capabilities.modes:
            assert ids(index.search(mode, [1, 0], "zebra")) == ["c"]

    @needs(lambda can: can.vector != "no")
    @pytest.mark.parametrize("dimension", [1, 3, 8])
    def test_any_dimension(self, indexes: Indexes, dimension: int) -> None:
        """The registration sets the dimension, including 1.

        If this fails for 1: a vector of one number is treated as a number.
        """
        index = indexes.open(dimension=dimension)
        one, other = [[0.0] * (dimension - 1) + [last] for last in (1.0, -1.0)]
        index.add_vectors({"a": one, "b": other})
        response = index.vector(other)
        assert ids(response) == ["b", "a"]
        assert response.scores == pytest.approx([1.0, 0.0], abs=1e-6)

    def test_counting_follows_every_write(self, indexes: Indexes) -> None:
        """count() is the number of distinct chunks after each add, upsert and delete."""
        index = indexes.open()
        index.add_texts({"a": "one", "b": "two"})
        assert index.count() == 2
        index.add_texts({"b": "two again", "c": "three"})
        assert index.count() == 3
        index.remove("a", "nobody")
        assert index.count() == 2
        index.remove("a", "b", "c")
        assert index.count() == 0

    @needs(lambda can: can.vector != "no" and can.max_dimension > 0)
    def test_the_largest_dimension_works(self, indexes: Indexes) -> None:
        """A vector DB of capabilities.max_dimension (at most 16,000) stores and finds."""
        dimension = min(self.capabilities.max_dimension, 16_000)
        index = indexes.open(dimension=dimension)
        one = [1.0] + [0.0] * (dimension - 1)
        other = [0.0] * (dimension - 1) + [1.0]
        index.add_vectors({"a": one, "b": other})
        assert index.vector(other, k=1).scores == pytest.approx([1.0], abs=1e-6)
        assert ids(index.vector(other)) == ["b", "a"]
