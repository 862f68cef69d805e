"""The stored form of a chunk that several engines share."""

from __future__ import annotations

from functools import partial

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.hits import Candidate
from corral.providers.vector_io.kit.records import (
    MAX_PACKED_TEXT,
    attach_chunks,
    chunk_fields,
    pack_fields,
    read_chunk,
    unpack_fields,
)

METADATA = {"document_id": "d", "tags": ["ä", "🙂", None], "year": 1999}


def chunk(text: str) -> Chunk:
    """Return a chunk with metadata of both kinds."""
    return Chunk(
        chunk_id="c", content=text, metadata=METADATA, chunk_metadata=ChunkMetadata(source="s")
    )


def test_a_packed_chunk_is_read_as_it_was() -> None:
    """Every character, the metadata and the chunk's own come back, with or without padding.

    If this fails: a hit shows another text than `get_chunks`.
    """
    for text in ("zebra", "ä 🙂 \ud800 \n \u2028", "x" * MAX_PACKED_TEXT):
        value = pack_fields(chunk_fields(chunk(text)))
        for packed in (value, value.rstrip("=")):
            assert read_chunk(unpack_fields(packed)) == chunk(text)
    plain = Chunk(chunk_id="c", content="zebra")
    assert read_chunk(unpack_fields(pack_fields(chunk_fields(plain)))) == plain


def test_candidates_get_the_chunks_that_came_with_their_hits() -> None:
    """A long text is left to be fetched, and so is a chunk that no hit brought.

    If this fails: an answer has a chunk without its text.
    """
    texts = {"a": "zebra", "b": "x" * (MAX_PACKED_TEXT + 1)}
    packed = {i: pack_fields(chunk_fields(chunk(text))) for i, text in texts.items()}
    brought = {i: partial(unpack_fields, value) for i, value in packed.items()}
    candidates = [Candidate(i, 1.0) for i in "abcd"]
    attach_chunks(candidates, {**brought, "c": None})
    assert [one.chunk for one in candidates] == [chunk("zebra"), None, None, None]
    fields = unpack_fields(packed["b"])
    assert fields["content"] is None
    assert fields["metadata"] == chunk_fields(chunk("zebra"))["metadata"]
