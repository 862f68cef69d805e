"""The metadata of a context: its chunks, the dropped hits and their reasons, the citations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from corral.api.chunks import Chunk
from corral.api.document_names import end_of, filename_of, source_of, title_of, web_address
from corral.api.rag import RAGQueryConfig
from corral.providers.rag.frame import marker
from corral.providers.rag.passages import Passage, repeated, span
from corral.providers.rag.selection import ContextHit, Dropped, Selection


def report(
    selection: Selection, shown: Sequence[Passage], contents: list[str], config: RAGQueryConfig
) -> dict[str, Any]:
    """Return the metadata of a context as JSON values; the token counts are added later.

    Args:
        shown: The passages of the context, in order.
        contents: The text of each passage in the context.
        config: `explain` and `include_embeddings` add fields.
    """
    best = [passage.best for passage in shown]
    dropped = _dropped(selection, shown)
    metadata: dict[str, Any] = {
        "document_ids": [each.hit.chunk.document_id for each in best],
        "filenames": [filename_of(each.hit.chunk) for each in best],
        "chunks": contents,
        "scores": [each.hit.score for each in best],
        "vector_db_ids": [each.vector_db_id for each in best],
        "chunk_ids": [each.hit.chunk.chunk_id for each in best],
        "included_chunks": [_included(passage, selection) for passage in shown],
        "dropped": len(dropped),
        "dropped_by_reason": dict(Counter(each.reason for each in dropped)),
        "dropped_chunks": [_left_out(each) for each in dropped],
    }
    if config.explain:
        metadata["explanations"] = [_explain(each) for each in best]
    if config.include_embeddings:
        metadata["embeddings"] = [each.hit.chunk.embedding for each in best]
    return metadata


def citations(
    shown: Sequence[Passage], contents: Sequence[str], first: int = 1
) -> list[dict[str, Any]]:
    """Return the source of each marker, in order; a field without a value is absent.

    `title` is the document's name, `source` its origin, `url` its address if it is on the web.
    `char_start` and `char_end` are the item's characters in the parsed document, `page` and
    `line_start` their beginning, `page_end` and `line_end` their end if nothing was cut (`page_end`
    only if it differs from `page`), as are the rows of a sheet and the cells of a notebook;
    `heading_path` has the headings above their beginning;
    `chunk_ids` are in the order of the document.
    """
    return [
        {
            "marker": marker(index),
            "vector_db_id": passage.best.vector_db_id,
            **_names(passage.best.hit.chunk),
            "chunk_ids": [chunk.chunk_id for chunk in passage.chunks],
            **place(passage, content),
        }
        for index, (passage, content) in enumerate(zip(shown, contents, strict=True), first)
    ]


def place(passage: Passage, content: str | None = None) -> dict[str, Any]:
    """Return the place of a passage in its document; a field without a value is absent.

    Args:
        content: The part of its text in the context; None for the whole text.
    """
    first, last = span(passage.chunks[0]), span(passage.chunks[-1])
    cut = content is not None and len(content) < len(passage.text)
    recorded = _recorded(passage, cut)
    if first is None or last is None:
        return recorded
    shown = max(len(content or "") - repeated(passage.chunks[0]), 0)
    end = first.start + shown if cut else last.end
    return {"char_start": first.start, "char_end": end, **recorded}


def _recorded(passage: Passage, cut: bool) -> dict[str, Any]:
    """Return the pages, lines and headings of a passage; the end only if it was not cut."""
    begins, ends = passage.chunks[0].chunk_metadata, passage.chunks[-1].chunk_metadata
    page, page_end = _pages(passage)
    return _present(
        page=page,
        page_end=None if cut else page_end,
        line_start=begins.line_start if begins else None,
        row_start=begins.row_start if begins else None,
        cell_start=begins.cell_start if begins else None,
        heading_path=begins.heading_path if begins else None,
        **({} if cut or not begins or not ends else end_of(begins, ends)),
    )


def _pages(passage: Passage) -> tuple[int | None, int | None]:
    """Return the first page of a passage, and the last page if it differs."""
    begins, ends = passage.chunks[0].chunk_metadata, passage.chunks[-1].chunk_metadata
    first = begins.page if begins else None
    last = (ends.page_end or ends.page) if ends else None
    return first, None if last == first else last


def _names(chunk: Chunk) -> dict[str, Any]:
    return _present(
        document_id=chunk.document_id,
        title=title_of(chunk),
        source=source_of(chunk),
        url=web_address(chunk),
    )


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _dropped(selection: Selection, shown: Sequence[Passage]) -> list[Dropped]:
    """Return the hits that are not in the context, best first."""
    there = {(p.best.vector_db_id, chunk.chunk_id) for p in shown for chunk in p.chunks}
    reasons = {each.hit.key: each for each in selection.dropped}
    hits = [*selection.hits, *(each.hit for each in selection.dropped)]
    absent = {each.key: each for each in hits if each.key not in there}
    return [
        reasons.get(key) or Dropped(absent[key], "budget")
        for key in sorted(absent, key=selection.ranks.__getitem__)
    ]


def _left_out(dropped: Dropped) -> dict[str, Any]:
    fields = {**_identity(dropped.hit), "score": dropped.hit.hit.score, "reason": dropped.reason}
    first = dropped.duplicate_of
    return fields if first is None else {**fields, "duplicate_of": _identity(first)}


def _included(passage: Passage, selection: Selection) -> dict[str, Any]:
    """Return the ranks and scores of an item; `merged` and `expanded` if it has several chunks."""
    best = passage.best
    hits = {each.key[1] for each in passage.hits}
    fields = {
        **_identity(best),
        "rank": selection.ranks[best.key],
        "score": best.hit.score,
        "vector_db_rank": best.rank,
        "vector_db_score": _own_score(best),
    }
    if len(passage.hits) > 1:
        fields["merged"] = [
            {"chunk_id": e.key[1], "rank": selection.ranks[e.key], "score": e.hit.score}
            for e in passage.hits[1:]
        ]
    if len(passage.chunks) > len(passage.hits):
        fields["expanded"] = [c.chunk_id for c in passage.chunks if c.chunk_id not in hits]
    return fields


def _identity(each: ContextHit) -> dict[str, Any]:
    chunk = each.hit.chunk
    return {
        "chunk_id": chunk.chunk_id,
        "document_id": chunk.document_id,
        "vector_db_id": each.vector_db_id,
    }


def _own_score(each: ContextHit) -> float:
    return each.hit.score if each.vector_db_score is None else each.vector_db_score


_ALWAYS = ("legs", "contributions", "matched_terms")


def _explain(each: ContextHit) -> dict[str, Any]:
    """Return the explanation of a hit, as JSON values."""
    fields = asdict(each.hit.explanation)
    fields["matched_words"] = list(fields["matched_words"])
    return {
        **{name: value for name, value in fields.items() if value or name in _ALWAYS},
        "matched_terms": list(each.hit.explanation.matched_terms),
        "vector_db_rank": each.rank,
        "vector_db_score": _own_score(each),
    }
