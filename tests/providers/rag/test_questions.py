"""The cache of question embeddings: its entries, its limit, and what they are shared by."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.embedder import Embedder, ModelInfo
from corral.api.errors import ProviderError
from corral.providers.rag.question_cache import QuestionCache
from corral.providers.rag.search import embed_question


class Counting(Embedder):
    """Counts what it is asked, and answers when it is told to."""

    info = ModelInfo(model="counting", dimension=2)

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.began, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()

    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return nothing in particular."""
        return np.zeros((len(texts), 2), np.float32)

    async def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return a row of a batch; or fail, as a service does that is not there."""
        self.asked.append(text)
        self.began.set()
        await self.go_on.wait()
        if text == "fail":
            raise ProviderError("not there")
        row: NDArray[np.float32] = np.full((16, 2), len(text), np.float32)[3]
        return row


async def test_a_question_is_embedded_once() -> None:
    """Asked three times at once, and again later, it is embedded once.

    If this fails: the page embeds each question for each of its columns.
    """
    embedder = Counting()
    found = await asyncio.gather(*(embed_question(embedder, "acme", "sheep") for _ in range(3)))
    found.append(await embed_question(embedder, "acme", "sheep"))
    assert [each.tolist() for each in found] == [[5, 5]] * 4
    assert embedder.asked == ["sheep"]


async def test_what_is_remembered_cannot_be_changed() -> None:
    """All requests for a question share one array, so it is read-only; it is a copy, which does not
    keep in memory the batch that it was computed in."""
    found = await embed_question(Counting(), "acme", "sheep")
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1
    assert found.base is None


async def test_tenants_do_not_share_questions() -> None:
    """Two tenants with one question are two questions.

    If this fails: the time of an answer tells a tenant which questions another one has asked.
    """
    embedder = Counting()
    await embed_question(embedder, "acme", "sheep")
    await embed_question(embedder, "other", "sheep")
    assert embedder.asked == ["sheep", "sheep"]


async def test_models_do_not_share_questions() -> None:
    """Each model has its own embedding of a text."""
    one, other = Counting(), Counting()
    await embed_question(one, "acme", "sheep")
    await embed_question(other, "acme", "sheep")
    assert (one.asked, other.asked) == (["sheep"], ["sheep"])


async def test_who_asks_first_may_leave() -> None:
    """If the first request is cancelled, the others for the same question are still answered."""
    embedder = Counting()
    embedder.go_on.clear()
    first = asyncio.create_task(embed_question(embedder, "acme", "sheep"))
    second = asyncio.create_task(embed_question(embedder, "acme", "sheep"))
    await embedder.began.wait()
    first.cancel()
    await asyncio.sleep(0)
    embedder.go_on.set()
    assert (await second).tolist() == [5, 5]
    assert first.cancelled()
    assert embedder.asked == ["sheep"]


async def test_failures_are_not_remembered() -> None:
    """A question that could not be embedded is tried again when it is asked again."""
    embedder = Counting()
    for _ in range(2):
        with pytest.raises(ProviderError, match="not there"):
            await embed_question(embedder, "acme", "fail")
    assert embedder.asked == ["fail", "fail"]


async def test_the_latest_are_remembered() -> None:
    """The cache is bounded: the least recently used embedding is dropped first."""
    cache, embedder = QuestionCache(max_questions=2), Counting()
    for text in ("a", "b", "a", "c", "a", "b"):
        await cache.of(text.encode(), partial(embedder.embed_query, text))
    assert embedder.asked == ["a", "b", "c", "b"]
