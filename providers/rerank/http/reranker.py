"""remote::rerank: re-ranks with the cross-encoders of an HTTP service."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corral.api.errors import ProviderError
from corral.api.hits import Hit
from corral.api.provider import Health, RerankProvider
from corral.api.reranker import Reranker
from corral.providers.models.http_service import HttpService, sendable
from corral.providers.models.names import not_served
from corral.providers.rerank.http.config import HTTPRerankConfig
from corral.providers.rerank.http.dialects import decode_scores, mapped, request_body
from corral.providers.rerank.rescoring import rescored


def create(provider_id: str, config: HTTPRerankConfig, home: Path) -> HTTPRerankProvider:
    """Return the provider, which connects on first use and does not use the data folder."""
    return HTTPRerankProvider(provider_id, config)


class HTTPRerankProvider(RerankProvider):
    """Serves only the configured models, from the configured service."""

    def __init__(self, provider_id: str, config: HTTPRerankConfig) -> None:
        super().__init__(provider_id)
        self._health_path = "/health" if config.dialect == "tei" else "/models"
        self._service = HttpService(
            f"{provider_id} (remote::rerank)",
            config,
            hints={
                400: "Compare base_url, dialect and the model's name with the service's own.",
                413: "Lower batch_size.",
                422: "Lower batch_size, or compare dialect with the service's own.",
            },
            slow_hint="Raise timeout_seconds, or ask for fewer candidates.",
        )
        self._rerankers = {
            model: ModelReranker(self._service, config, model) for model in config.models
        }

    def models(self) -> list[str]:
        """Return the names of the configured models, in their order."""
        return list(self._rerankers)

    async def reranker(self, model: str) -> ModelReranker:
        """Return the re-ranker of a configured model, without a request to the service.

        Raises:
            NotFound: The model is not configured.
        """
        if model not in self._rerankers:
            raise not_served(self.provider_id, "re-ranking", model, self._rerankers)
        return self._rerankers[model]

    async def health(self) -> Health:
        """Return OK if the service answers within 3 seconds."""
        return await self._service.health(self._health_path)

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()


class ModelReranker(Reranker):
    """Re-ranks with one model of the service, by the chunks' `content` only."""

    def __init__(self, service: HttpService, config: HTTPRerankConfig, model: str) -> None:
        self._service = service
        self._config = config
        self._model = model

    async def rerank(
        self,
        query: str,
        hits: Sequence[Hit],
        k: int,
        *,
        embedding: NDArray[np.float32] | None = None,
        tenant: str = "",
    ) -> list[Hit]:
        """Return the k best hits by the model's score, ties by chunk_id.

        The embedding is not used. The first request that fails cancels the others, and its error is
        raised. Adds `model` and `model_score`, the unmapped score, to each explanation.

        Raises:
            Unavailable: The service cannot be reached, or is overloaded.
            ProviderTimeout: The service did not answer within `timeout_seconds`.
            ProviderError: The service refused the request, or did not return one score per text.
        """
        texts = [hit.chunk.content for hit in hits]
        raws = await self._scores(query, texts)
        try:
            scores = [mapped(self._config, raw) for raw in raws]
        except ValueError as error:
            raise self._unusable(error, "Set `score` to what the model's scores are.") from None
        ranked = sorted(
            zip(hits, raws, scores, strict=True),
            key=lambda each: (
                -each[1],
                each[0].chunk.chunk_id,
            ),  # Sigmoids of large logits are equal.
        )
        return [
            rescored(hit, score, "model", model=self._model, model_score=raw)
            for hit, raw, score in ranked[:k]
        ]

    async def _scores(self, query: str, texts: Sequence[str]) -> list[float]:
        size = self._config.batch
        batches = [texts[start : start + size] for start in range(0, len(texts), size)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._batch(query, batch)) for batch in batches]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [score for task in tasks for score in task.result()]

    async def _batch(self, query: str, texts: Sequence[str]) -> list[float]:
        sent = [sendable(text) for text in texts]
        request = request_body(self._config, self._model, sendable(query), sent)
        body = await self._service.post("/rerank", request)
        try:
            return decode_scores(self._config, body, len(texts))
        except ValueError as error:
            hint = "Compare base_url and dialect with the service's own."
            raise self._unusable(error, hint) from None

    def _unusable(self, error: ValueError, hint: str) -> ProviderError:
        return ProviderError(
            f"{self._service.name} answered {self._model!r} with {error}.", hint=hint
        )
