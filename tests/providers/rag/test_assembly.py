"""The options of context assembly, from a document to an answer."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pytest

from corral.api.chunks import Chunk
from corral.api.rag import URL, RAGDocument, RAGQueryConfig, RAGQueryResult
from corral.providers.base.config import Limits
from corral.providers.rag.passages import MAX_SECTION_STEPS
from corral.providers.rag.tool import RagTool

from ..ingestion.test_parsing import pdf
from ..text.test_tokens import Words
from .fake_library import FakeLibrary
from .inserting import ingester

FIELDS = [
    "The ranch lies in the north.", "Cattle graze in May.", "Hay is cut in June.",
    "Barns are filled in July.", "Foxes steal eggs in August.", "Snow falls in winter.",
]  # fmt: skip
GUIDE = " ".join(FIELDS)


def library_of(*names: str, size: int = 8, overlap: int = 0, **settings: Any) -> FakeLibrary:
    """Return a library whose vector DBs split into chunks of about a sentence."""
    sizes = {"chunk_size_in_tokens": size, "overlap_in_tokens": overlap}
    return FakeLibrary(*names, chunking=sizes, search_mode="keyword", **settings)


async def insert(library: FakeLibrary, name: str = "db", /, **texts: str | URL) -> None:
    """Insert a document for each id and text."""
    documents = [RAGDocument(document_id=i, content=text) for i, text in texts.items()]
    await ingester().insert(library, documents, name)


async def ask(
    library: FakeLibrary, question: str, *names: str, limits: Limits | None = None, **config: Any
) -> RAGQueryResult:
    """Ask vector DBs, `db` where none is named."""
    tool = RagTool(library, limits=limits)
    return await tool.query(question, names or ("db",), RAGQueryConfig(**config))


def ids(library: FakeLibrary, name: str = "db") -> dict[str, str]:
    """Return chunk ids by text."""
    return {c.content: c.chunk_id for c in library.engines[name].chunks.values()}


# --- expand ----------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [0, 4])
@pytest.mark.parametrize(("steps", "start", "end"), [(0, 2, 3), (1, 1, 4), (2, 0, 5), (5, 0, 6)])
async def test_adjacent_chunks_join_a_hit(steps: int, start: int, end: int, overlap: int) -> None:
    """So many on each side, as far as the document goes; the text is the document's."""
    library = library_of(overlap=overlap)
    await insert(library, guide=GUIDE, other="Nothing else.")
    metadata = (await ask(library, "hay", expand=steps)).metadata
    assert metadata["chunks"] == [" ".join(FIELDS[start:end])]
    assert metadata["chunk_ids"] == [ids(library)[FIELDS[2]]]
    (included,) = metadata["included_chunks"]
    names = [ids(library)[text] for text in FIELDS[start:end] if text != FIELDS[2]]
    assert included.get("expanded", []) == names
    assert "merged" not in included


SECTIONED = """# Ranch

## Fields

Hay is cut in June. Barns are filled in July.

Oats are sown in March.

## Foxes

Foxes steal eggs in August.
"""


async def test_a_section_joins_a_hit() -> None:
    """The chunks under the same headings, in one item; the registration may ask for it, too.

    If this fails: small chunks answer without their section, or with another one.
    """
    library = library_of(expand="section", size=12)
    document = RAGDocument(document_id="guide", content=SECTIONED, mime_type="text/markdown")
    await ingester().insert(library, [document], "db")
    (text,) = (await ask(library, "sown march", max_chunks=1)).metadata["chunks"]
    assert "Hay is cut" in text
    assert text.endswith("Oats are sown in March.")
    assert "Foxes steal" not in text
    alone = (await ask(library, "sown march", max_chunks=1, expand=0)).metadata["chunks"]
    assert alone == ["Oats are sown in March."]


