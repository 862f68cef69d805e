"""Standard tests: a new version of a document takes the place of the old one in one step."""

from __future__ import annotations

import asyncio

import pytest

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.documents import DocumentOrder, DocumentPage, DocumentQuery, DocumentSummary
from corral.api.errors import InvalidRequest
from corral.api.testing.indexes import Handle, Indexes, chunk, ids, version_of
from corral.api.testing.suite import Suite, needs

TITLED = (
    ("a", "Winter", "xxx", 10),
    ("b", "hay", "x", 40),
    ("c", "Été", "é", 30),
    ("d", "WINTER notes", "xx", None),
    ("d", "WINTER notes", "xxx", None),
    ("e", "Zebra", "xx", 20),
)
"""Documents of one or two chunks: id, title, content, time of the chunk."""
SORTED = {
    DocumentOrder.ID: "abcde",
    DocumentOrder.NAME: "badec",
    DocumentOrder.SIZE: "bcead",
    DocumentOrder.CHUNKS: "abced",
    DocumentOrder.UPDATED: "daecb",
}
"""The ids of these documents in each order, ascending."""


def titled(document_id: str, title: str, content: str, time: int | None) -> Chunk:
    """Return a chunk of a document with a title and a time."""
    made = chunk(f"{document_id}{content}", content, document_id=document_id, title=title)
    return made.model_copy(update={"chunk_metadata": ChunkMetadata(updated_timestamp=time)})


def versions_left(index: Handle) -> dict[int, int]:
    """Return the number of chunks that a search finds, by version of document d."""
    counts: dict[int, int] = {}
    for hit in index.search("vector", [1, 0], "", k=1000).chunks:
        if hit.document_id == "d":
            version = int(hit.metadata["version"])
            counts[version] = counts.get(version, 0) + 1
    return counts


