"""`split_on`: a text that the sender chooses, at which chunks end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig, VectorDB
from corral.providers.ingestion.read.parsing import parse
from corral.providers.ingestion.split.chunking import Sizes, chunks_of
from corral.providers.ingestion.split.splitting import split
from corral.server.openai.store_files import joining

MARK = "======"
NOTES = [
    "The shop opens at eight and closes at four.",
    "Eggs. A dozen costs four euros.\n\nA tray of thirty costs nine.",
    "# Milk\n\n- whole\n- skimmed",
    "Ask at the gate.",
]
TEXT = f"\n{MARK}\n".join(NOTES)
DB = VectorDB(
    identifier="db", provider_id="memory", provider_resource_id="db",
    embedding_model="words", embedding_dimension=16,
)  # fmt: skip
CODE = "def cow():\n    return 1\n\n\ndef ewe():\n    return 2\n# cut\ndef ram():\n    return 3\n"


def chunked(text: str, kind: str, split_on: str | int = MARK) -> list[Chunk]:
    """Split a text of a MIME type at a text."""
    sizes = ChunkingConfig(overlap_in_tokens=8, split_on=split_on)
    return chunks_of(RAGDocument(document_id="d", content="x"), parse(text, kind), sizes, DB, len)


def record(chunk: Chunk) -> ChunkMetadata:
    """Return a chunk's record."""
    assert chunk.chunk_metadata is not None
    return chunk.chunk_metadata


@pytest.mark.parametrize("markdown", [False, True])
@pytest.mark.parametrize("overlap", [0, 16])
def test_a_part_that_fits_is_one_chunk(markdown: bool, overlap: int) -> None:
    """It is not cut at a heading or a paragraph, nor joined with its neighbor, nor repeated.

    If this fails: a user's own units (a question with its answer, a clause) come apart.
    """
    pieces = split(TEXT, chunk_size=64, overlap=overlap, markdown=markdown, split_on=MARK)
    assert [piece.text for piece in pieces] == NOTES
    assert all(TEXT[piece.start : piece.end] == piece.text for piece in pieces)


def test_a_longer_part_is_split_within_itself() -> None:
    """Its chunks fit, and none holds a word of another part."""
    long = " ".join(f"cow{number}" for number in range(100))
    pieces = split(
        f"short one {MARK} {long} {MARK} short two", chunk_size=32, overlap=8, split_on=MARK
    )
    texts = [piece.text for piece in pieces]
    assert (texts[0], texts[-1]) == ("short one", "short two")
    assert len(texts) > 5
    assert all("short" not in text and MARK not in text for text in texts[1:-1])
    assert all(piece.tokens <= 32 for piece in pieces)


@given(st.lists(st.sampled_from(["a b", " ", "\n", "|", "||", "# c", "word " * 30]), max_size=12))
def test_any_text_keeps_its_words(parts: list[str]) -> None:
    """Marks at either end, next to each other and within lines: all words stay, in order."""
    text = "".join(parts)
    pieces = split(text, chunk_size=16, overlap=0, markdown=True, split_on="|")
    kept = "".join(each.text for each in pieces)
    assert "".join(kept.split()) == "".join(text.replace("|", "").split())


def test_the_mark_makes_no_heading() -> None:
    """A line of ====== makes the line above it a heading in Markdown; as a mark it does not.

    A document's own headings stay the headings of the chunks behind them.

    If this fails: each chunk claims to be under the last line of the chunk before.
    """
    chunks = chunked(TEXT, "text/markdown")
    assert [chunk.content for chunk in chunks] == NOTES
    assert [record(chunk).heading_path for chunk in chunks] == [None, None, ["Milk"], ["Milk"]]
    assert {chunk.metadata["title"] for chunk in chunks} == {"Milk"}


def test_code_ends_at_the_mark_too() -> None:
    """Functions share a chunk on their side of the mark, and are still found by name."""
    chunks = chunked(CODE, "text/x-python", "# cut")
    assert [chunk.content.count("def ") for chunk in chunks] == [2, 1]
    assert record(chunks[1]).heading_path == ["ram"]


@pytest.mark.parametrize(
    ("kind", "mark"), [("text/markdown", "#"), ("text/org", "*"), ("text/asciidoc", "=")]
)
def test_chunks_end_before_headings_of_a_level(kind: str, mark: str) -> None:
    """A number is a level: headings of it and above begin a chunk, deeper ones do not.

    If this fails: look at `each_chunk`, which turns a level into positions.
    """
    levels = [1, 2, 3, 1]
    text = "\n\n".join(f"{mark * level} Part {n}\n\nHay." for n, level in enumerate(levels))
    firsts = {
        level: [chunk.content.split("\n")[0][-1] for chunk in chunked(text, kind, level)]
        for level in (1, 2, 3)
    }
    assert firsts == {1: ["0", "3"], 2: ["0", "1", "3"], 3: ["0", "1", "2", "3"]}
    assert "".join(joining(chunked(text, kind, 2))) == text


def test_the_document_comes_back_with_its_marks() -> None:
    """The record of each chunk has what is between it and the one before."""
    chunks = chunked(TEXT, "text/plain")
    assert record(chunks[1]).gap_before == f"\n{MARK}\n"
    assert "".join(joining(chunks)) == TEXT


def test_a_request_wins_over_the_registration() -> None:
    """Absent it is as registered; an empty text splits at none. Each has a hash of its own."""
    registered = DB.model_copy(update={"chunking": ChunkingConfig(split_on="#")})
    document = RAGDocument(document_id="d", content="x")
    sizes = [Sizes.of(registered), *(Sizes.of(registered, split_on=each) for each in (MARK, ""))]
    assert [each.chunking.split_on for each in sizes] == ["#", MARK, ""]
    assert len({each.hash(document) for each in sizes}) == 3
    assert Sizes.of(DB, split_on="#").hash(document) == sizes[0].hash(document)
    assert not any(each.chosen for each in sizes)


def test_the_text_is_bounded() -> None:
    """A text of more than 100 characters is refused, and a level that no heading has."""
    with pytest.raises(ValidationError, match="at most 100 characters"):
        ChunkingConfig(split_on="=" * 101)
    for level in (0, 7):
        with pytest.raises(ValidationError, match="than or equal to"):
            ChunkingConfig(split_on=level)
