"""`context_model`: a sentence about each chunk is embedded and indexed; its text stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.api.chunks import MAX_CONTEXT, Chunk, ChunkMetadata, embedded_text
from corral.api.errors import InvalidRequest, Unavailable
from corral.api.rag import RAGDocument
from corral.providers.base.config import RagSettings
from corral.providers.ingestion.contexts import MAX_BEFORE, MAX_BEGINNING, ContextCache
from corral.providers.ingestion.ingest import Ingester, InsertReport
from corral.providers.rag.frame import metadata_cost
from corral.providers.rag.query_syntax import Checker, parse
from corral.providers.text.analyzer import analyzer
from corral.providers.text.fields import chunk_terms

from ..rag.fake_library import ChattyLibrary, FakeLibrary

PASSAGES = ["The ranch grows hay.", "It is cut in June.", "The barn holds it all."]
CHUNKING = {
    "chunk_size_in_tokens": 8,
    "overlap_in_tokens": 0,
    "split_on": "==",
    "context_model": "tiny",
}


class Fails(ChattyLibrary):
    """A library with a language model that is away after some calls."""

    calls_left = 2

    async def complete(self, model: str, prompt: str) -> str:
        """Answer, or fail."""
        if not self.calls_left:
            raise Unavailable("the model is away")
        self.calls_left -= 1
        return await super().complete(model, prompt)


async def insert(
    library: FakeLibrary, home: Path | None, *passages: str, name: str = "a"
) -> InsertReport:
    """Insert a document of these passages, with the cache in a folder."""
    cache = ContextCache(home) if home else None
    ingester = Ingester(RagSettings(), metadata_cost, contexts=cache)
    text = "==".join(passages or PASSAGES)
    document = RAGDocument(document_id=name, content=text, metadata={"title": "Ranch"})
    try:
        return await ingester.insert(library, [document], "db")
    finally:
        if cache:
            await cache.close()


def stored(library: FakeLibrary) -> list[Chunk]:
    """Return the stored chunks in the order of the document."""
    chunks = library.engines["db"].chunks.values()
    return sorted(chunks, key=lambda c: (c.chunk_metadata and c.chunk_metadata.position) or 0)


async def test_the_sentence_is_embedded_and_the_text_stays() -> None:
    """The embedder gets the sentence before the text; the chunk has it in its record only."""
    library = ChattyLibrary("Hay of the Ranch.", chunking=CHUNKING)
    report = await insert(library, None)
    assert [chunk.content for chunk in stored(library)] == PASSAGES
    contexts = [c.chunk_metadata.context for c in stored(library) if c.chunk_metadata]
    assert contexts == ["Hay of the Ranch."] * 3
    assert library.embedders["words"].documents == [
        f"Hay of the Ranch.\n{passage}" for passage in PASSAGES
    ]
    [note] = report.notes
    assert note.startswith("tiny wrote sentences about chunks: 3 calls, ")


async def test_a_prompt_has_the_beginning_the_passage_before_and_the_passage() -> None:
    """It is bounded, whatever the document is."""
    library = ChattyLibrary("Hay.", chunking=CHUNKING)
    await insert(library, None)
    first, _, last = library.prompts
    assert "<passage>\nThe ranch grows hay.\n</passage>" in first
    assert "Ranch\nThe ranch grows hay." in last
    assert 'after "It is cut in June."' in last
    long = ChattyLibrary("Hay.", chunking={"context_model": "tiny"})
    await insert(long, None, "hay " * 5000)
    assert max(map(len, long.prompts)) < MAX_BEGINNING + MAX_BEFORE + 4000 + 500


def test_the_sentence_is_indexed_with_the_content() -> None:
    """Its words count as words of the content; a phrase is only looked for in the text itself."""
    record = ChunkMetadata(context="Hay of the ranch.")
    chunk = Chunk(content="It is cut in June.", metadata={"title": "x"}, chunk_metadata=record)
    words = analyzer("english")
    terms = chunk_terms(chunk, {"content": 1.0, "title": 5.0}, words).frequencies
    [hay], [june] = words.analyze("hay").words, words.analyze("June").words
    assert terms[hay] == terms[june] == 1.0
    assert embedded_text(chunk) == "Hay of the ranch.\nIt is cut in June."
    checker = Checker(parse('hay -ranch "in June"'), "english", ["content"])
    assert checker.refusal(chunk) is None
    assert Checker(parse('"hay of the ranch"'), "english", ["content"]).refusal(chunk)


async def test_sentences_are_cached(tmp_path: Path) -> None:
    """A document that is inserted again costs no call; a changed passage costs its own."""
    library = ChattyLibrary("Hay.", chunking=CHUNKING)
    await insert(library, tmp_path)
    assert len(library.prompts) == 3
    assert (await insert(library, tmp_path)).notes == []
    assert len(library.prompts) == 3
    await insert(library, tmp_path, *PASSAGES[:2], "The barn is red.")
    assert len(library.prompts) == 4


async def test_an_interrupted_insert_goes_on_where_it_was(tmp_path: Path) -> None:
    """If the model fails nothing is stored, and the sentences so far are not written again."""
    library = Fails("Hay.", chunking=CHUNKING)
    with pytest.raises(Unavailable):
        await insert(library, tmp_path)
    assert stored(library) == []
    library.calls_left = 1
    await insert(library, tmp_path)
    assert len(stored(library)) == len(library.prompts) == 3


@pytest.mark.parametrize(
    ("answer", "context"),
    [
        ("", None),
        (" \u200b\n", None),
        ("<think>hm</think>\n“About hay.”\n\nAnything else?", "About hay."),
        ("hay " * 5000, ("hay " * 75).strip()),
        ("x" * 5000, "x" * MAX_CONTEXT),
        ("a\0b\ud800", "ab\ufffd"),
    ],
)
async def test_any_answer_makes_a_chunk(answer: str, context: str | None, tmp_path: Path) -> None:
    """One line of at most `MAX_CONTEXT` characters; without one the chunk is as before."""
    library = ChattyLibrary(answer, chunking=CHUNKING)
    await insert(library, tmp_path, PASSAGES[0])
    [chunk] = stored(library)
    assert chunk.content == PASSAGES[0]
    assert chunk.chunk_metadata
    assert chunk.chunk_metadata.context == context


async def test_tenants_and_models_share_no_sentence(tmp_path: Path) -> None:
    """The time of an insert does not tell what another tenant stored."""
    for number, settings in enumerate([{}, {"tenant": "other"}]):
        library = ChattyLibrary("Hay.", chunking=CHUNKING, **settings)
        await insert(library, tmp_path)
        assert len(library.prompts) == 3, number
    library = ChattyLibrary("Hay.", chunking={**CHUNKING, "context_model": "large"})
    await insert(library, tmp_path)
    assert len(library.prompts) == 3


async def test_a_model_that_is_not_configured_is_refused() -> None:
    """The insert names the registration's field, and stores nothing."""
    library = ChattyLibrary("Hay.", chunking={**CHUNKING, "context_model": "gpt"})
    with pytest.raises(InvalidRequest, match="'gpt'") as caught:
        await insert(library, None)
    assert caught.value.field == "chunking.context_model"
    assert stored(library) == []