class DocumentTests(Suite):
    """add_chunks with replace_documents."""

    def test_a_new_version_replaces_all_chunks_of_the_old_one(self, indexes: Indexes) -> None:
        """Two chunks replace three; an id in both versions has the new chunk.

        If this fails: stale chunks of old versions stay and are found forever.
        """
        index = indexes.open()
        old = [chunk(f"d{n}", "zebra", document_id="d") for n in (1, 2, 3)]
        other = [chunk("e1", "zebra", document_id="e"), chunk("x", "zebra")]
        index.add([*old, *other])
        new = [chunk("d1", "quagga", document_id="d"), chunk("d9", "quagga", document_id="d")]
        index.add(new, replace_documents={"d"})
        assert index.count() == 4
        assert index.get("d1", "d2", "d3", "d9") == new
        for mode in self.capabilities.modes:
            hit_ids = set(ids(index.search(mode, [1, 0], "zebra quagga")))
            assert hit_ids == {"d1", "d9", "e1", "x"}
        if "keyword" in self.capabilities.modes:
            assert set(ids(index.keyword("zebra"))) == {"e1", "x"}

    def test_replacing_with_nothing_removes_a_document(self, indexes: Indexes) -> None:
        """No chunks and a document id: that document is deleted, unknown ids are ignored."""
        index = indexes.open()
        index.add([chunk("a", document_id="d"), chunk("b", document_id="e")])
        index.add([], replace_documents=["d", "nobody"])
        assert index.count() == 1
        assert index.get("a", "b") == [chunk("b", document_id="e")]

    def test_documents_are_listed_with_their_chunks(self, indexes: Indexes) -> None:
        """Ascending by code point, in complete pages; chunks without a document are not listed.

        If this fails: give the engine's column a binary collation, and count the current chunks.
        """
        index = indexes.open()
        assert index.documents() == {}
        names = ["B", "a", "a/b", "é", "天气", "🙂"]
        index.add([chunk(f"{d}{n}", document_id=d) for d in names for n in range(2)])
        index.add([chunk("none"), chunk("a9", document_id="a"), chunk("nul", document_id="")])
        everything = dict.fromkeys(names, 2) | {"a": 3}
        assert list(index.documents().items()) == [(n, everything[n]) for n in sorted(names)]
        assert list(index.documents("a", 2).items()) == [("a/b", 2), ("é", 2)]
        assert index.documents("\U0010ffff") == {}
        assert index.chunk_ids_of("a") == ["a0", "a1", "a9"]
        assert index.chunk_ids_of("b") == index.chunk_ids_of("a%") == []
        index.add([chunk("new", document_id="a")], replace_documents=["a", "B"])
        assert index.documents(limit=2) == {"a": 1, "a/b": 2}
        assert (index.chunk_ids_of("a"), index.chunk_ids_of("B")) == (["new"], [])

    def test_documents_are_sorted_and_found_by_name(self, indexes: Indexes) -> None:
        """Each order, both ways, over pages, with the total; ties are in order of id.

        A name is found in any case, as text and not as a pattern. Deleted documents are not listed.

        If this fails: compare names as `name_key` returns them, and count the current chunks.
        """
        index = indexes.open()
        assert index.document_page(DocumentQuery()) == DocumentPage([], 0)
        index.add([titled(*one) for one in TITLED])
        index.add([chunk("none"), chunk("nul", document_id=""), titled("gone", "Gone", "x", 9)])
        index.add([], replace_documents=["gone"])
        for order, ordered in SORTED.items():
            for descending in (False, True):
                expected = ordered[::-1] if descending else ordered
                pages = [
                    index.document_page(DocumentQuery("", order, descending, start, 2))
                    for start in (0, 2, 4)
                ]
                listed = [one.document_id for page in pages for one in page.items]
                assert (order, descending, listed) == (order, descending, list(expected))
                assert {page.total for page in pages} == {len(ordered)}
        for part, matching in {
            "ÉTÉ": ["c"],
            "winter": ["a", "d"],
            "%": [],
            "_": [],
            "x'": [],
        }.items():
            page = index.document_page(DocumentQuery(part, DocumentOrder.ID))
            assert (part, [one.document_id for one in page.items]) == (part, matching)
            assert page.total == len(matching)
        [one] = index.document_page(DocumentQuery("hay", DocumentOrder.ID)).items
        assert one == DocumentSummary("b", "hay", 1, 1, 40)
        index.add([titled("b", "straw", "xxx", 50)], replace_documents=["b"])
        [one] = index.document_page(DocumentQuery("straw")).items
        assert one == DocumentSummary("b", "straw", 1, 3, 50)
        assert index.document_page(DocumentQuery("hay")).total == 0

    def test_several_documents_are_replaced_at_once(self, indexes: Indexes) -> None:
        """Every named document loses its old chunks, even if it gets no new chunks."""
        index = indexes.open()
        index.add([chunk(f"{d}{n}", document_id=d) for d in "def" for n in (1, 2)])
        index.add(
            [chunk("d3", document_id="d"), chunk("z", document_id="z")],
            replace_documents=["d", "e"],
        )
        assert index.count() == 4
        assert [c.chunk_id for c in index.get("d1", "d2", "d3", "e1", "e2", "f1", "f2", "z")] == [
            "d3", "f1", "f2", "z"
        ]  # fmt: skip

    def test_a_chunk_that_moves_between_documents_belongs_to_the_last(
        self, indexes: Indexes
    ) -> None:
        """After an upsert under another document id, replacing the first leaves the chunk alone."""
        index = indexes.open()
        index.add([chunk("a", document_id="d")])
        index.add([chunk("a", document_id="e")])
        index.add([], replace_documents={"d"})
        assert index.count() == 1
        index.add([], replace_documents={"e"})
        assert index.count() == 0

    def test_any_document_id(self, indexes: Indexes) -> None:
        """Document ids are data: quotes, wildcards and paths match only themselves."""
        index = indexes.open()
        for document in ("it's", 'a"b', "a%", "../d", "天气", "d" * 255):
            index.add([chunk("a", document_id=document), chunk("b", document_id="other")])
            index.add([chunk("c", document_id=document)], replace_documents={document})
            assert [c.chunk_id for c in index.get("a", "b", "c")] == ["b", "c"], document

    def test_a_refused_replacement_leaves_the_old_version(self, indexes: Indexes) -> None:
        """A new version with a bad embedding is rejected before the old version changes."""
        index = indexes.open()
        old = chunk("a", "zebra", document_id="d")
        index.add([old])
        with pytest.raises(InvalidRequest):
            index.add([chunk("b", document_id="d")], [[0, 0]], replace_documents={"d"})
        assert index.get("a", "b") == [old]

    @needs(lambda can: can.vector != "no")
    def test_of_many_writers_of_one_document_one_version_is_left_whole(
        self, indexes: Indexes
    ) -> None:
        """16 concurrent writers of one document leave exactly one of their versions.

        If this fails: deleting the old chunks and adding the new chunks are two steps, and another
        writer ran between them.
        """
        index = indexes.open()

        async def write(version: int) -> None:
            await asyncio.sleep(0)
            chunks = version_of("d", version, 3, 2)
            await index.index.add_chunks(chunks, replace_documents={"d"})

        indexes.together(*[write(version) for version in range(16)])
        assert sorted(versions_left(index).values()) == [3]
        assert index.count() == 3

    @needs(lambda can: can.transactional)
    def test_readers_see_one_whole_version(self, indexes: Indexes) -> None:
        """While versions replace each other, every count and every get sees one whole version."""
        index = indexes.open()
        index.add(version_of("d", 0, 3, 2), [[1, 0]] * 3, replace_documents={"d"})
        every_id = [f"d-{version}-{part}" for version in range(12) for part in range(3)]
        states: set[tuple[int, int]] = set()

        async def write() -> None:
            for version in range(1, 12):
                chunks = version_of("d", version, 3, 2)
                await index.index.add_chunks(chunks, replace_documents={"d"})

        async def read(writer: asyncio.Task[None]) -> None:
            last = False
            while not last:
                last = writer.done()
                chunks = await index.index.get_chunks(every_id)
                states.add((len(chunks), len({one.metadata["version"] for one in chunks})))
                states.add((await index.index.count(), 1))
                await asyncio.sleep(0)

        async def both() -> None:
            writer = asyncio.create_task(write())
            await asyncio.gather(read(writer), read(writer), writer)

        indexes.run(both())
        assert states == {(3, 1)}
