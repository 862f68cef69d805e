"""Headings: found as Markdown has them, and known of every place below them."""

from __future__ import annotations

import time

import pytest

from corral.api.chunks import Chunk, ChunkMetadata, embedded_text
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig, VectorDB
from corral.providers.ingestion.read.detecting import MARKDOWN
from corral.providers.ingestion.read.parsing import parse
from corral.providers.ingestion.split.chunking import Outline, chunks_of
from corral.providers.ingestion.split.headings import markdown_headings
from corral.providers.text.fields import field_texts

GUIDE = """\
---
title: front matter
---
Intro line.

# The `herd` #
Text under the herd.

Cattle
------
They graze.

```sh
# no heading
```

### *Calves* and [cows](x.md)
Young ones.

## Sheep
Wool.
"""


def test_headings_are_found_as_markdown_has_them() -> None:
    """ATX and underlined ones, without their marks; none in code, front matter or a table.

    If this fails: citations name comments of shell scripts as headings.
    """
    found = [(heading.level, heading.text) for heading in markdown_headings(GUIDE)]
    assert found == [(1, "The herd"), (2, "Cattle"), (3, "Calves and cows"), (2, "Sheep")]
    for heading in markdown_headings(GUIDE):
        assert heading.text.split()[-1] in GUIDE[heading.start : heading.end]
    tricky = (
        "| a |\n---\n\n- item\n---\n\n\n---\n#tag\n#\n    # code\n~~~\n# in\n```\n# in\n~~~\n# out"
    )
    assert [heading.text for heading in markdown_headings(tricky)] == ["out"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("## a ##", "a"), ("# a#", "a#"), ("# a # #", "a #"), ("# a \t##\t ", "a"),
        ("#\ta", "a"), ("# #", None), ("# ##", None), ("# __a__ a_b", "a a_b"), ("# _", None),
    ],
)  # fmt: skip
def test_number_signs_close_a_heading_behind_a_space(line: str, text: str | None) -> None:
    """They are no part of its text, and others are; underscores within a word stay.

    If this fails: `# C#` is a heading "C".
    """
    assert [heading.text for heading in markdown_headings(line)] == ([text] if text else [])


@pytest.mark.parametrize("line", ["# a" + " " * 60_000 + "b", "# a" + "_" * 60_000 + "b"])
def test_a_long_line_is_read_once(line: str) -> None:
    """The time to read a heading grows with its length, not with the square of it.

    If this fails: a document of 100 KB holds the interpreter, and so the server, for minutes.
    """
    began = time.process_time()
    assert len(markdown_headings(line)) == 1
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("Intro line", []),
        ("Text under", ["The herd"]),
        ("They graze", ["The herd", "Cattle"]),
        ("Young ones", ["The herd", "Cattle", "Calves and cows"]),
        ("Wool", ["The herd", "Sheep"]),
        ("Cattle\n---", ["The herd", "Cattle"]),
    ],
)
def test_a_place_knows_the_headings_above_it(words: str, path: list[str]) -> None:
    """From the outermost to the nearest; what begins with a heading is under it."""
    start = GUIDE.index(words)
    assert Outline(markdown_headings(GUIDE)).path(start, start + len(words) + 20, GUIDE) == path


def chunks(text: str, size: int = 16, overlap: int = 0) -> list[Chunk]:
    """Return the chunks of a Markdown text."""
    chunking = ChunkingConfig(chunk_size_in_tokens=size, overlap_in_tokens=overlap)
    vector_db = VectorDB(
        identifier="db", provider_id="p", provider_resource_id="db",
        embedding_model="m", embedding_dimension=3,
    )  # fmt: skip
    document = RAGDocument(document_id="d", content=text, metadata={"filename": "guide.md"})
    return chunks_of(document, parse(text, MARKDOWN), chunking, vector_db, lambda _: 0)


@pytest.mark.parametrize("overlap", [0, 8])
def test_a_chunk_knows_its_lines_and_headings(overlap: int) -> None:
    """Its lines are those of the file; its headings those above its first new line; its file.

    If this fails: a citation sends its reader to the wrong place.
    """
    made = chunks(GUIDE, overlap=overlap)
    assert len(made) > 3
    lines = GUIDE.split("\n")
    for chunk in made:
        record = chunk.chunk_metadata
        assert record is not None
        assert record.filename == "guide.md"
        assert record.line_start is not None
        assert record.line_end is not None
        shown = chunk.content.strip("\n").split("\n")
        assert lines[record.line_start - 1].endswith(shown[0])
        assert lines[record.line_end - 1].startswith(shown[-1])
    (wool,) = [chunk for chunk in made if "Wool" in chunk.content]
    assert wool.chunk_metadata is not None
    assert wool.chunk_metadata.heading_path in (["The herd", "Sheep"], ["The herd", "Cattle"])
    if not overlap:
        assert wool.chunk_metadata.heading_path == ["The herd", "Sheep"]


@pytest.mark.parametrize("name", [7, ["a.md"], "x" * 256])
def test_a_file_name_that_is_none_is_left_to_the_metadata(name: object) -> None:
    """Metadata is the sender's: what is no name of a file there breaks no insert."""
    vector_db = VectorDB(
        identifier="db", provider_id="p", provider_resource_id="db",
        embedding_model="m", embedding_dimension=3,
    )  # fmt: skip
    document = RAGDocument(document_id="d", content="Hay.", metadata={"filename": name})
    (made,) = chunks_of(document, parse("Hay."), ChunkingConfig(), vector_db, lambda _: 0)
    assert made.chunk_metadata is not None
    assert made.chunk_metadata.filename is None
    assert made.metadata["filename"] == name


def chunk(path: list[str] | None, content: str = "Wool is warm.", **metadata: object) -> Chunk:
    """Return a chunk under some headings."""
    return Chunk(
        content=content, metadata=dict(metadata), chunk_metadata=ChunkMetadata(heading_path=path)
    )


def test_headings_are_embedded_with_the_content() -> None:
    """Before it, without those that it holds, and not more than a model can spare.

    If this fails: "it grows fast" is embedded without a word of what grows.
    """
    assert embedded_text(chunk(["Herd", "Sheep"])) == "Herd > Sheep\nWool is warm."
    assert embedded_text(chunk(["Herd", "Sheep"], "## Sheep\nWool.")) == "Herd\n## Sheep\nWool."
    assert embedded_text(chunk(None)) == "Wool is warm."
    assert embedded_text(Chunk(content="Wool.")) == "Wool."
    assert (
        embedded_text(chunk(["x" * 150, "y" * 100, "Sheep"]))
        == f"{'y' * 100} > Sheep\nWool is warm."
    )


def test_keyword_search_reads_headings_with_the_title() -> None:
    """In the field `title`, each once; the content stays as it is.

    If this fails: a word that is only in a heading finds nothing.
    """
    found = field_texts(chunk(["Herd", "Sheep"], title="Herd"), ["content", "title"])
    assert list(found) == ["Wool is warm.", "Herd\nSheep"]
    assert list(field_texts(chunk(None), ["title"])) == [""]
