"""Standard tests: chunks come back as added, are replaced as a whole, and can be deleted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.errors import InvalidRequest
from corral.api.testing.indexes import PLAIN, Handle, Indexes, chunk, ids
from corral.api.testing.oracle import Oracle
from corral.api.testing.suite import Suite, needs

METADATA: dict[str, Any] = {
    "text": 'it\'s "quoted" \\ % _ 天气 🙂 \n',
    "empty": "",
    "integer": 2**53 + 1,
    "negative": -7,
    "float": 0.1,
    "true": True,
    "false": False,
    "null": None,
    "list": ["a", 1, 2.5, True, []],
    "object": {"nested": {"deep": [1, {"x": None}]}},
    "key with 'quotes\", dots. and $": 1,
}


def find(index: Handle, embedding: Any, word: str, modes: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the ids that each mode finds."""
    return {mode: ids(index.search(mode, embedding, word)) for mode in modes}


class WriteTests(Suite):
    """add_chunks, get_chunks and delete_chunks."""

    def test_a_chunk_comes_back_equal(self, indexes: Indexes) -> None:
        """Text, metadata of every JSON type and `chunk_metadata` survive storage exactly.

        If this fails: compare the types of numbers and booleans, null values and empty strings.
        """
        index = indexes.open()
        stored = Chunk(
            content="Line one\n\ttwo  天气 🙂 it's",
            chunk_id="c/1",
            metadata=METADATA,
            chunk_metadata=ChunkMetadata(source="s", chunk_window="0-5", content_token_count=5),
        )
        index.add([stored])
        [returned] = index.get("c/1")
        assert returned == stored
        assert {k: type(v) for k, v in returned.metadata.items()} == {
            k: type(v) for k, v in METADATA.items()
        }
        for mode in self.capabilities.modes:
            assert index.search(mode, [1, 0], "two").chunks == [stored]

    @pytest.mark.parametrize("normalize", [True, False])
    def test_embeddings_are_stored_and_returned_on_request(
        self, indexes: Indexes, normalize: bool
    ) -> None:
        """include_embeddings returns the sent embeddings, as unit vectors if the DB normalizes.

        If this fails without include_embeddings: answers include embeddings without a request.
        """
        index = indexes.open(normalize=normalize)
        index.add_vectors({"a": [3, 4], "b": [0, 2]})
        rows = [[0.6, 0.8], [0.0, 1.0]] if normalize else [[3.0, 4.0], [0.0, 2.0]]
        np.testing.assert_allclose(index.embeddings("a", "b"), rows, atol=1e-6)
        assert [one.embedding for one in index.get("a", "b")] == [None, None]
        expected = dict(zip("ab", rows, strict=True))
        for mode in self.capabilities.modes:
            for hit in index.search(mode, [1, 1], "text").chunks:
                assert hit.embedding is None
            for hit in index.search(mode, [1, 1], "text", include_embeddings=True).chunks:
                assert hit.embedding == pytest.approx(expected[hit.chunk_id], abs=1e-6)

    def test_getting_keeps_the_order_asked_for(self, indexes: Indexes) -> None:
        """get_chunks returns chunks in the order of the ids, each once, without unknown ids."""
        index = indexes.open()
        index.add_texts({"a": "one", "b": "two", "c": "three"})
        assert [c.chunk_id for c in index.get("c", "nobody", "a", "c")] == ["c", "a"]
        assert index.get() == []

    def test_stored_chunks_are_out_of_the_callers_reach(self, indexes: Indexes) -> None:
        """Changing an added or a returned chunk object does not change the stored chunk."""
        index = indexes.open()
        mine, rows = chunk("a", "zebra", tags=["x"]), np.array([[1.0, 0.0]])
        index.add([mine], rows)
        assert mine == chunk("a", "zebra", tags=["x"])
        mine.content, rows[0] = "changed", [0.0, 1.0]
        mine.metadata["tags"].append("changed")
        index.get("a")[0].metadata["tags"].append("changed")
        assert index.get("a") == [chunk("a", "zebra", tags=["x"])]
        assert index.embeddings("a").tolist() == [[1.0, 0.0]]

    def test_an_upsert_replaces_the_whole_chunk(self, indexes: Indexes) -> None:
        """Adding an id again leaves one chunk with the new text, metadata and embedding.

        If this fails: the engine's insert keeps the old row, or its keyword index is not updated.
        """
        index = indexes.open()
        index.add([chunk("a", "zebra", color="red", old=1), chunk("b", "lion")], [[1, 0], [0, 1]])
        index.add([chunk("a", "quagga", color="blue")], [[-1, 0]])
        assert index.count() == 2
        assert index.get("a") == [chunk("a", "quagga", color="blue")]
        if "vector" in self.capabilities.modes:
            assert ids(index.vector([-1, 0], k=1)) == ["a"]
            assert ids(index.vector([1, 0], k=5)) == ["b", "a"]
        if "keyword" in self.capabilities.modes:
            assert ids(index.keyword("zebra")) == []
            assert ids(index.keyword("quagga")) == ["a"]

    def test_repeating_an_insert_changes_nothing(self, indexes: Indexes) -> None:
        """Adding the same chunks twice equals adding them once."""
        index = indexes.open()
        for _ in range(3):
            index.add_texts({"a": "zebra", "b": "zebra"})
        assert index.count() == 2
        for mode in self.capabilities.modes:
            assert ids(index.search(mode, [1, 0], "zebra")) == ["a", "b"]

    def test_of_equal_ids_in_one_call_the_last_counts(self, indexes: Indexes) -> None:
        """Duplicates within a call store the last one, with its own embedding."""
        index = indexes.open()
        index.add(
            [chunk("a", "first"), chunk("b", "other"), chunk("a", "last")],
            [[1, 0], [0, 1], [-1, 0]],
        )
        assert index.count() == 2
        assert index.get("a")[0].content == "last"
        if "vector" in self.capabilities.modes:
            assert ids(index.vector([-1, 0], k=1)) == ["a"]

    def test_equal_text_in_two_documents_stays_two_chunks(self, indexes: Indexes) -> None:
        """Chunks without an id from two documents with the same text are both stored."""
        index = indexes.open()
        index.add([Chunk(content="same", metadata={"document_id": d}) for d in ("one", "two")])
        assert index.count() == 2

    def test_a_refused_call_stores_nothing(self, indexes: Indexes) -> None:
        """With one bad embedding among good ones, the call stores nothing."""
        index = indexes.open()
        index.add_texts({"a": "old"})
        with pytest.raises(InvalidRequest):
            index.add([chunk("a", "new"), chunk("b", "new")], [[1, 0], [float("nan"), 0]])
        with pytest.raises(InvalidRequest):
            index.add([chunk("c", "new")], [[1, 0, 0]])
        assert index.count() == 1
        assert index.get("a", "b", "c") == [chunk("a", "old")]

    def test_deleted_chunks_are_gone_everywhere(self, indexes: Indexes) -> None:
        """No mode counts, returns or finds a deleted chunk; the other chunks do not change."""
        index = indexes.open()
        index.add_vectors({"a": [1, 0], "b": [0.9, 0.1], "c": [0, 1]})
        index.remove("a", "nobody", "a")
        index.remove("a")
        assert index.count() == 2
        assert index.get("a") == []
        answers = find(index, [1, 0], "text", self.capabilities.modes)
        assert {mode: set(one) for mode, one in answers.items()} == {
            mode: {"b", "c"} for mode in self.capabilities.modes
        }

    @needs(lambda can: can.vector != "no")
    def test_deleting_and_adding_keeps_ids_and_texts_together(self, indexes: Indexes) -> None:
        """After deleting the last chunk and adding one, each vector still finds its own chunk.

        If this fails: a map from positions to ids is out of step, and every later hit is wrong.
        """
        index = indexes.open(dimension=4)
        unit = np.eye(4)
        index.add_vectors({"a": unit[0], "b": unit[1], "c": unit[2]})
        index.remove("c")
        index.add_vectors({"d": unit[3]})
        index.remove("a")
        index.add_vectors({"e": unit[0], "c": unit[2]})
        for chunk_id, row in {"b": unit[1], "c": unit[2], "d": unit[3], "e": unit[0]}.items():
            [hit] = index.vector(row, k=1).hits
            assert (hit.chunk.chunk_id, hit.chunk.content) == (chunk_id, f"text of {chunk_id}")
            assert hit.score == pytest.approx(1.0, abs=1e-6)

    def test_emptied_and_filled_again(self, indexes: Indexes) -> None:
        """Deleting the last chunk leaves an index that works."""
        index = indexes.open()
        for round_number in range(3):
            index.add_texts({"a": f"round{round_number}", "b": "zebra"})
            answers = find(index, [1, 0], "zebra", self.capabilities.modes)
            assert all("b" in one for one in answers.values())
            index.remove("a", "b")
            assert set(
                map(tuple, find(index, [1, 0], "zebra", self.capabilities.modes).values())
            ) == {()}

    def test_any_order_of_writes_equals_the_reference(self, indexes: Indexes) -> None:
        """150 random adds, upserts, deletes and replacements leave the same chunks as in a dict.

        If this fails: replay the steps up to the first difference; the seed is fixed.
        """
        index = indexes.open(dimension=3, **PLAIN)
        oracle = Oracle(index.vector_db)
        rng = np.random.default_rng(16)
        words = ["ant", "bee", "cat", "dog"]
        for step in range(150):
            names = [f"c{n}" for n in rng.choice(12, size=3, replace=False)]
            if rng.random() < 0.3:
                index.remove(*names)
                oracle.remove(names)
                continue
            chunks = [
                chunk(name, " ".join(rng.choice(words, 3)), document_id=f"d{rng.integers(3)}")
                for name in names
            ]
            rows = rng.normal(size=(3, 3))
            replaced = {f"d{rng.integers(3)}"} if rng.random() < 0.3 else set()
            index.add(chunks, rows, replace_documents=replaced)
            oracle.add(chunks, rows, replaced)
            assert index.count() == len(oracle.chunks), f"after step {step}"
        assert {c.chunk_id: c for c in index.get(*[f"c{n}" for n in range(12)])} == oracle.chunks
        for _ in range(5):
            query, words_asked = rng.normal(size=3), "ant bee"
            if self.capabilities.vector != "no":
                everything = index.vector(query, k=50)
                assert oracle.complaint(everything, oracle.vector(query), 50) == ""
            if self.capabilities.keyword != "no":
                everything = index.keyword(words_asked, k=50)
                expected = oracle.keyword(words_asked)
                assert oracle.complaint(everything, expected, 50, self.bm25_tolerance) == ""
