"""Many chunks in little memory: the same chunks, however they are read."""

from __future__ import annotations

import tracemalloc

import pytest

from corral.api.chunks import Chunk
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig, VectorDB
from corral.providers.ingestion.chunk_buffer import LOOSE, PackedChunks
from corral.providers.ingestion.read.parsing import ParsedDocument
from corral.providers.ingestion.split.chunking import chunks_of

DB = VectorDB(
    identifier="db", provider_id="memory", provider_resource_id="db",
    embedding_model="words", embedding_dimension=16,
)  # fmt: skip
SIZES = ChunkingConfig(chunk_size_in_tokens=16, overlap_in_tokens=0)


def made(count: int, **fields: object) -> list[Chunk]:
    """Return about so many chunks of one document."""
    text = "\n\n".join(f"Sheep {n} eats gräss behind the fence of 羊." for n in range(count))
    given = {"metadata": {"year": 2026, "tags": ["a"]}, **fields}
    document = RAGDocument.model_validate({"document_id": "d", "content": "x", **given})
    return chunks_of(document, ParsedDocument(text), SIZES, DB, len)


def packed(chunks: list[Chunk]) -> PackedChunks:
    """Return chunks, packed in parts of 64."""
    result = PackedChunks()
    for start in range(0, len(chunks), 64):
        result.extend(chunks[start : start + 64])
    return result


@pytest.mark.parametrize("acl", [None, ["user:ann"]])
def test_packed_chunks_are_the_same(acl: list[str] | None) -> None:
    """Read in order, by place and by slice, with all that is known of them.

    If this fails: a large document is stored with other chunks than a small one.
    """
    chunks = made(LOOSE + 200, acl=acl)
    found = packed(chunks)
    assert len(found) == len(chunks) > LOOSE
    assert list(found) == chunks
    assert [each.model_dump(exclude_unset=True) for each in list(found)[-3:]] == [
        each.model_dump(exclude_unset=True) for each in chunks[-3:]
    ]
    assert (found[0], found[-1], found[LOOSE + 70]) == (chunks[0], chunks[-1], chunks[LOOSE + 70])
    assert found[5 : LOOSE + 9 : 700] == chunks[5 : LOOSE + 9 : 700]
    assert found[::-999] == chunks[::-999]
    with pytest.raises(IndexError):
        found[len(chunks)]


def test_packed_chunks_take_little_memory() -> None:
    """Each takes a small part of what it takes as it is.

    If this fails: a document of 20 MB takes hundreds of megabytes until it is stored.
    """
    tracemalloc.start()
    try:
        chunks = made(2 * LOOSE)
        whole = tracemalloc.get_traced_memory()[0]
        found = packed(chunks)
        few = len(chunks)
        del chunks
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(found) == few
    assert left < 0.65 * whole  # half of them are as they were