async def test_a_section_without_an_end_is_bounded() -> None:
    """A document without headings is one section: so many chunks on each side, not all of it.

    If this fails: one hit reads a whole book, chunk by chunk.
    """
    library = library_of()
    texts = [f"Field {number} lies in the north." for number in range(40)]
    texts[20] = "Hay is cut in June."
    await insert(library, book="\n\n".join(texts))
    (text,) = (await ask(library, "hay", expand="section")).metadata["chunks"]
    assert text == "\n\n".join(texts[20 - MAX_SECTION_STEPS : 21 + MAX_SECTION_STEPS])


async def test_hits_that_reach_each_other_are_merged() -> None:
    """One item, led by the better; the other is named with its rank and score, and not dropped."""
    library = library_of()
    await insert(library, guide=GUIDE)
    metadata = (await ask(library, "hay cut june eggs", expand=1)).metadata
    assert metadata["chunks"] == [" ".join(FIELDS[1:])]
    (included,) = metadata["included_chunks"]
    known = ids(library)
    assert included["chunk_id"] == known[FIELDS[2]]
    (merged,) = included["merged"]
    assert merged.pop("score") < included["score"]
    assert merged == {"chunk_id": known[FIELDS[4]], "rank": 2}
    assert included["expanded"] == [known[FIELDS[n]] for n in (1, 3, 5)]
    assert metadata["dropped"] == 0


async def test_neighbors_give_way_to_the_budget() -> None:
    """A passage that does not fit leaves its hits, without neighbors, in its place."""
    library = library_of()
    await insert(library, guide=GUIDE)
    alone = (await ask(library, "hay eggs")).metadata
    wide = (
        await ask(library, "hay eggs", expand=1, max_tokens_in_context=alone["token_count"])
    ).metadata
    assert wide["chunks"] == alone["chunks"]
    assert sorted(wide["chunks"]) == [FIELDS[4], FIELDS[2]]
    tight = alone["token_count"] - 1
    less = (await ask(library, "hay eggs", expand=1, max_tokens_in_context=tight)).metadata
    assert len(less["chunks"]) == 1
    assert less["dropped_by_reason"] == {"budget": 1}


@pytest.mark.parametrize("missing", [1, 2, 4, 6])
async def test_a_hit_stays_where_its_neighbors_do_not_fit(missing: int) -> None:
    """However few tokens are missing."""
    library = library_of()
    await insert(library, guide=GUIDE)
    cost = (await ask(library, "hay", expand=1)).metadata["token_count"]
    assert (
        cost
        == (await ask(library, "hay", expand=1, max_tokens_in_context=cost)).metadata["token_count"]
    )
    tight = (await ask(library, "hay", expand=1, max_tokens_in_context=cost - missing)).metadata
    assert tight["chunks"] == [FIELDS[2]]
    assert "expanded" not in tight["included_chunks"][0]


async def test_a_filter_holds_for_neighbors() -> None:
    """Where chunks of one document differ in who may see them, expanding shows nothing more.

    If this fails: `expand` is a hole in every filter that stands for access.
    """
    library = library_of()
    await insert(library, guide=GUIDE)
    for chunk in library.engines["db"].chunks.values():
        chunk.metadata["public"] = chunk.content != FIELDS[1]
    allowed = {"type": "eq", "key": "public", "value": True}
    metadata = (await ask(library, "hay", expand=2, filters=allowed)).metadata
    assert metadata["chunks"] == [" ".join(FIELDS[2:5])]


async def test_chunks_without_a_record_have_no_neighbors() -> None:
    """Nor do those whose neighbor is gone; they are shown as they are."""
    library = library_of()
    await insert(library, guide=GUIDE)
    index = library.indexes["db"]
    plain = Chunk(content="Hay here.", metadata={"document_id": "guide"}, embedding=[1.0] * 16)
    await index.add_chunks([plain])
    await index.delete_chunks([ids(library)[FIELDS[3]]])
    metadata = (await ask(library, "hay", expand=2)).metadata
    assert sorted(metadata["chunks"]) == ["Hay here.", " ".join(FIELDS[:3])]


