"""inline::llama-cpp: serves the configured models; each is loaded on first use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from pathlib import Path

from typing_extensions import override

from corral.api.errors import ConfigError
from corral.api.provider import ChatChunk, ChatRequest, Health, InferenceProvider
from corral.providers.inference.llama_cpp.config import LlamaCppConfig, LlamaModel
from corral.providers.inference.llama_cpp.model import LocalModel, check_file
from corral.providers.models.loading import Loading


def create(provider_id: str, config: LlamaCppConfig, home: Path) -> LlamaCppProvider:
    """Return the provider; it stores nothing in the data folder and loads nothing yet."""
    return LlamaCppProvider(provider_id, config)


class LlamaCppProvider(InferenceProvider):
    """Serves in-process language models, each loaded once in a worker thread."""

    def __init__(self, provider_id: str, config: LlamaCppConfig) -> None:
        super().__init__(provider_id)
        self._config = config
        self._loaded: list[LocalModel] = []
        self._loader = ThreadPoolExecutor(1, thread_name_prefix=f"{provider_id}-loader")
        loads = {model.model: partial(self._load, model) for model in config.models}
        self._loading = Loading(provider_id, "language", loads, self._loader)

    def models(self) -> list[str]:
        """Return the configured models, in their order."""
        return [model.model for model in self._config.models]

    @override
    async def chat(self, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        """Stream the answer of a model, which the first request loads.

        Requests beyond the model's `concurrency` wait. Ending the iteration stops the computation
        within one batch of the prompt or one token.

        Args:
            request: A request with OpenAI's fields; `logprobs`, `n` and some others have no effect.

        Raises:
            NotFound: The model is not configured.
            ConfigError: Its file is missing, has another sha256 or cannot be loaded.
            Refused: The request is malformed; `context_length_exceeded` if the prompt is too long.
            ProviderError: The model failed, or was closed.
        """
        model = await self._loading.model(str(request["model"]))
        async with aclosing(model.answer(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def health(self) -> Health:
        """Return OK if the models' files exist; loading checks their digests."""
        try:
            for model in self._config.models:
                await asyncio.to_thread(check_file, model)
        except ConfigError as error:
            return Health("Error", str(error))
        return Health("OK")

    async def close(self) -> None:
        """Stop the answers and free the models."""
        await asyncio.to_thread(self._release)

    def _load(self, model: LlamaModel) -> LocalModel:
        name = f"{self.provider_id} (inline::llama-cpp)"
        loaded = LocalModel(name, model, self._config.threads)
        self._loaded.append(loaded)
        return loaded

    def _release(self) -> None:
        self._loader.shutdown(wait=True, cancel_futures=True)
        for model in self._loaded:
            model.close()
