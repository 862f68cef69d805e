"""Subtitles, markup with headings, and front matter."""

from __future__ import annotations

import pytest

from corral.api.chunks import Chunk
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig, VectorDB
from corral.providers.ingestion.read.detecting import MARKDOWN, SRT, VTT, type_of
from corral.providers.ingestion.read.parsing import ParsedDocument, parse
from corral.providers.ingestion.split.chunking import chunks_of

DB = VectorDB(
    identifier="db", provider_id="memory", provider_resource_id="db",
    embedding_model="words", embedding_dimension=16,
)  # fmt: skip


def headings(text: str, name: str) -> list[tuple[int, str]]:
    """Return level and text of each heading of a file of that name; its lines are its own."""
    parsed = parse(text.encode(), type_of(name))
    assert parsed.text == text.rstrip("\n")
    assert parsed.has_lines
    lines = {each.start: parsed.text[each.start : each.end] for each in parsed.headings}
    assert all(each.text.split()[0] in lines[each.start] for each in parsed.headings)
    return [(each.level, each.text) for each in parsed.headings]


def srt(*cues: tuple[int, str]) -> str:
    """Return subtitles: the second and the words of each cue."""
    return "\n\n".join(
        f"{n}\n00:{second // 60:02}:{second % 60:02},000 --> 00:59:00,500\n{words}"
        for n, (second, words) in enumerate(cues, 1)
    )


def test_subtitles_are_words() -> None:
    """Counters, times and markup go; a line that rolls on is there once; a voice has its name.

    If this fails: a sentence is cut by the times between its words, and is not found.
    """
    text = srt((1, "The <i>sheep</i>\n{\\an8}eats"), (3, "eats"), (4, "hay &amp; grass."))
    assert parse(text.encode(), SRT).text == "The sheep eats hay & grass."
    text = (
        "WEBVTT - Farm\n\nNOTE not said\n\nSTYLE\n::cue {}\n\nfirst\n00:01.000 --> 00:02.000 a:b\n"
        "<v.loud Ada>Come <00:01.500>here!</v>\n\n01:00:01.000 --> 01:00:02.000\n- Yes."
    )
    for named in (VTT, "text/plain", None):
        parsed = parse(text.encode(), named)
        assert parsed.text == "Ada: Come here!\n\n- Yes."
        assert [each.text for each in parsed.headings] == ["00:00:01", "01:00:01"]


def test_the_time_is_the_place() -> None:
    """A chunk of subtitles says at which time it begins; a paragraph ends with a sentence.

    If this fails: a passage of an hour's talk cannot be found in the film.
    """
    cues = [(n * 10, f"Word {n} of the talk{'.' if n % 4 == 0 else ''}") for n in range(60)]
    parsed = parse(srt(*cues).encode(), SRT)
    assert [each.text for each in parsed.headings][:3] == ["00:00:00", "00:01:30", "00:02:50"]
    assert all(part.endswith(".") for part in parsed.text.split("\n\n")[:-1])
    assert parsed.title is None
    chunks = _chunks(parsed)
    places = [chunk.chunk_metadata.heading_path for chunk in chunks if chunk.chunk_metadata]
    assert len(chunks) > 3
    assert places[0] == ["00:00:00"]
    assert sorted(place[0] for place in places if place) == [p[0] for p in places if p]
    assert not any("00:" in str(chunk.content) for chunk in chunks)


def test_a_text_without_times_stays() -> None:
    """Under the name of subtitles too."""
    assert parse(b"Hay\n\nis dry.", SRT).text == "Hay\n\nis dry."


def test_restructured_text_has_headings() -> None:
    """Underlined titles, with an overline or without, in the order of their styles.

    If this fails: a chunk of documentation does not say which section it is from.
    """
    text = (
        "====\nFarm\n====\n\nIntro.\n\n"
        "The *sheep*\n-----------\n\nEat.\n\nWool\n^^^^\n\nCows\n----\n\n"
        "A list of\n---\n\n===== =====\na     b\n===== =====\n1     2\n===== =====\n"
    )
    assert headings(text, "a.rst") == [(1, "Farm"), (2, "The sheep"), (3, "Wool"), (2, "Cows")]
    assert parse(text.encode(), "text/x-rst").title == "Farm"


