"""Questions come out as a context."""

from __future__ import annotations

from typing import Any

from corral.api.rag import RAGQueryConfig
from corral.providers.rag.tool import RagTool

from .fake_library import FakeLibrary
from .inserting import document, ingester, insert


async def ask(
    library: FakeLibrary, content: str, *names: str, **config: Any
) -> tuple[list[str] | None, dict[str, Any]]:
    """Return the texts and the metadata of an answer."""
    result = await RagTool(library).query(content, names or ("db",), RAGQueryConfig(**config))
    texts = None if result.content is None else [item.text for item in result.content]
    return texts, result.metadata


async def test_nothing_found_is_null_and_empty() -> None:
    """An empty vector DB, a threshold that nothing reaches: only the confidence is told."""
    library = FakeLibrary()
    content, metadata = await ask(library, "hay")
    assert (content, list(metadata)) == (None, ["confidence"])
    await insert(library, document("a", "grass"))
    content, metadata = await ask(library, "hay", mode="vector", score_threshold=1.0)
    assert (content, list(metadata)) == (None, ["confidence"])


async def test_a_registration_is_read_once_for_a_question() -> None:
    """With every option that a registration can decide, of each vector DB.

    If this fails: a step below the plan asks the library for the registration again.
    """
    library = FakeLibrary("a", "b", expand=1, max_chunks_per_document=1)
    for name in ("a", "b"):
        texts = [document(f"{name}{n}", "hay") for n in range(9)]
        await ingester().insert(library, texts, name)
    library.reads.clear()
    await ask(library, "hay", "a", "b", max_chunks="auto", rerank={"type": "mmr"})
    assert sorted(library.reads) == ["a", "b"]
    assert library.embedders["words"].queries == ["hay"]


async def test_the_configuration_reaches_the_search_and_the_context() -> None:
    """Mode, filters, explanations, embeddings, tokenizer and budget."""
    library = FakeLibrary()
    await insert(
        library,
        document("a", "hay one", metadata={"farm": 1}),
        document("b", "hay two", metadata={"farm": 2}),
    )
    _, metadata = await ask(
        library,
        "hay",
        mode="keyword",
        filters={"type": "eq", "key": "farm", "value": 2},
        explain=True,
        include_embeddings=True,
        tokenizer="bytes",
        max_tokens_in_context=1000,
    )
    assert metadata["document_ids"] == ["b"]
    assert list(metadata["explanations"][0]["legs"]) == ["keyword"]
    assert len(metadata["embeddings"][0]) == 16
    assert 300 < metadata["token_count"] <= metadata["max_tokens"] == 1000
