"""remote::chat: language models behind an OpenAI-compatible /v1/chat/completions."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import override

from corral.api.errors import ProviderError
from corral.api.provider import ChatChunk, ChatRequest, Health, InferenceProvider
from corral.providers.inference.chat.config import ChatConfig
from corral.providers.models.http_service import HttpService, error_code, sendable
from corral.providers.models.names import not_served


def create(provider_id: str, config: ChatConfig, home: Path) -> ChatProvider:
    """Return the provider; it stores nothing in the data folder and connects on first use."""
    return ChatProvider(provider_id, config)


class ChatProvider(InferenceProvider):
    """Serves only the configured models, from one service."""

    def __init__(self, provider_id: str, config: ChatConfig) -> None:
        super().__init__(provider_id)
        self._config = config
        self._service = HttpService(f"{provider_id} (remote::chat)", config)

    def models(self) -> list[str]:
        """Return the configured models, in their order."""
        return list(self._config.models)

    @override
    def sees_images(self, model: str) -> bool:
        return model in self._config.image_models

    @override
    async def chat(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        model = str(request["model"])
        if model not in self._config.models:
            raise not_served(self.provider_id, "language", model, self._config.models)
        has_ended = False
        async with aclosing(
            self._service.stream("/chat/completions", self._sent(request))
        ) as lines:
            async for line in lines:
                data = _data(line)
                if data == "[DONE]":
                    break
                if data is not None:
                    chunk = self._chunk(data, model)
                    has_ended |= any(each.get("finish_reason") for each in chunk["choices"])
                    yield chunk
        if not has_ended:
            raise self._unexpected(model)

    @override
    async def complete(self, model: str, prompt: str, *, max_tokens: int | None = None) -> str:
        most = self._config.max_output_tokens if max_tokens is None else max_tokens
        return await super().complete(model, sendable(prompt), max_tokens=most)

    async def health(self) -> Health:
        """Return OK if the service answers within 3 seconds."""
        return await self._service.health("/models")

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()

    def _sent(self, request: ChatRequest) -> dict[str, Any]:
        """Return the request for the service: streamed, with token counts."""
        sent = {**request, "stream": True, "stream_options": {"include_usage": True}}
        if self._config.reasoning:
            sent.pop("temperature", None)
            if (most := sent.pop("max_tokens", None)) is not None:
                sent.setdefault("max_completion_tokens", most)
        return sent

    def _chunk(self, data: str, model: str) -> ChatChunk:
        """Return the chunk of an event; raise an error event.

        Raises:
            ProviderError: The event is an error, or not a chunk.
        """
        try:
            chunk: dict[str, Any] = json.loads(data, parse_constant=_not_json)
            if not chunk.get("error"):
                _Chunk.model_validate(chunk)
                return chunk
        except (ValueError, AttributeError, RecursionError, ValidationError):
            raise self._unexpected(model) from None
        code = error_code(data.encode())
        raise ProviderError(f"{self._service.name} failed{f' ({code})' if code else ''}.")

    def _unexpected(self, model: str) -> ProviderError:
        return ProviderError(
            f"{self._service.name} answered {model!r} with something other than a chat completion.",
            hint="Check base_url and the model's name.",
        )


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True)


class _Function(_Shape):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(_Shape):
    index: int
    id: str | None = None
    function: _Function | None = None


class _Delta(_Shape):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(_Shape):
    index: int = 0
    delta: _Delta
    finish_reason: str | None = None


class _Usage(_Shape):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Chunk(_Shape):
    """The fields of a chunk that Corral reads; other fields are passed on."""

    choices: list[_Choice]
    usage: _Usage | None = None


def _not_json(constant: str) -> None:
    """Reject NaN and infinity, which Python parses but other clients cannot."""
    raise ValueError(constant)


def _data(line: str) -> str | None:
    """Return the data of a line of server-sent events; None if there is none."""
    name, _, value = line.partition(":")
    return value.strip() if name == "data" else None