def test_asciidoc_has_headings() -> None:
    """Lines of equal signs, but not in a block of code."""
    text = "= Farm\n\n== Sheep\nEat.\n----\n== no heading\n----\n=== Wool\n"
    assert headings(text, "a.adoc") == [(1, "Farm"), (2, "Sheep"), (3, "Wool")]


def test_org_has_headings() -> None:
    """Stars, without states, priorities and tags; not in a block, and no bold text."""
    text = "* Farm\n** TODO [#A] Sheep :wool:\n#+BEGIN_SRC\n* no heading\n#+END_SRC\n"
    text += "*bold* a\n*** DONE x"
    assert headings(text, "a.org") == [(1, "Farm"), (2, "Sheep"), (3, "x")]


def test_latex_has_headings() -> None:
    """Parts to paragraphs, with a short title or a star."""
    text = (
        "\\chapter{Farm}\\label{x}\n\\section*{The \\emph{sheep}}\nEat.\n"
        "  \\subsection[short]{Wool} It is warm.\n% \\section{none}\n"
    )
    assert headings(text, "a.tex") == [(2, "Farm"), (3, "The sheep"), (4, "Wool")]


def _chunks(parsed: ParsedDocument, **metadata: object) -> list[Chunk]:
    document = RAGDocument(document_id="d", content="x", metadata=metadata)
    sizes = ChunkingConfig(chunk_size_in_tokens=64, overlap_in_tokens=0)
    return list(chunks_of(document, parsed, sizes, DB, len))


def front(yaml: str) -> ParsedDocument:
    """Return a Markdown text with that front matter."""
    return parse(f"---\n{yaml}\n---\n# Hay\n\nIt is dry.", MARKDOWN)


def test_front_matter_is_metadata() -> None:
    """Strings, numbers, dates as text and lists of them; the sender's values win.

    If this fails: a folder of notes cannot be filtered by date or tag.
    """
    parsed = front("title: The hay\ndate: 2026-03-01\ntags: [a, 2]\nprice: 7.5\ndraft: false")
    assert parsed.title == "The hay"
    assert parsed.metadata == {
        "date": "2026-03-01", "tags": ["a", 2], "price": 7.5, "draft": False,
    }  # fmt: skip
    assert parsed.text.startswith("---\ntitle: The hay\n")
    [chunk] = _chunks(parsed, price=8)
    assert chunk.metadata["price"] == 8
    assert chunk.metadata["date"] == "2026-03-01"
    assert chunk.metadata["title"] == "The hay"


@pytest.mark.parametrize(
    "yaml",
    ["source: /etc/passwd\ndocument_id: other\nurl: x", "a: {b: c}\nd: null\ne: ''\nf: [[]]",
     "a: .inf\nb: .nan", "- a list", "just words", "a: [", "a: &a b\nc: *a", "? [a]\n: b",
     "a: 2026-99-99", "a: !!python/object:os.system x", "1: 2"],
)  # fmt: skip
def test_what_is_no_value_is_no_metadata(yaml: str) -> None:
    """Names that say where a document is from, objects, broken YAML and aliases are passed over.

    If this fails: a text gives itself the source of another one, or stops its ingestion.
    """
    assert front(yaml).metadata == {}
    assert front(yaml).title == "Hay"


def test_front_matter_is_bounded() -> None:
    """In length, in keys and in each value; a NUL in a value goes."""
    assert len(front("\n".join(f"k{n}: {n}" for n in range(99))).metadata) == 32
    assert front(f"a: {'x' * 5000}").metadata == {"a": "x" * 300}
    assert front(f"a: {'x' * 20_000}").metadata == {}
    assert front('a: "b\\0c"').metadata == {"a": "bc"}
