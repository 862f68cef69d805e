"""What was embedded once is not embedded again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.embedder import Embedder, ModelInfo
from corral.api.errors import Unavailable
from corral.bench.data.embedded import BATCH, Embedding
from corral.bench.data.judged import JudgedSet
from corral.providers.ingestion.cache import EmbeddingCache


class Counting(Embedder):
    """Embeds a text as its length in one place, unnormalized; counts texts, fails after `most`."""

    def __init__(self, model: str = "counting", most: int = 10**9, dimension: int = 4) -> None:
        self.info = ModelInfo(model=model, dimension=dimension)
        self.texts: list[str] = []
        self._most = most

    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if len(self.texts) + len(texts) > self._most:
            raise Unavailable("the model is gone")
        self.texts += texts
        rows = np.ones((len(texts), self.info.dimension), np.float32)
        rows[:, 0] = [len(text) for text in texts]
        return rows

    async def embed_query(self, text: str) -> NDArray[np.float32]:
        rows = await self.embed_documents([text])
        row: NDArray[np.float32] = -rows[0]
        return row


@asynccontextmanager
async def opened(folder: Path, embedder: Embedder) -> AsyncIterator[Embedding]:
    """Open a model with the cache in a folder."""
    cache = EmbeddingCache(folder, 100)
    yield Embedding(embedder, cache)
    await cache.close()


def judged(*texts: str) -> JudgedSet:
    """Return a set of documents, the first of which is its only question as well."""
    documents = {f"d{n}": text for n, text in enumerate(texts)}
    return JudgedSet("set", documents, {"q": texts[0]}, {"q": {"d0": 1}})


async def test_texts_are_embedded_once(tmp_path: Path) -> None:
    """Equal texts are embedded once, now and by a later process; the rest is kept in order."""
    model = Counting()
    async with opened(tmp_path, model) as embedding:
        first = await embedding.embed(judged("a", "bbb", "a"))
    assert model.texts == ["a", "bbb", "a"], "the last one as a question"
    async with opened(tmp_path, model) as embedding:
        again = (await embedding.embed(judged("bbb", "cc", "a"))).documents
    assert model.texts[3:] == ["cc", "bbb"]
    assert np.array_equal(again[[2, 0, 2]], first.documents)
    assert np.linalg.norm(again, axis=1) == pytest.approx(np.ones(3))
    assert again.dtype == np.float32


async def test_models_and_kinds_are_kept_apart(tmp_path: Path) -> None:
    """Another model, dimension or trait, and the same text as a question, are other embeddings."""
    other = Counting()
    other.traits = {"precision": "int8"}
    for model in (Counting(), Counting("b"), Counting(dimension=8), other):
        async with opened(tmp_path, model) as embedding:
            made = await embedding.embed(judged("a"))
        assert made.documents.shape == (1, model.info.dimension)
        assert np.array_equal(made.queries, -made.documents)
        assert model.texts == ["a", "a"]


async def test_an_interruption_loses_one_batch_at_most(tmp_path: Path) -> None:
    """What was embedded before the model failed is there for the next run."""
    texts = ["x" * n for n in range(1, 3 * BATCH)]
    done: list[int] = []
    async with opened(tmp_path, Counting(most=2 * BATCH)) as embedding:
        with pytest.raises(Unavailable):
            await embedding.embed(judged(*texts), done.append)
    assert done == [BATCH, BATCH]
    model = Counting()
    async with opened(tmp_path, model) as embedding:
        await embedding.embed(judged(*texts), done.append)
    assert len(model.texts) == BATCH - 1 + 1, "what was lost, and the question"
    assert sum(done[2:]) == len(texts) + 1
