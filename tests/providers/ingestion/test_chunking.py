"""A chunk knows its place: its record gives the document back, character by character."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.api.chunks import MAX_GAP, Chunk, ChunkMetadata
from corral.api.invisible import clean_text
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig, VectorDB
from corral.providers.ingestion.read.parsing import ParsedDocument, parse
from corral.providers.ingestion.split.chunking import chunks_of

DB = VectorDB(
    identifier="db", provider_id="memory", provider_resource_id="db",
    embedding_model="words", embedding_dimension=16,
)  # fmt: skip
SENTENCES = "".join(f"Cow {n} grazes in field {n * 7}.\n\n  - hay {n}\n" for n in range(40))
TEXTS = st.text(
    alphabet=st.one_of(st.sampled_from("ab .\n\t# -é中😀"), st.characters(codec="utf-8")),
    min_size=1, max_size=300,
)  # fmt: skip


def chunked(text: str, size: int = 16, overlap: int = 0, **fields: Any) -> list[Chunk]:
    """Split a text into chunks of a document."""
    document = RAGDocument(document_id="d", content="x")
    sizes = ChunkingConfig(chunk_size_in_tokens=size, overlap_in_tokens=overlap)
    return chunks_of(document, ParsedDocument(text, **fields), sizes, DB, len)


def record(chunk: Chunk) -> ChunkMetadata:
    """Return a chunk's record."""
    assert chunk.chunk_metadata is not None
    return chunk.chunk_metadata


def check(text: str, chunks: list[Chunk]) -> None:
    """Hold the records of a document's chunks against its text."""
    ids = [None, *(chunk.chunk_id for chunk in chunks), None]
    end = None
    for position, chunk in enumerate(chunks):
        place = record(chunk)
        assert place.position == position
        assert place.char_start is not None
        assert text[place.char_start : place.char_end] == chunk.content
        assert (place.previous_chunk_id, place.next_chunk_id) == (ids[position], ids[position + 2])
        gap = "" if end is None else text[end : place.char_start]
        assert not gap.strip()
        assert place.gap_before == (gap if 0 < len(gap) <= MAX_GAP else None)
        end = place.char_end


@pytest.mark.parametrize("markdown", [False, True])
@pytest.mark.parametrize(("size", "overlap"), [(16, 0), (16, 8), (40, 13), (5, 2)])
def test_a_record_is_the_chunks_place(size: int, overlap: int, markdown: bool) -> None:
    """Position, span, neighbors and the white space before it, with overlap and without."""
    chunks = chunked(SENTENCES, size, overlap, markdown=markdown)
    assert len(chunks) > 10
    check(SENTENCES, chunks)


@settings(max_examples=150)
@given(TEXTS, st.integers(1, 20), st.booleans(), st.data())
def test_records_of_any_text_are_exact(
    text: str, size: int, markdown: bool, data: st.DataObject
) -> None:
    """For any text, size and overlap.

    If this fails: adding adjacent chunks would repeat or lose characters.
    """
    text = clean_text(text)
    overlap = data.draw(st.integers(0, size // 2))
    check(text, chunked(text, size, overlap, markdown=markdown))


def test_a_wide_gap_is_not_recorded() -> None:
    """257 spaces between two chunks are not stored a second time."""
    text = "grass grows" + " " * (MAX_GAP + 1) + "hay is dry"
    first, second = chunked(text, 4)
    assert (first.content, second.content) == ("grass grows", "hay is dry")
    assert record(second).gap_before is None


def test_a_single_chunk_has_no_neighbors() -> None:
    """Its place is the whole document, and no page is claimed."""
    (only,) = chunked("hay")
    place = record(only)
    assert (place.position, place.char_start, place.char_end) == (0, 0, 3)
    assert (place.previous_chunk_id, place.next_chunk_id) == (None, None)
    assert (place.page, place.gap_before) == (None, None)


def test_a_chunk_begins_on_a_page() -> None:
    """The page of its first character; blank pages are counted, and belong to no chunk."""
    text = "one one\n\nthree three\n\nfour four"
    chunks = chunked(text, 3, page_starts=(0, 9, 9, 22, 31))
    assert [(c.content, record(c).page) for c in chunks] == [
        ("one one", 1), ("three three", 3), ("four four", 4),
    ]  # fmt: skip


def test_the_users_metadata_stays_the_users() -> None:
    """Nothing of the place is in `metadata`, so `{metadata}` in a context prints what it did."""
    (only,) = chunked("hay")
    assert set(only.metadata) == {"document_id", "token_count", "metadata_token_count"}
    assert parse("hay").page_starts == ()
