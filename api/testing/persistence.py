"""Standard tests: acknowledged writes survive a restart and a kill; other processes see them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from corral.api.testing.documents import versions_left
from corral.api.testing.hybrid import filled
from corral.api.testing.indexes import PLAIN, Handle, Indexes, chunk, ids
from corral.api.testing.suite import Suite, needs


def answers(index: Handle, modes: tuple[str, ...]) -> dict[str, Any]:
    """Return the answer of every mode, with scores."""
    responses = {mode: index.search(mode, [1, 2, -1], "w1 w2 w7", k=30) for mode in modes}
    return {mode: list(zip(ids(one), one.scores, strict=True)) for mode, one in responses.items()}


@needs(lambda can: can.persistent)
class PersistenceTests(Suite):
    """Restarts: an index is closed and opened again."""

    def test_a_restart_changes_no_answer(self, indexes: Indexes) -> None:
        """The same ids, order and scores in every mode, before and after.

        If this fails: data was only in memory, or an order depends on the process.
        """
        index = indexes.open(dimension=3, **PLAIN)
        filled(index)
        before = answers(index, self.capabilities.modes)
        index = indexes.restart(index)
        assert answers(index, self.capabilities.modes) == before
        assert index.count() == 80

    def test_chunks_survive_a_restart_whole(self, indexes: Indexes) -> None:
        """Texts, metadata and embeddings come back equal."""
        index = indexes.open(metric="l2", normalize=False)
        stored = [chunk("a", "zebra", x=[1, 2.5, True, None, {"y": "天气"}]), chunk("b", "lion")]
        index.add(stored, [[3, 4], [0, 0.1]])
        index = indexes.restart(index)
        assert index.get("a", "b") == stored
        np.testing.assert_allclose(index.embeddings("a", "b"), [[3.0, 4.0], [0.0, 0.1]], rtol=1e-6)

    def test_deletions_and_updates_survive_a_restart(self, indexes: Indexes) -> None:
        """Chunks deleted or replaced before the restart do not come back after it."""
        index = indexes.open(**PLAIN)
        index.add([chunk(i, "zebra", document_id="d") for i in "abc"] + [chunk("x", "zebra")])
        index.remove("x")
        index.add([chunk("b", "quagga", document_id="d")], replace_documents={"d"})
        index = indexes.restart(index)
        assert index.count() == 1
        for mode in self.capabilities.modes:
            assert ids(index.search(mode, [1, 0], "zebra quagga")) == ["b"]
        if "keyword" in self.capabilities.modes:
            assert ids(index.keyword("zebra")) == []

    def test_writing_goes_on_after_a_restart(self, indexes: Indexes) -> None:
        """Adds, upserts and deletes after a restart apply to the chunks stored before it.

        If this fails: row numbers or an id map start from zero again.
        """
        index = indexes.open(**PLAIN)
        index.add_vectors({"a": [1, 0], "b": [0, 1]})
        index.remove("b")
        index = indexes.restart(index)
        index.add_vectors({"c": [0, -1], "a": [-1, 0]})
        index = indexes.restart(index)
        assert index.count() == 2
        if "vector" in self.capabilities.modes:
            assert ids(index.vector([-1, 0])) == ["a", "c"]
            assert [c.content for c in index.vector([0, -1]).chunks] == ["text of c", "text of a"]

    def test_a_dropped_index_stays_dropped(self, indexes: Indexes) -> None:
        """A dropped index is still empty after a restart."""
        index = indexes.open()
        index.add_texts({"a": "zebra"})
        indexes.drop(index)
        index = indexes.restart(indexes.recreate(index))
        assert index.count() == 0

    @needs(lambda can: can.transactional and can.vector != "no")
    def test_a_killed_writer_leaves_whole_calls_only(self, indexes: Indexes) -> None:
        """A process is killed while it replaces a document of 40 chunks over and over.

        One whole version remains, not older than the last acknowledged version, and all modes
        agree on it. If this fails: a call is more than one transaction.
        """
        index = indexes.open(**PLAIN)
        indexes.run(index.index.close())
        writer = indexes.begin_in_another_process(index, ("versions", ("d", 0, 10_000, 40)))
        acknowledged = [writer.said()]
        began = time.monotonic()
        acknowledged += [writer.said() for _ in range(4)]
        time.sleep((time.monotonic() - began) / 8)  # to the middle of the next write
        acknowledged += writer.kill()
        index = indexes.recreate(index)
        assert index.count() == 40
        [(version, size)] = versions_left(index).items()
        assert size == 40
        assert version >= acknowledged[-1]
        if "keyword" in self.capabilities.modes:
            assert len(index.keyword(f"version{version}", k=100).hits) == 40
            assert len(index.keyword("part7", k=100).hits) == 1


@needs(lambda can: can.concurrent_processes and can.vector != "no")
class ProcessTests(Suite):
    """Two processes use one vector DB at once."""

    def test_each_process_sees_what_the_other_wrote(self, indexes: Indexes) -> None:
        """Every mode sees another process's adds, upserts and deletes without reopening.

        If this fails: a copy in memory is not checked against the store.
        """
        index = indexes.open(**PLAIN)
        index.add(
            [chunk("a", "zebra"), chunk("b", "lion"), chunk("c", "okapi")],
            [[1, 0], [0, 1], [-1, 0]],
        )
        assert answers_of(index, self.capabilities.modes, "zebra") == {"a"}
        new = [
            chunk("d", "zebra").model_dump(mode="json") | {"embedding": [1, 0]},
            chunk("b", "zebra").model_dump(mode="json") | {"embedding": [1, 0.01]},
        ]
        query = {"embedding": [1, 0], "query_string": "zebra", "k": 3, "mode": "vector"}
        results = indexes.in_another_process(
            index,
            ("query", query),
            ("add", new),
            ("delete", ["a"]),
            ("query", query),
            ("count", None),
        )
        assert results == [["a", "b", "c"], None, None, ["d", "b", "c"], 3]
        assert index.count() == 3
        assert answers_of(index, self.capabilities.modes, "zebra") == {"b", "d"}
        assert index.get("a", "b") == [chunk("b", "zebra")]

    def test_two_processes_write_at_once(self, indexes: Indexes) -> None:
        """Both write versions of their own document at the same time: nothing is lost or mixed."""
        index = indexes.open(**PLAIN)
        other = indexes.begin_in_another_process(index, ("versions", ("d", 0, 40, 3)))
        assert other.said() == 0
        for number in range(40):
            index.add([chunk(f"mine{number:02}", "lion")], [[0, 1]])
        assert other.rest() == [*range(1, 40), None]
        assert versions_left(index) == {39: 3}
        assert index.count() == 43
        assert len(index.get(*[f"mine{number:02}" for number in range(40)])) == 40


def answers_of(index: Handle, modes: tuple[str, ...], word: str) -> set[str]:
    """Return the ids that score at least 0.9 by vector, or contain the word; both must agree."""
    answers = []
    if "vector" in modes:
        answers.append(set(ids(index.vector([1, 0], score_threshold=0.9))))
    if "keyword" in modes:
        answers.append(set(ids(index.keyword(word))))
    assert all(one == answers[0] for one in answers)
    return answers[0]
