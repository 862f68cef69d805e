"""What was embedded once is not embedded again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from corral.api.embedder import Embedder, ModelInfo
from corral.api.errors import Unavailable
from corral.bench.data.embeddings import BATCH, EmbeddingCache


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


async def embed(
    cache: EmbeddingCache, embedder: Embedder, texts: list[str], kind: str = "document"
) -> NDArray[np.float32]:
    """Return the embeddings of texts."""
    return await cache.embed(embedder, "query" if kind == "query" else "document", texts)


async def test_texts_are_embedded_once(tmp_path: Path) -> None:
    """Equal texts are embedded once, now and by a later process; the rest is kept in order."""
    model = Counting()
    cache = EmbeddingCache(tmp_path / "bench" / "embeddings.db")
    first = await embed(cache, model, ["a", "bbb", "a"])
    assert model.texts == ["a", "bbb"]
    cache.close()
    cache = EmbeddingCache(tmp_path / "bench" / "embeddings.db")
    again = await embed(cache, model, ["bbb", "cc", "a"])
    assert model.texts == ["a", "bbb", "cc"]
    assert np.array_equal(again[[2, 0, 2]], first)
    assert np.linalg.norm(again, axis=1) == pytest.approx(np.ones(3))
    assert again.dtype == np.float32
    assert (await embed(cache, model, [])).shape == (0, 4)
    cache.close()


async def test_models_and_kinds_are_kept_apart(tmp_path: Path) -> None:
    """Another model, dimension or trait, and the same text as a question, are other embeddings."""
    cache = EmbeddingCache(tmp_path / "embeddings.db")
    await embed(cache, Counting(), ["a"])
    other = Counting()
    other.traits = {"precision": "int8"}
    for model in (Counting("b"), Counting(dimension=8), other):
        assert (await embed(cache, model, ["a"])).shape[1] == model.info.dimension
        assert model.texts == ["a"]
    question = await embed(cache, Counting(), ["a"], "query")
    assert np.array_equal(question, -await embed(cache, Counting(), ["a"]))
    cache.close()


async def test_an_interruption_loses_one_batch_at_most(tmp_path: Path) -> None:
    """What was embedded before the model failed is there for the next run."""
    cache = EmbeddingCache(tmp_path / "embeddings.db")
    texts = ["x" * n for n in range(1, 3 * BATCH)]
    done: list[int] = []
    with pytest.raises(Unavailable):
        await cache.embed(Counting(most=2 * BATCH), "document", texts, done.append)
    assert done == [BATCH, BATCH]
    assert cache.missing(Counting(), "document", texts) == BATCH - 1
    model = Counting()
    await embed(cache, model, texts)
    assert len(model.texts) == BATCH - 1
    cache.close()