async def test_neighbors_are_fetched_once_a_step() -> None:
    """After the hits, their neighbors, all together, then those of these; nothing comes twice."""
    library = library_of()
    await insert(library, guide=GUIDE)
    engine = library.engines["db"]
    asked: list[list[str]] = []
    get = engine.get

    async def watched(chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        asked.append(list(chunk_ids))
        return await get(chunk_ids, include_embeddings)

    engine.get = watched  # type: ignore[method-assign]  # to see what is read
    await ask(library, "hay eggs", expand=3)
    texts = {chunk_id: FIELDS.index(text) for text, chunk_id in ids(library).items()}
    assert [sorted(texts[chunk_id] for chunk_id in step) for step in asked] == [
        [2, 4],
        [1, 3, 5],
        [0],
    ]


# --- duplicates and caps ---------------------------------------------------------------------


async def test_duplicates_are_reported() -> None:
    """How many, which, and of what."""
    library = library_of()
    await insert(library, a="hay is dry", b="hay is dry", c="hay")
    metadata = (await ask(library, "dry hay")).metadata
    assert metadata["document_ids"] == ["c", "a"] or metadata["document_ids"] == ["a", "c"]
    assert metadata["dropped"] == 1
    assert metadata["dropped_by_reason"] == {"duplicate": 1}
    (gone,) = metadata["dropped_chunks"]
    known = {c.document_id: c.chunk_id for c in library.engines["db"].chunks.values()}
    kept, lost = ("a", "b") if "a" in metadata["document_ids"] else ("b", "a")
    assert {key: gone[key] for key in ("chunk_id", "document_id", "vector_db_id", "reason")} == {
        "chunk_id": known[lost], "document_id": lost, "vector_db_id": "db", "reason": "duplicate",
    }  # fmt: skip
    assert gone["duplicate_of"] == {
        "chunk_id": known[kept], "document_id": kept, "vector_db_id": "db",
    }  # fmt: skip


async def test_passages_that_become_equal_are_one() -> None:
    """Two copies of a document, found in different places, become the same text."""
    library = library_of()
    await insert(library, a=" ".join(FIELDS[1:3]), b=" ".join(FIELDS[1:3]))
    shown = (await ask(library, "hay cattle", expand=1)).metadata
    assert shown["chunks"] == [" ".join(FIELDS[1:3])]
    assert shown["dropped"] == len(shown["dropped_chunks"]) > 0
    assert set(shown["dropped_by_reason"]) == {"duplicate"}
    both = (await ask(library, "hay cattle", expand=1, deduplicate=False)).metadata
    assert both["chunks"] == [" ".join(FIELDS[1:3])] * 2


async def test_documents_alternate_if_they_are_about_as_good() -> None:
    """With equal scores one document does not fill the context; the answer says what gave way."""
    library = library_of()
    await insert(library, a=" ".join(f"Hay hay hay {n}." for n in range(5)), b="Some hay here.")
    metadata = (await ask(library, "hay", max_chunks=2)).metadata
    assert sorted(metadata["document_ids"]) == ["a", "b"]
    assert metadata["dropped_by_reason"] == {"spread": 1, "max_chunks": 3}
    both = {"rerank": {"type": "mmr", "relevance": "bm25"}}, {"cutoff": "gap"}
    for others in both:
        metadata = (await ask(library, "hay", max_chunks=2, **others)).metadata
        assert "spread" not in metadata["dropped_by_reason"]


async def test_others_take_the_place_of_a_capped_document() -> None:
    """More is found than wanted, so that a cap does not empty the context.

    If this fails: five planted texts of one document still keep all others out.
    """
    library = library_of()
    await insert(
        library, planted=" ".join(f"Hay cattle hay {n}." for n in range(5)), real="Some hay here."
    )
    assert len(library.engines["db"].chunks) == 6
    assert set((await ask(library, "hay cattle", max_chunks=2)).metadata["document_ids"]) == {
        "planted"
    }
    capped = (await ask(library, "hay cattle", max_chunks=2, max_chunks_per_document=1)).metadata
    assert sorted(capped["document_ids"]) == ["planted", "real"]
    assert capped["dropped_by_reason"] == {"document_cap": 4}
    few = Limits().model_copy(update={"max_k": 2})
    narrow = (
        await ask(library, "hay cattle", max_chunks=2, max_chunks_per_document=1, limits=few)
    ).metadata
    assert narrow["document_ids"] == ["planted"], "more was found than the operator allows"


@pytest.mark.parametrize("mode", ["keyword", "hybrid", "vector"])
@pytest.mark.parametrize("copies", [6, 60])
async def test_others_take_the_places_of_duplicates(mode: str, copies: int) -> None:
    """Copies of one text and six others, five chunks wanted: five different texts come back.

    If this fails: a text that is stored often empties the context.
    """
    library = library_of()
    await insert(library, **{f"copy{n}": "Hay hay hay." for n in range(copies)})
    await insert(library, **{f"other{n}": f"Hay number {n}." for n in range(6)})
    metadata = (await ask(library, "hay", mode=mode)).metadata
    assert len(set(metadata["chunks"])) == len(metadata["chunks"]) == 5
    assert set(metadata["dropped_by_reason"]) <= {"duplicate"}
    few = (await ask(library, "hay", mode=mode, limits=Limits(max_k=5))).metadata
    assert len(few["chunks"]) + few["dropped"] == 5, "more was found than the operator allows"


async def test_auto_and_several_vector_dbs_fill_the_places_too() -> None:
    """`auto` of 25 chunks is five; the same texts in two vector DBs are there once."""
    library = library_of("a", "b")
    for name in "ab":
        await insert(library, name, **{f"copy{n}": "Hay hay hay." for n in range(15)})
        await insert(library, name, **{f"other{n}": f"Hay number {n}." for n in range(10)})
    assert len((await ask(library, "hay", "a", max_chunks="auto")).metadata["chunks"]) == 5
    both = (await ask(library, "hay", "a", "b", max_chunks=7)).metadata["chunks"]
    assert len(set(both)) == len(both) == 7
    capped = (await ask(library, "hay", "a", max_chunks="auto", max_chunks_per_document=1)).metadata
    assert len(set(capped["document_ids"])) == 5


async def test_without_duplicates_one_search_is_enough() -> None:
    """Nothing is searched a second time, however few there are."""
    library = library_of()
    await insert(library, guide=GUIDE)
    await ask(library, "hay in may", max_chunks=5)
    await insert(library, copy="Hay is cut in June.")
    assert len(library.engines["db"].queries) == 1
    await ask(library, "hay in may", max_chunks=20)
    assert len(library.engines["db"].queries) == 2


# --- citations -------------------------------------------------------------------------------


async def test_a_pdf_is_cited_by_page_and_characters() -> None:
    """What the marker stands for: the document, its source, the page, the very characters."""
    library = library_of()
    data = base64.b64encode(pdf("", "Hay is dry.", "Foxes steal eggs.")).decode()
    await insert(library, guide=URL(uri=f"data:application/pdf;base64,{data}"))
    (chunk_id,) = [c for text, c in ids(library).items() if "Foxes" in text]
    result = await ask(library, "foxes", citations=True)
    assert result.content is not None
    assert result.content[1].text.startswith("[1] Source: guide, page 3\nResult 1\nContent: Foxes")
    assert result.content[-1].text.endswith("Cite them by their markers, such as [1].\n")
    assert result.metadata["citations"] == [
        {
            "marker": "[1]", "vector_db_id": "db", "document_id": "guide",
            "title": "guide", "chunk_ids": [chunk_id], "char_start": 13, "char_end": 30, "page": 3,
        }
    ]  # fmt: skip


async def test_a_chunk_over_several_pages_is_cited_by_all_of_them() -> None:
    """From the page on which it begins to the one on which it ends, neighbors included.

    If this fails: a sentence of page 3 is looked for on page 1.
    """
    data = base64.b64encode(pdf("Cattle graze.", "Hay is dry.", "Foxes steal eggs.")).decode()
    uri = URL(uri=f"data:application/pdf;base64,{data}")
    whole, split = library_of(size=100), library_of()
    for library, expand in ((whole, 0), (split, 2)):
        await insert(library, guide=uri)
        result = await ask(library, "foxes", citations=True, expand=expand)
        assert result.content is not None
        assert result.content[1].text.startswith("[1] Source: guide, pages 1-3\n")
        (cited,) = result.metadata["citations"]
        assert (cited["page"], cited["page_end"]) == (1, 3)
    only = (await ask(split, "foxes", citations=True)).metadata["citations"][0]
    assert only["page"] == 3
    assert "page_end" not in only


async def test_a_citation_names_lines_and_headings() -> None:
    """The line says where to look, and the metadata the same; the content repeats no heading.

    If this fails: a reader searches a long file for the sentence that a model cites.
    """
    text = "# Farm\n\nIntro.\n\n## Hay\n\nHay is dry.\n\n## Foxes\n\nThey steal eggs.\n"
    library = library_of()
    document = RAGDocument(document_id="guide", content=text, mime_type="text/markdown")
    await ingester().insert(library, [document], "db")
    result = await ask(library, "steal", citations=True)
    assert result.content is not None
    first = result.content[1].text
    assert first.startswith("[1] Source: Farm, lines 9-11, Foxes\nResult 1\n")
    assert first.count("Foxes") == 2
    assert first.count("Farm") <= 2
    (cited,) = result.metadata["citations"]
    assert (cited["line_start"], cited["line_end"]) == (9, 11)
    assert cited["heading_path"] == ["Farm", "Foxes"]


async def test_a_passage_is_cited_as_a_whole() -> None:
    """Its chunks in their order and the characters from the first to the last."""
    library = library_of()
    await insert(library, guide=GUIDE)
    metadata = (await ask(library, "hay", expand=1, citations=True)).metadata
    (cited,) = metadata["citations"]
    assert GUIDE[cited["char_start"] : cited["char_end"]] == metadata["chunks"][0]
    assert cited["chunk_ids"] == [ids(library)[FIELDS[n]] for n in (1, 2, 3)]
    assert "page" not in cited
    assert "source" not in cited


# --- tokenizer, weights, orders --------------------------------------------------------------


async def test_the_budget_can_be_counted_by_the_embedder() -> None:
    """To the token of its own tokenizer."""
    library = library_of()
    library.embedders["words"].tokenizer = Words()
    await insert(library, guide=GUIDE)
    result = await ask(library, "hay eggs", tokenizer="embedder")
    assert result.content is not None
    cost = sum(len(item.text.split()) for item in result.content)
    assert result.metadata["token_count"] == cost
    tight = await ask(library, "hay eggs", tokenizer="embedder", max_tokens_in_context=cost - 1)
    assert len(tight.metadata["chunks"]) == 1


@pytest.mark.parametrize(
    ("order", "expected"), [("score", [0, 1, 2]), ("edges", [0, 2, 1]), ("document", None)]
)
async def test_the_order_is_the_requests(order: str, expected: list[int] | None) -> None:
    """The lists in the metadata are in the order of the content, and so are the numbers."""
    library = library_of()
    await insert(library, guide=GUIDE)
    best = (await ask(library, "in the hay june")).metadata["chunks"][:3]
    result = await ask(library, "in the hay june", max_chunks=3, order=order)
    ordered = sorted(best, key=GUIDE.index) if expected is None else [best[n] for n in expected]
    assert result.metadata["chunks"] == ordered
    assert result.content is not None
    for number, text in enumerate(ordered, 1):
        assert result.content[number].text.startswith(f"Result {number}\nContent: {text}\n")
    ranks = [each["rank"] for each in result.metadata["included_chunks"]]
    assert ranks == [best.index(text) + 1 for text in ordered]
