"""Duplicates and too many chunks of a document stay out of a context, and the answer says which."""

from __future__ import annotations

import pytest

from corral.api.chunks import Chunk, ChunkMetadata
from corral.api.fusion import Explanation
from corral.api.hits import Hit
from corral.providers.rag.selection import ContextHit, select, spread

HAY = "hay is  dry\n"


def found(*chunks: tuple[str, str | None, str]) -> list[ContextHit]:
    """Return a hit for each (vector DB, document, text); ids are c0, c1..."""
    hits = []
    for number, (vector_db_id, document_id, text) in enumerate(chunks):
        metadata = {} if document_id is None else {"document_id": document_id}
        chunk = Chunk(content=text, chunk_id=f"c{number}", metadata=metadata)
        hits.append(ContextHit(vector_db_id, Hit(chunk, 1.0 / (number + 1), Explanation({}))))
    return hits


def outcome(
    hits: list[ContextHit],
    caps: dict[str, int | None] | None = None,
    k: int = 5,
    deduplicate: bool = True,
) -> tuple[list[str], dict[str, str]]:
    """Return the ids of those that stay, and the reasons of those that do not."""
    selection = select(hits, k, caps or {}, deduplicate)
    assert len(selection.hits) + len(selection.dropped) == len(hits) == len(selection.ranks)
    reasons = {
        d.hit.hit.chunk.chunk_id: d.reason
        + (f" of {d.duplicate_of.hit.chunk.chunk_id}" if d.duplicate_of else "")
        for d in selection.dropped
    }
    return [each.hit.chunk.chunk_id for each in selection.hits], reasons


def test_a_text_is_there_once() -> None:
    """Texts that differ in white space only are one; the best stays, whatever its document."""
    hits = found(
        ("a", "d1", HAY), ("b", "d2", "hay is dry"), ("a", "d1", "Hay is dry"),
        ("a", None, "\thay\nis\u00a0dry"),
    )  # fmt: skip
    assert outcome(hits) == (["c0", "c2"], {"c1": "duplicate of c0", "c3": "duplicate of c0"})


def test_duplicates_stay_when_they_are_wanted() -> None:
    """`deduplicate: false` keeps them."""
    assert outcome(found(("a", "d", HAY), ("a", "e", HAY)), deduplicate=False) == (["c0", "c1"], {})


def test_a_document_gives_so_many_chunks() -> None:
    """Per document and vector DB; a chunk without a document is never one too many.

    If this fails: five texts planted in one document fill the whole context.
    """
    hits = found(
        ("a", "d", "1"), ("a", "d", "2"), ("a", "e", "3"), ("b", "d", "4"), ("b", "d", "5"),
        ("a", None, "6"), ("a", None, "7"),
    )  # fmt: skip
    capped = {"c1": "document_cap", "c4": "document_cap"}
    assert outcome(hits, {"a": 1, "b": 1}, k=9) == (["c0", "c2", "c3", "c5", "c6"], capped)
    assert outcome(hits, {"a": 1, "b": None}, k=9)[1] == {"c1": "document_cap"}
    assert outcome(hits, k=9)[1] == {}


def scored(*hits: tuple[str | None, str, float]) -> list[ContextHit]:
    """Return a hit for each (document, heading, score); ids are c0, c1..."""
    chunks = [
        Chunk(
            content=f"text {number}",
            chunk_id=f"c{number}",
            metadata={} if document is None else {"document_id": document},
            chunk_metadata=ChunkMetadata(heading_path=[heading]),
        )
        for number, (document, heading, _) in enumerate(hits)
    ]
    pairs = zip(chunks, hits, strict=True)
    return [ContextHit("a", Hit(chunk, score, Explanation({}))) for chunk, (*_, score) in pairs]


@pytest.mark.parametrize(
    ("hits", "chosen"),
    [
        # Close scores: each document gives a chunk before one gives its second.
        ([("d", "x", 1.0), ("d", "y", 0.99), ("e", "x", 0.98), ("f", "x", 0.0)], "c0 c2"),
        # One document is far ahead.
        ([("d", "x", 1.0), ("d", "y", 0.9), ("e", "x", 0.3), ("f", "x", 0.0)], "c0 c1"),
        # Close scores in one document: another section goes before the same one.
        ([("d", "x", 1.0), ("d", "x", 0.99), ("d", "y", 0.98), ("d", "z", 0.0)], "c0 c2"),
        # A repeated section loses more than another one.
        ([("d", "x", 1.0), ("d", "x", 0.96), ("e", "x", 0.9), ("f", "x", 0.0)], "c0 c2"),
        ([("d", "x", 1.0), ("d", "y", 0.96), ("e", "x", 0.9), ("f", "x", 0.0)], "c0 c1"),
        # Chunks without a document repeat none.
        ([(None, "x", 1.0), (None, "x", 0.99), ("e", "x", 0.98), ("f", "x", 0.0)], "c0 c1"),
        # Equal scores are spread, in the order of the hits.
        ([("d", "x", 0.5), ("d", "x", 0.5), ("e", "x", 0.5), ("e", "x", 0.5)], "c0 c2"),
        # If there is room for all, all stay.
        ([("d", "x", 1.0), ("d", "x", 0.0)], "c0 c1"),
    ],
)
def test_chunks_are_spread_if_scores_are_close(
    hits: list[tuple[str | None, str, float]], chosen: str
) -> None:
    """What was retrieved decides: a document that is far ahead fills the context.

    If this fails: a broad question gets one document, or a narrow one gets many.
    """
    ids, reasons = outcome(scored(*hits), k=2)
    assert " ".join(ids) == chosen
    assert set(reasons.values()) <= {"spread", "max_chunks"}
    if "c1" in reasons:
        assert reasons["c1"] == "spread"


def test_a_spread_is_switched_off() -> None:
    """A list and MMR choose by rank alone."""
    hits = scored(("d", "x", 1.0), ("d", "y", 0.99), ("e", "x", 0.98))
    chosen = select(hits, 2, {}, window=2).hits
    assert [each.hit.chunk.chunk_id for each in chosen] == ["c0", "c1"]


def test_hits_of_two_documents_alternate() -> None:
    """With equal scores each gives as many."""
    hits = scored(*[("de"[number >= 500], "x", 1.0) for number in range(1000)])
    chosen = spread(hits, 10)
    assert [each.hit.chunk.document_id for each in chosen] == ["d", "e"] * 5


def test_what_is_left_out_makes_room() -> None:
    """`max_chunks` counts what stays."""
    hits = found(*[("a", "d", text) for text in ("1", "1", "2", "3")])
    kept, reasons = outcome(hits, k=2)
    assert kept == ["c0", "c2"]
    assert reasons == {"c1": "duplicate of c0", "c3": "max_chunks"}


@pytest.mark.parametrize("count", [1, 30])
def test_as_many_stay_as_are_wanted(count: int) -> None:
    """`auto` is a number by then, and nothing more is taken away."""
    hits = found(*[("a", "d", str(n)) for n in range(count)])
    assert len(outcome(hits, k=count)[0]) == count
