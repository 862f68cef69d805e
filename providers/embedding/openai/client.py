"""One request to a service, with retries: a batch of texts in, embeddings out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from corral.api.errors import ProviderError, ProviderTimeout, Unavailable
from corral.api.provider import Health
from corral.providers.embedding.openai.config import OpenAIConfig, OpenAIModel
from corral.providers.embedding.openai.decoding import (
    decode_embeddings,
    error_code,
    retry_after_seconds,
)

LONGEST_DELAY_SECONDS = 8.0
HEALTH_TIMEOUT_SECONDS = 3.0
OVERLOADED = frozenset({429, 502, 503, 504})
"""Statuses of a service that is there but cannot serve now."""


_HINTS = {
    400: "Often a text longer than the model reads: split into smaller chunks.",
    401: "Check api_key.",
    403: "Check api_key.",
    404: "Check base_url and the model's name.",
    413: "Lower batch_size.",
}


class Client:
    """The connection to a service. Neither texts nor the key reach a log or a message."""

    def __init__(self, provider_id: str, config: OpenAIConfig) -> None:
        self._name = f"{provider_id} (remote::openai)"
        self._config = config
        key = config.api_key.get_secret_value() if config.api_key else ""
        # No timeout here: `embed` bounds all attempts together. Redirects are not followed.
        self._http = httpx.AsyncClient(
            headers={"authorization": f"Bearer {key}"} if key else {},
            timeout=None,  # noqa: S113
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
            "input": [_clean(text) for text in texts],
            "encoding_format": "base64",  # as the official client asks; numbers are taken too
        }
        if model.send_dimensions:
            request["dimensions"] = model.dimension
        body = await self._post_in_time(request)
        try:
            return decode_embeddings(body, len(texts), model.dimension)
        except ValueError as error:
            raise ProviderError(
                f"{self._name} answered {model.model!r} with {error}.",
                hint="Compare base_url and the model's dimension with the service's own.",
            ) from None

    async def health(self) -> Health:
        """Ask for the list of models; any answer but a refusal or a failure is well."""
        try:
            url = f"{self._config.base_url}/models"
            response = await self._http.get(url, timeout=HEALTH_TIMEOUT_SECONDS)
        except httpx.HTTPError as error:
            return Health("Error", str(self._unreachable(error)))
        # 404 is well: not every service lists its models.
        if response.status_code in {401, 403} or response.status_code >= 500:
            return Health("Error", f"{self._name} answers {response.status_code}.")
        return Health("OK")

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _post_in_time(self, request: dict[str, Any]) -> bytes:
        seconds = self._config.timeout_seconds
        try:
            async with asyncio.timeout(seconds) as bound:
                return await self._post(request, deadline=bound.when() or 0.0)
        except TimeoutError:
            raise ProviderTimeout(
                f"{self._name} did not answer within {seconds:g} seconds.",
                hint="Raise timeout_seconds, or lower batch_size.",
            ) from None

    async def _post(self, request: dict[str, Any], deadline: float) -> bytes:
        """Retry until it works, the attempts are used up, or the next pause would end too late."""
        for attempt in range(self._config.max_retries + 1):
            try:
                return await self._attempt(request)
            except _TryAgain as again:
                failure = again.failure
                pause = self._backoff(attempt) if again.seconds is None else again.seconds
            if pause >= deadline - asyncio.get_running_loop().time():
                break
            if attempt < self._config.max_retries:
                await asyncio.sleep(pause)
        raise failure

    async def _attempt(self, request: dict[str, Any]) -> bytes:
        try:
            response = await self._http.post(f"{self._config.base_url}/embeddings", json=request)
        except httpx.TransportError as error:
            raise _TryAgain(self._unreachable(error)) from error
        except httpx.DecodingError as error:
            raise ProviderError(f"{self._name} answered in a broken encoding.") from error
        if response.is_success:
            return response.content
        failure = self._refusal(response)
        if response.status_code == 429 or response.status_code >= 500:
            raise _TryAgain(failure, retry_after_seconds(response.headers))
        raise failure

    def _backoff(self, attempt: int) -> float:
        """Exponential, with jitter over its upper half so that clients do not return together."""
        delay = min(self._config.retry_delay_seconds * 2.0**attempt, LONGEST_DELAY_SECONDS)
        return delay * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    def _unreachable(self, error: httpx.HTTPError) -> Unavailable:
        return Unavailable(
            f"{self._name} cannot be reached ({type(error).__name__}).",
            hint="Check that the service runs at base_url.",
        )

    def _refusal(self, response: httpx.Response) -> ProviderError:
        status = response.status_code
        code = error_code(response.content)
        message = f"{self._name} answered {status}{f' ({code})' if code else ''}."
        if status in OVERLOADED:
            return Unavailable(message, hint="The service is overloaded or still starting.")
        return ProviderError(message, hint=_HINTS.get(status, ""))


class _TryAgain(Exception):
    """An attempt failed in a way that may pass; `seconds` is the pause that was asked for."""

    def __init__(self, failure: ProviderError, seconds: float | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.seconds = seconds


def _clean(text: str) -> str:
    """What a service can take: no lone surrogate, and not empty, which OpenAI refuses."""
    return text.encode("utf-8", "replace").decode() or " "
