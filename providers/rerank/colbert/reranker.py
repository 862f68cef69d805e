"""inline::colbert: serves the configured models; each is loaded on first use."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from corral.api.hits import Hit
from corral.api.reranker import Reranker
from corral.providers.models.loading import run_in
from corral.providers.models.onnx import check_folder, open_folder
from corral.providers.rerank.colbert.cache import (
    TokenCache,
    TokenEmbeddings,
    key_of,
    packed,
    unpacked,
)
from corral.providers.rerank.colbert.config import ColbertConfig, ColbertModel
from corral.providers.rerank.local import LocalRerankProvider
from corral.providers.rerank.rescoring import rescored

if TYPE_CHECKING:
    from corral.providers.rerank.colbert.model import Model

PREPARED = 64
"""Number of texts to prepare before caching them; an interruption loses at most this many."""


def create(
    provider_id: str, config: ColbertConfig, home: Path
) -> LocalRerankProvider[ColbertModel]:
    """Return the provider. No model is loaded yet."""
    cache = TokenCache(home, config.cache_mib * 1024**2) if config.cache_mib else None

    def load(source: ColbertModel, worker: ThreadPoolExecutor) -> ColbertReranker:
        # Imported in the worker: onnxruntime takes 0.1 s, which would block the event loop.
        from corral.providers.rerank.colbert.model import Model

        model = Model(source, open_folder(source, home), config.threads)
        return ColbertReranker(source.model, model, worker, cache, config.batch_size)

    close = cache.close if cache else None
    return LocalRerankProvider(provider_id, config.models, load, check_folder, close)


class ColbertReranker(Reranker):
    """Re-ranks with a late-interaction model, by the chunks' `content` only."""

    def __init__(
        self,
        name: str,
        model: Model,
        worker: ThreadPoolExecutor,
        cache: TokenCache | None,
        batch_size: int,
    ) -> None:
        self._name, self._model, self._worker = name, model, worker
        self._cache, self._batch_size = cache, batch_size

    async def rerank(
        self,
        query: str,
        hits: Sequence[Hit],
        k: int,
        *,
        embedding: NDArray[np.float32] | None = None,
        tenant: str = "",
    ) -> list[Hit]:
        """Return the k best hits by late interaction, ties by chunk_id; the embedding is not used.

        Adds `model` and `model_score` to each explanation. The score maps `model_score`, the mean
        cosine in [-1, 1], to [0, 1].
        """
        from corral.providers.rerank.colbert.model import score

        question = await run_in(self._worker, self._model.embed_query, query)
        texts = await self._token_embeddings([hit.chunk.content for hit in hits], tenant)
        raws = await asyncio.to_thread(lambda: [score(question, text) for text in texts])
        ranked = sorted(
            zip(hits, raws, strict=True), key=lambda each: (-each[1], each[0].chunk.chunk_id)
        )
        return [
            rescored(hit, (1 + raw) / 2, "model", model=self._name, model_score=raw)
            for hit, raw in ranked[:k]
        ]

    async def prepare(self, texts: Sequence[str], tenant: str) -> None:
        """Compute and cache the token embeddings of texts; do nothing without a cache."""
        if self._cache:
            for start in range(0, len(texts), PREPARED):
                await self._token_embeddings(texts[start : start + PREPARED], tenant)

    async def _token_embeddings(self, texts: Sequence[str], tenant: str) -> list[TokenEmbeddings]:
        """Return the token embeddings of texts, from the cache or computed and then cached."""
        keys = [key_of(tenant, self._model.fingerprint, text) for text in texts]
        ready = await self._cache.read(keys, self._model.dimension) if self._cache else {}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in ready}
        if missing:
            made = await self._made(missing)
            if self._cache:
                await self._cache.write(made)
            ready |= made
        return [ready[key] for key in keys]

    async def _made(self, texts: dict[bytes, str]) -> dict[bytes, TokenEmbeddings]:
        """Compute embeddings, rounded as in the cache so that a repeated query scores the same.

        Texts of similar length share a batch. Batches of concurrent questions alternate.
        """
        lengths = await run_in(self._worker, self._model.tokens, list(texts.values()))
        order = [key for _, key in sorted(zip(lengths, texts, strict=True))]
        made: dict[bytes, TokenEmbeddings] = {}
        for start in range(0, len(order), self._batch_size):
            batch = order[start : start + self._batch_size]
            embed = self._model.embed_documents
            embeddings = await run_in(self._worker, embed, [texts[key] for key in batch])
            made |= dict(zip(batch, embeddings, strict=True))
        dimension = self._model.dimension
        return {key: unpacked(packed(each), dimension) for key, each in made.items()}
