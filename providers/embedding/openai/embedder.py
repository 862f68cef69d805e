"""remote::openai: embeds batches of texts with an OpenAI-compatible /v1/embeddings."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.embedder import Embedder, ModelInfo
from corral.api.errors import ProviderError
from corral.api.provider import EmbeddingProvider, Health
from corral.providers.embedding.openai.config import OpenAIConfig, OpenAIModel
from corral.providers.models.http_service import HttpService, sendable
from corral.providers.models.names import not_served


def create(provider_id: str, config: OpenAIConfig, home: Path) -> OpenAIProvider:
    """Return the provider; it stores nothing in the data folder and connects on first use."""
    return OpenAIProvider(provider_id, config)


class OpenAIProvider(EmbeddingProvider):
    """Serves only the configured models, from one service."""

    def __init__(self, provider_id: str, config: OpenAIConfig) -> None:
        super().__init__(provider_id)
        self._service = HttpService(
            f"{provider_id} (remote::openai)",
            config,
            hints={413: "Lower batch_size."},
            slow_hint="Raise timeout_seconds, or lower batch_size.",
            retry_busy=True,
        )
        # One limit for all models and ingests; questions bypass it and never wait for an ingest.
        slots = asyncio.Semaphore(config.max_concurrency)
        self._embedders = {
            model.model: OpenAIEmbedder(self._service, config, model, slots)
            for model in config.models
        }

    def models(self) -> list[ModelInfo]:
        """Return the configured models, in their order."""
        return [embedder.info for embedder in self._embedders.values()]

    async def embedder(self, model: str) -> OpenAIEmbedder:
        """Return the embedder of a configured model, without a request to the service.

        Raises:
            NotFound: The model is not configured.
        """
        if model not in self._embedders:
            raise not_served(self.provider_id, "embedding", model, self._embedders)
        return self._embedders[model]

    async def health(self) -> Health:
        """Return OK if the service answers within 3 seconds."""
        return await self._service.health("/models")

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()


class OpenAIEmbedder(Embedder):
    """One model of the service. Embeddings are returned as received, not normalized."""

    def __init__(
        self,
        service: HttpService,
        config: OpenAIConfig,
        model: OpenAIModel,
        slots: asyncio.Semaphore,
    ) -> None:
        self.info = ModelInfo(
            model=model.model, dimension=model.dimension, max_tokens=model.max_tokens
        )
        self.traits = {
            "query_prefix": model.query_prefix,
            "document_prefix": model.document_prefix,
        }
        self._service = service
        self._model = model
        self._slots = slots
        self._workers = config.max_concurrency
        self._batch_size = config.batch_size

    async def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of texts, shape (n, dimension), in their order.

        All or nothing: the first batch that fails cancels the others and is raised.

        Raises:
            Unavailable: The service cannot be reached, or is overloaded, in every attempt.
            ProviderTimeout: The service did not respond within `timeout_seconds`.
            ProviderError: The service rejected the request, or its response is not embeddings.
        """
        result = np.empty((len(texts), self.info.dimension), np.float32)
        starts = iter(range(0, len(texts), self._batch_size))

        async def work() -> None:
            for start in starts:  # Workers share the iterator; each takes the next batch.
                batch = slice(start, start + self._batch_size)
                prefixed = [self._model.document_prefix + text for text in texts[batch]]
                async with self._slots:
                    result[batch] = await self._embed(prefixed)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._workers, -(-len(texts) // self._batch_size))):
                    group.create_task(work())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return result

    async def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the embedding of a question, shape (dimension,); errors as `embed_documents`."""
        found = await self._embed([self._model.query_prefix + text])
        return found.reshape(-1)

    async def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of one batch, shape (n, dimension), in order."""
        model = self._model
        request: dict[str, Any] = {
            "model": model.model,
            "input": [sendable(text) for text in texts],
            # The official client requests base64 too. Lists of numbers are accepted as well.
            "encoding_format": "base64",
        }
        if model.send_dimensions:
            request["dimensions"] = model.dimension
        body = await self._service.post("/embeddings", request)
        try:
            return decode_embeddings(body, len(texts), model.dimension)
        except ValueError as error:
            raise ProviderError(
                f"{self._service.name} answered {model.model!r} with {error}.",
                hint="Check base_url and the model's dimension.",
            ) from None


def decode_embeddings(body: bytes, count: int, dimension: int) -> NDArray[np.float32]:
    """Return the embeddings of a response, shape (count, dimension), in the order of `index`.

    Args:
        body: The response; each embedding is a list of numbers, or base64 of little-endian
            float32.
        count: Number of texts sent.
        dimension: Required dimension of each embedding.

    Raises:
        ValueError: The response is malformed; the message says how, without quoting it.
    """
    try:
        items = json.loads(body)["data"]
        rows = {item["index"]: item["embedding"] for item in items}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("something other than an embeddings response") from None
    if len(items) != count or set(rows) != set(range(count)):
        raise ValueError(f"{len(items)} embeddings for {count} texts, or wrongly numbered ones")
    result = np.empty((count, dimension), np.float32)
    for index in range(count):
        row = _row(rows[index])
        if row.shape != (dimension,):
            raise ValueError(f"an embedding of shape {row.shape}, not the configured {dimension}")
        result[index] = row
    if not np.isfinite(result).all():
        raise ValueError("an embedding with NaN or infinity")
    return result


def _row(value: Any) -> NDArray[np.float32]:
    try:
        if isinstance(value, str):
            return np.frombuffer(base64.b64decode(value, validate=True), "<f4").astype(np.float32)
        with np.errstate(over="ignore"):  # An overflow becomes infinite, which is rejected.
            return np.array(value, np.float32)
    except (ValueError, TypeError, OverflowError):
        raise ValueError("an embedding that is not a list of numbers") from None
