"""Duplicates and too many chunks of a document stay out of a context, and the answer says which."""

from __future__ import annotations

import pytest

from corral.api.chunks import Chunk
from corral.api.fusion import Explanation
from corral.api.hits import Hit
from corral.providers.rag.selection import ContextHit, select

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
