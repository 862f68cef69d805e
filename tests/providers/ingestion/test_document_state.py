"""Documents that are stored: left alone where nothing changed, not replaced by strangers."""

from __future__ import annotations

from typing import Any

import pytest

from corral.api.checks import MAX_K
from corral.api.chunks import Chunk
from corral.api.documents import READ_CHUNKS
from corral.api.errors import Conflict
from corral.api.rag import URL, RAGDocument
from corral.providers.ingestion import document_state as stored
from corral.providers.ingestion.ingest import InsertReport

from ..rag.fake_library import FakeLibrary
from ..rag.inserting import ingester

TEXT = "Cattle graze in the valley. " * 40


def document(name: str = "a", text: str | URL = TEXT, **fields: Any) -> RAGDocument:
    """Return a document."""
    return RAGDocument(document_id=name, content=text, **fields)


async def insert(library: FakeLibrary, *documents: RAGDocument, **options: Any) -> InsertReport:
    """Insert documents with everything looked up."""
    given = {"skip_unchanged": True, "same_origin_only": True, **options}
    return await ingester().insert(library, documents, "db", 32, **given)


def writes(library: FakeLibrary) -> int:
    """Return how often the index was written."""
    return library.engines["db"].writes


async def test_what_is_unchanged_is_left_alone() -> None:
    """Nothing is read, embedded or written for it; what is new beside it goes in.

    If this fails: ingesting a folder again takes as long as the first time.
    """
    library = FakeLibrary()
    first = await insert(library, document("a"), document("b"))
    again = await insert(library, document("a"), document("b"))
    assert again == InsertReport(unchanged=["a", "b"])
    assert writes(library) == 1
    third = await insert(library, document("a"), document("c"))
    assert third.unchanged == ["a"]
    assert third.chunks == {"c": first.chunks["a"]}


@pytest.mark.parametrize(
    "changed",
    [{"text": TEXT + "."}, {"metadata": {"x": 1}}, {"mime_type": "text/markdown"}, {"origin": "o"}],
)
async def test_what_changed_is_replaced(changed: dict[str, Any]) -> None:
    """Its text, its metadata, or how it is read."""
    library = FakeLibrary()
    await insert(library, document())
    assert (await insert(library, document(**changed))).unchanged == []
    assert writes(library) == 2


async def test_another_chunk_size_is_a_change() -> None:
    """The same text would be split in another way."""
    library = FakeLibrary()
    await insert(library, document())
    again = await ingester().insert(library, [document()], "db", 64, skip_unchanged=True)
    assert again.chunks


async def test_a_document_that_is_not_whole_is_replaced() -> None:
    """A chunk is missing or of an older version, wherever in it, or older ones are still there.

    If this fails: sending a document again no longer mends what a broken write left.
    """
    library = FakeLibrary()
    await insert(library, document())
    engine = library.engines["db"]
    whole = dict(engine.chunks)
    for lost in whole:
        engine.chunks = {name: chunk for name, chunk in whole.items() if name != lost}
        assert (await insert(library, document())).unchanged == []
    for mixed, chunk in whole.items():
        record = chunk.chunk_metadata
        assert record is not None
        earlier = record.model_copy(update={"document_hash": f"earlier, {mixed}"})
        engine.chunks = {**whole, mixed: chunk.model_copy(update={"chunk_metadata": earlier})}
        assert (await insert(library, document())).unchanged == []
    engine.chunks["old"] = Chunk(chunk_id="old", content="old", metadata={"document_id": "a"})
    engine.rows["old"] = next(iter(engine.rows.values()))
    assert (await insert(library, document())).unchanged == []
    assert "old" not in engine.chunks


async def test_it_is_asked_for() -> None:
    """By itself an insert replaces, as it always did."""
    library = FakeLibrary()
    for _ in range(2):
        await insert(library, document(), skip_unchanged=False, same_origin_only=False)
    assert writes(library) == 2


async def test_a_document_of_another_origin_is_not_replaced() -> None:
    """The request is refused as a whole and the error says where the stored one is from.

    If this fails: two folders with a file of one name overwrite each other.
    """
    library = FakeLibrary()
    await insert(library, document(origin="north", metadata={"source": "north/a.md"}))
    with pytest.raises(Conflict, match=r"'a' is already stored.*north/a\.md"):
        await insert(library, document("new"), document(text="else", origin="south"))
    assert {chunk.document_id for chunk in library.engines["db"].chunks.values()} == {"a"}
    await insert(library, document(text="else", origin="north"))
    await insert(library, document(text="else", origin=None))
    assert (await insert(library, document(origin="south"), same_origin_only=False)).chunks
    assert (await insert(library, document(origin="south"))).unchanged == ["a"]


async def test_documents_of_many_chunks_are_known_too() -> None:
    """Where one query cannot return all chunks, more are asked."""
    library = FakeLibrary()
    given = [document(name, TEXT * 80) for name in "abc"]
    chunks = (await insert(library, *given)).chunks
    assert chunks["a"] > READ_CHUNKS
    assert sum(chunks.values()) > MAX_K
    assert (await insert(library, *given)).unchanged == ["a", "b", "c"]


def test_what_an_address_answers_is_never_known() -> None:
    """It may have changed, so it has no hash; a data: URI holds what it says."""
    library = FakeLibrary()
    vector_db = library.vector_dbs["db"]
    far, here = URL(uri="https://example.org/"), URL(uri="data:,hay")
    assert stored.document_hash(document(text=far), vector_db.chunking) is None
    assert stored.document_hash(document(text=here), vector_db.chunking)
