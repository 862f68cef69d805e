"""Adjacent chunks become one text, and it is the document's."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.api.chunks import MAX_GAP, Chunk
from corral.api.fusion import Explanation
from corral.api.hits import Hit
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig, VectorDB
from corral.providers.ingestion.read.parsing import ParsedDocument
from corral.providers.ingestion.split.chunking import chunks_of
from corral.providers.rag.passages import Passage, arranged, bare, passages, span
from corral.providers.rag.report import place
from corral.providers.rag.selection import ContextHit

DB = VectorDB(
    identifier="db", provider_id="memory", provider_resource_id="db",
    embedding_model="words", embedding_dimension=16,
)  # fmt: skip
TEXT = "".join(f"Cow {n} grazes in field {n * 7}.\n\n  - hay {n}, hay {n}\n" for n in range(12))


def chunked(text: str, size: int, overlap: int, document_id: str = "d") -> list[Chunk]:
    """Split a text into the chunks of a document."""
    sizes = ChunkingConfig(chunk_size_in_tokens=size, overlap_in_tokens=overlap)
    document = RAGDocument(document_id=document_id, content="x")
    return chunks_of(document, ParsedDocument(text), sizes, DB, len)


def hit(chunk: Chunk, vector_db_id: str = "db") -> ContextHit:
    """Return a chunk as it was found."""
    return ContextHit(vector_db_id, Hit(chunk, 0.5, Explanation({})))


def made(kept: list[Chunk], neighbors: list[Chunk]) -> list[Passage]:
    """Return the passages of chunks of one vector DB, best first."""
    return passages([hit(c) for c in kept], {"db": {c.chunk_id: c for c in neighbors}})


def changed(chunk: Chunk, **record: Any) -> Chunk:
    """Return a chunk with another record, or with none."""
    assert chunk.chunk_metadata is not None
    own = chunk.chunk_metadata.model_copy(update=record) if record else None
    return chunk.model_copy(update={"chunk_metadata": own})


@pytest.mark.parametrize("overlap", [0, 24])
def test_a_table_that_was_split_becomes_one_table(overlap: int) -> None:
    """The header that chunks repeat is shown once, before the first row of the passage.

    If this fails: `expand` prints the header between rows, or gives up on tables.
    """
    header = "| name | head |\n|---|---|\n"
    text = header + "\n".join(f"| herd {n} | {n * 7} |" for n in range(60)) + "\n\nThe end."
    document = RAGDocument(document_id="d", content="x")
    sizes = ChunkingConfig(chunk_size_in_tokens=64, overlap_in_tokens=overlap)
    chunks = chunks_of(document, ParsedDocument(text, markdown=True), sizes, DB, len)
    assert len(chunks) > 5
    (whole,) = made([chunks[2]], chunks)
    assert whole.text == text
    (some,) = made([chunks[2]], chunks[2:4])
    assert some.text.startswith(header)
    assert some.text.removeprefix(header) in text
    assert place(some) == {
        "char_start": text.index(some.text.removeprefix(header)),
        "char_end": text.index(some.text.removeprefix(header)) + len(some.text) - len(header),
    }
    shown = some.text[: len(header) + 10]
    assert place(some, shown)["char_end"] == place(some)["char_start"] + 10


@pytest.mark.parametrize(("size", "overlap"), [(16, 0), (16, 8), (24, 12), (5, 2), (3, 1)])
def test_all_chunks_of_a_document_give_the_document(size: int, overlap: int) -> None:
    """Nothing is repeated and nothing lost, not even white space between chunks."""
    chunks = chunked(TEXT, size, overlap)
    assert len(chunks) > 10
    (whole,) = made([chunks[4]], chunks)
    assert whole.text == TEXT.strip()
    assert [c.chunk_id for c in whole.chunks] == [c.chunk_id for c in chunks]


@settings(max_examples=150)
@given(
    st.lists(st.sampled_from(["a", "ab", " ", "\n", "aa aa", ". ", "b", "é中"]), max_size=60),
    st.integers(1, 8),
    st.data(),
)
def test_any_text_comes_back(words: list[str], size: int, data: st.DataObject) -> None:
    """However repetitive: the overlap is known by its span, not guessed by looking for it."""
    text = "".join(words).strip()
    chunks = chunked(text, size, data.draw(st.integers(0, size // 2)))
    assert "".join(p.text for p in made(chunks, [])) == text


def test_hits_that_touch_each_other_are_one() -> None:
    """The best of them leads, wherever it stands; others stay apart, ordered by their best."""
    chunks = chunked(TEXT, 16, 8)
    kept = [chunks[9], chunks[3], chunks[1], chunks[2]]
    first, second = made(kept, [chunks[0], chunks[4], chunks[8], chunks[10]])
    assert [c.chunk_id for c in first.chunks] == [chunks[n].chunk_id for n in (8, 9, 10)]
    assert [c.chunk_id for c in second.chunks] == [chunks[n].chunk_id for n in range(5)]
    assert [each.hit.chunk for each in second.hits] == [chunks[3], chunks[1], chunks[2]]
    assert second.best.hit.chunk == chunks[3]
    assert second.text in TEXT
    assert [p.text for p in second.split_up()] == [c.content for c in kept[1:]]


def test_hits_of_a_vector_db_that_does_not_expand_stay_apart() -> None:
    """Even where they are adjacent; chunks of others do not join them."""
    chunks = chunked(TEXT, 16, 8)
    kept = [hit(chunks[1]), hit(chunks[2]), hit(chunks[2], "other"), hit(chunks[3], "other")]
    assert [p.text for p in passages(kept, {})] == [each.hit.chunk.content for each in kept]
    assert [len(p.hits) for p in passages(kept, {"other": {}})] == [1, 1, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"position": None},
        {"char_start": None},
        {"char_end": None},
        {"char_start": 5, "char_end": 6},
        {"gap_before": None},
        {"gap_before": "  "},
        {"gap_before": "x"},
    ],
)
def test_chunks_that_do_not_fit_together_stay_apart(wrong: dict[str, Any]) -> None:
    """No record, or one that the texts belie: nothing is joined by guesswork.

    If this fails: a chunk inserted with a made-up record puts text where it does not belong.
    """
    first, second = chunked("grass grows\nhay is dry", 4, 0)
    (both,) = made([first, second], [])
    assert both.text == "grass grows\nhay is dry"
    assert [p.text for p in made([first, changed(second, **wrong)], [])] == [
        first.content, second.content,
    ]  # fmt: skip


def test_an_overlap_is_compared_before_it_is_left_out() -> None:
    """A new version of a document has other text at the same place: the two stay apart."""
    first, second, *_ = chunked("one two three four five six seven", 4, 2)
    (both,) = made([first, second], [])
    assert len(both.text) < len(first.content) + len(second.content)
    edited = second.model_copy(update={"content": second.content.replace("th", "ht")})
    assert len(made([first, edited], [])) == 2


def test_chunks_have_to_name_each_other() -> None:
    """Neither another document nor a new version of this one joins, whatever its spans say."""
    first, second, *_ = chunked(TEXT, 16, 0)
    assert len(made([first, second], [])) == 1
    assert len(made([first, chunked(TEXT, 16, 0, "other")[1]], [])) == 2
    assert len(made([changed(first, next_chunk_id="new"), second], [])) == 2


def test_a_wide_gap_becomes_a_line_break() -> None:
    """Of 300 spaces between two chunks nothing is recorded but where they end."""
    chunks = chunked("grass grows" + " " * (MAX_GAP + 44) + "hay is dry", 4, 0)
    (both,) = made(chunks, [])
    assert both.text == "grass grows\nhay is dry"


def test_a_span_has_to_be_as_long_as_its_text() -> None:
    """Otherwise it is none."""
    (chunk,) = chunked("hay", 4, 0)
    place = span(chunk)
    assert place is not None
    assert (place.position, place.start, place.end) == (0, 0, 3)
    assert span(changed(chunk, char_end=4)) is None
    assert span(changed(chunk)) is None


# --- order -----------------------------------------------------------------------------------


def shown(order: Any, chosen: list[Passage]) -> list[str]:
    """Return the texts in an order."""
    return [passage.text for passage in arranged(chosen, order)]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, []), (1, [0]), (2, [0, 1]), (3, [0, 2, 1]), (5, [0, 2, 4, 3, 1]), (6, [0, 2, 4, 5, 3, 1])],
)
def test_the_best_stand_at_both_ends(count: int, expected: list[int]) -> None:
    """First the best, last the second best, the worst in the middle."""
    chosen = [bare(hit(Chunk(content=str(n), chunk_id=str(n)))) for n in range(count)]
    assert shown("edges", chosen) == [str(n) for n in expected]
    assert shown("score", chosen) == [str(n) for n in range(count)]


def test_documents_are_kept_together_and_in_their_order() -> None:
    """The document of the best chunk first; within it by position, unknown places last."""
    a, b = chunked(TEXT, 16, 8, "a"), chunked(TEXT, 16, 8, "b")
    lost = Chunk(content="lost", metadata={"document_id": "b"})
    alone = [Chunk(content=f"alone {n}", chunk_id=f"alone {n}") for n in range(2)]
    chosen = [b[5], lost, alone[0], a[2], b[1], alone[1], a[1]]
    expected = [b[1], b[5], lost, alone[0], a[1], a[2], alone[1]]
    assert shown("document", [bare(hit(c)) for c in chosen]) == [c.content for c in expected]


def test_documents_of_several_vector_dbs_are_several() -> None:
    """Equal document ids in two vector DBs are two documents."""
    chunks = chunked(TEXT, 16, 8)
    chosen = [bare(hit(chunks[n], db)) for n, db in ((5, "x"), (1, "y"), (2, "x"))]
    assert shown("document", chosen) == [chunks[n].content for n in (2, 5, 1)]


def test_every_order_shows_everything() -> None:
    """Nothing is lost or doubled, whatever was chosen."""
    chunks = [bare(hit(c)) for c in chunked(TEXT, 16, 8)[:6]]
    for size in range(len(chunks) + 1):
        for chosen in combinations(chunks, size):
            for order in ("score", "document", "edges"):
                assert sorted(shown(order, list(chosen))) == sorted(p.text for p in chosen)
