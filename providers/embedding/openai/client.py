"""One request to a service: a batch of texts in, embeddings out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.errors import ProviderError
from corral.api.provider import Health
from corral.providers.embedding.openai.config import OpenAIConfig, OpenAIModel
from corral.providers.embedding.openai.decoding import decode_embeddings
from corral.providers.models.http_service import HttpService, sendable


class Client:
    """The connection to a service. Neither texts nor the key reach a log or a message."""

    def __init__(self, provider_id: str, config: OpenAIConfig) -> None:
        self._service = HttpService(
            f"{provider_id} (remote::openai)",
            config,
            hints={413: "Lower batch_size."},
            slow_hint="Raise timeout_seconds, or lower batch_size.",
            retry_busy=True,
        )

    async def embed(self, model: OpenAIModel, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of one batch, shape (n, dimension), in its order.

        Raises:
            Unavailable: The service cannot be reached, or is overloaded, at every attempt.
            ProviderTimeout: It did not answer within `timeout_seconds`.
            ProviderError: It refused, or answered with something else than embeddings.
        """
        request: dict[str, Any] = {
            "model": model.model,
            "input": [sendable(text) for text in texts],
            "encoding_format": "base64",  # as the official client asks; numbers are taken too
        }
        if model.send_dimensions:
            request["dimensions"] = model.dimension
        body = await self._service.post("/embeddings", request)
        try:
            return decode_embeddings(body, len(texts), model.dimension)
        except ValueError as error:
            raise ProviderError(
                f"{self._service.name} answered {model.model!r} with {error}.",
                hint="Compare base_url and the model's dimension with the service's own.",
            ) from None

    async def health(self) -> Health:
        """Ask for the list of models; any answer but a refusal or a failure is well."""
        return await self._service.health("/models")

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()
