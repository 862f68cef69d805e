"""remote::chat: one prompt to a language model behind /v1/chat/completions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from corral.api.errors import ProviderError
from corral.api.provider import Health, InferenceProvider
from corral.providers.inference.chat.config import ChatConfig
from corral.providers.models.http_service import HttpService, sendable
from corral.providers.models.names import not_served


def create(provider_id: str, config: ChatConfig, home: Path) -> ChatProvider:
    """Return the provider; it keeps nothing in the data folder and connects at the first use."""
    return ChatProvider(provider_id, config)


class ChatProvider(InferenceProvider):
    """Serves the models that the operator listed, and no other, from the one configured service."""

    def __init__(self, provider_id: str, config: ChatConfig) -> None:
        super().__init__(provider_id)
        self._config = config
        self._service = HttpService(f"{provider_id} (remote::chat)", config)

    def models(self) -> list[str]:
        """Return the configured models, in their order."""
        return list(self._config.models)

    async def chat(self, model: str, prompt: str) -> str:
        """Return what a configured model answers, at temperature 0; see `InferenceProvider.chat`.

        Raises:
            NotFound: The model is not configured.
            Unavailable: The service cannot be reached, or is overloaded.
            ProviderTimeout: It did not answer within `timeout_seconds`.
            ProviderError: It refused, or answered with something else than a text.
        """
        if model not in self._config.models:
            raise not_served(self.provider_id, "language", model, self._config.models)
        body = await self._service.post("/chat/completions", self._request(model, prompt))
        try:
            return _text(body)
        except ValueError as error:
            raise ProviderError(
                f"{self._service.name} answered {model!r} with {error}.",
                hint="Check base_url and the model's name.",
            ) from None

    async def health(self) -> Health:
        """Return OK if the service answers within 3 seconds."""
        return await self._service.health("/models")

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()

    def _request(self, model: str, prompt: str) -> dict[str, Any]:
        message = {"role": "user", "content": sendable(prompt)}
        bounds: dict[str, Any] = {
            "max_tokens": self._config.max_output_tokens,
            "temperature": 0,
        }
        if self._config.reasoning:
            bounds = {"max_completion_tokens": self._config.max_output_tokens}
        return {"model": model, "messages": [message], "stream": False, **bounds}


def _text(body: bytes) -> str:
    """Return the first choice's text; null, as models answer that only thought, is none."""
    try:
        content = json.loads(body)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError("something other than a chat completion") from None
    if not isinstance(content, str | None):
        raise ValueError("a message that is not text")
    return content or ""
