"""A client for HTTP services: settings, requests with retries, and errors.

Remote embedding, re-ranking, chat and readers use it. Neither texts nor the API key appear in logs
or messages. Services quote the request in their errors, so only the short code of an error is
shown.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, TypeVar

import httpx
from pydantic import AfterValidator, Field, SecretStr

from corral.api.errors import Overloaded, ProviderError, ProviderTimeout, Refused, Unavailable
from corral.api.provider import Health, ProviderConfig
from corral.api.wire import encodable

LONGEST_DELAY_SECONDS = 8.0
HEALTH_TIMEOUT_SECONDS = 3.0
OVERLOADED = frozenset({429, 502, 503, 504})
"""Statuses of a service that is running but cannot serve the request now."""
REFUSED = frozenset({400, 413, 415, 422})
"""Statuses of a service that does not accept the content of the request."""

_HINTS = {
    400: "Often a text longer than the model reads: split into smaller chunks.",
    401: "Check api_key.",
    403: "Check api_key.",
    404: "Check base_url and the model's name.",
}

T = TypeVar("T")

_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def _service_url(value: str) -> str:
    try:
        url = httpx.URL(value)
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in {"http", "https"} or not url.host or (url.port or 0) > 65535:
        raise ValueError("must look like http://127.0.0.1:11434/v1")
    if url.userinfo or url.query or url.fragment:
        raise ValueError("must hold no user, password or query; put the key into api_key")
    return value.rstrip("/")


def _header_value(value: SecretStr | None) -> SecretStr | None:
    key = value.get_secret_value().strip() if value else ""  # Files and shells add a line break.
    if not (key.isascii() and key.isprintable()):
        raise ValueError("must be printable ASCII")
    return SecretStr(key) if key else None


class ServiceConfig(ProviderConfig):
    """Settings of an HTTP service; providers may have other defaults.

    Attributes:
        base_url: Address that the provider's paths are appended to; http or https, without user,
            password or query.
        api_key: Sent as a bearer token. Default: none.
        verify_tls: True to check the certificate of an https service; default true.
        timeout_seconds: Time limit of one request, including all attempts and pauses; default 60.
        max_retries: Attempts after the first; default 4.
        retry_delay_seconds: Pause before the first retry, default 0.5; it doubles each time, up to
            8 seconds. If the service sends `retry-after`, that applies instead.
    """

    base_url: Annotated[str, AfterValidator(_service_url)]
    api_key: Annotated[SecretStr | None, AfterValidator(_header_value)] = None
    verify_tls: bool = True
    timeout_seconds: float = Field(default=60, gt=0, le=3600)
    max_retries: int = Field(default=4, ge=0, le=10)
    retry_delay_seconds: float = Field(default=0.5, gt=0, le=60)


class HttpService:
    """The connections to a service. Redirects are not followed.

    Args:
        name: Name of the service in messages.
        config: Address and limits.
        hints: Hints by status code, in addition to the usual ones.
        slow_hint: Hint of the error if the service does not answer in time.
        retry_busy: True to retry after a status of 429 or 5xx, as after a failed connection. Leave
            it False if a user waits for the answer.
        key_header: Header for the plain API key; "" to send it as a bearer token.
    """

    def __init__(
        self,
        name: str,
        config: ServiceConfig,
        *,
        hints: Mapping[int, str] | None = None,
        slow_hint: str = "Raise timeout_seconds.",
        retry_busy: bool = False,
        key_header: str = "",
    ) -> None:
        self.name = name
        self._config = config
        self._hints = {**_HINTS, **(hints or {})}
        self._slow_hint = slow_hint
        self._retry_busy = retry_busy
        key = config.api_key.get_secret_value() if config.api_key else ""
        self._http = httpx.AsyncClient(  # It follows no redirects.
            headers=_key_headers(key, key_header),
            timeout=None,  # noqa: S113 - `post` bounds all attempts of a request together
            # Loading the certificates takes 30 ms, and plain http needs none.
            verify=config.verify_tls and httpx.URL(config.base_url).scheme == "https",
        )

    async def post(self, path: str, request: dict[str, Any]) -> bytes:
        """Send a JSON request and return the body of the answer, within `timeout_seconds`.

        Raises:
            Unavailable: The service could not be reached or was overloaded at every attempt.
            ProviderTimeout: The service did not answer in time.
            ProviderError: The service refused the request.
        """
        return await self.send("POST", path, json=request)

    async def send(
        self, method: str, path: str, *, max_bytes: int | None = None, **request: Any
    ) -> bytes:
        """Send any request and return the body of the answer, as `post` does.

        Args:
            max_bytes: Maximum size of the decompressed answer; None for no limit.
            request: Arguments for httpx, such as `content`, `files` and `headers`.
        """
        with self._in_time():
            async with asyncio.timeout(self._config.timeout_seconds) as bound:
                return await self._attempts(
                    lambda: self._answered(method, path, request, max_bytes), bound.when() or 0.0
                )

    async def stream(self, path: str, request: dict[str, Any]) -> AsyncGenerator[str, None]:
        """Send a JSON request and yield the lines of the answer as they arrive.

        `timeout_seconds` limits the wait for the beginning of the answer, including all attempts
        and pauses, and then the wait for each line.

        Raises:
            Unavailable, ProviderTimeout, ProviderError: See `post`; possibly after some lines.
        """
        seconds = self._config.timeout_seconds
        async with AsyncExitStack() as stack:
            with self._in_time():
                async with asyncio.timeout(seconds) as bound:
                    response = await self._attempts(
                        lambda: self._begun("POST", path, {"json": request}, stack),
                        bound.when() or 0.0,
                    )
            lines = response.aiter_lines()
            while True:
                with self._in_time():
                    async with asyncio.timeout(seconds):
                        line = await self._next_line(lines)
                if line is None:
                    return
                yield line

    async def health(self, path: str) -> Health:
        """Request a path; return an error only for 401, 403, 5xx or a failed connection.

        404 counts as OK, since not every service has the path.
        """
        try:
            url = f"{self._config.base_url}{path}"
            response = await self._http.get(url, timeout=HEALTH_TIMEOUT_SECONDS)
        except httpx.HTTPError as error:
            return Health("Error", str(self._unreachable(error)))
        if response.status_code in {401, 403} or response.status_code >= 500:
            return Health("Error", f"{self.name} answers {response.status_code}.")
        return Health("OK")

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise ProviderTimeout(
                f"{self.name} did not answer within {self._config.timeout_seconds:g} seconds.",
                hint=self._slow_hint,
            ) from None

    async def _attempts(self, attempt_once: Callable[[], Awaitable[T]], deadline: float) -> T:
        """Retry until an attempt succeeds, none is left, or a pause would outlast the deadline."""
        for attempt in range(self._config.max_retries + 1):
            try:
                return await attempt_once()
            except _TryAgain as again:
                failure = again.failure
                pause = self._backoff(attempt) if again.seconds is None else again.seconds
            if pause >= deadline - asyncio.get_running_loop().time():
                break
            if attempt < self._config.max_retries:
                await asyncio.sleep(pause)
        raise failure

    async def _answered(
        self, method: str, path: str, request: dict[str, Any], max_bytes: int | None
    ) -> bytes:
        async with AsyncExitStack() as stack:
            response = await self._begun(method, path, request, stack)
            body = bytearray()
            with self._broken_off():
                async for part in response.aiter_bytes():
                    body += part
                    if max_bytes is not None and len(body) > max_bytes:
                        raise ProviderError(f"{self.name} answered more than {max_bytes:,} bytes.")
            return bytes(body)

    async def _begun(
        self, method: str, path: str, request: dict[str, Any], stack: AsyncExitStack
    ) -> httpx.Response:
        """Return a successful response before its body is read; `stack` closes it."""
        with self._broken_off():
            response = await stack.enter_async_context(
                self._http.stream(method, f"{self._config.base_url}{path}", **request)
            )
            if response.is_success:
                return response
            await response.aread()
        failure = self._refusal(response)
        busy = response.status_code == 429 or response.status_code >= 500
        if busy and self._retry_busy:
            raise _TryAgain(failure, retry_after_seconds(response.headers))
        raise failure

    async def _next_line(self, lines: AsyncIterator[str]) -> str | None:
        try:
            with self._broken_off():
                return await anext(lines, None)
        except _TryAgain as again:  # It is too late to retry: part of the answer has been used.
            raise again.failure from None

    @contextmanager
    def _broken_off(self) -> Iterator[None]:
        """Translate connection failures."""
        try:
            yield
        except httpx.TransportError as error:
            raise _TryAgain(self._unreachable(error)) from error
        except httpx.DecodingError as error:
            raise ProviderError(f"{self.name} answered in a broken encoding.") from error

    def _backoff(self, attempt: int) -> float:
        """Return the pause before a retry: exponential, with jitter to spread the clients."""
        delay = min(self._config.retry_delay_seconds * 2.0**attempt, LONGEST_DELAY_SECONDS)
        return delay * random.uniform(0.5, 1.0)  # noqa: S311 - jitter need not be unpredictable

    def _unreachable(self, error: httpx.HTTPError) -> Unavailable:
        return Unavailable(
            f"{self.name} cannot be reached ({type(error).__name__}).",
            hint="Check that the service runs at base_url.",
        )

    def _refusal(self, response: httpx.Response) -> ProviderError:
        status = response.status_code
        code = error_code(response.content)
        message = f"{self.name} answered {status}{f' ({code})' if code else ''}."
        if status in OVERLOADED:
            kind = Overloaded if status == 429 else Unavailable
            return kind(message, hint="The service is overloaded or still starting.")
        hint = self._hints.get(status, "")
        if status in REFUSED:
            return Refused(message, code=code, hint=hint)
        return ProviderError(message, hint=hint)


class _TryAgain(Exception):
    """An attempt failed but can be retried; `seconds` is the pause that the service asked for."""

    def __init__(self, failure: ProviderError, seconds: float | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.seconds = seconds


def _key_headers(key: str, header: str) -> dict[str, str]:
    if not key:
        return {}
    return {header: key} if header else {"authorization": f"Bearer {key}"}


def sendable(text: str) -> str:
    """Return a text that all services accept: without lone surrogates, and not empty."""
    return encodable(text) or " "


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the pause in seconds that a service asks for, >= 0; None if no header is valid.

    `retry-after-ms` is an OpenAI header; `retry-after` holds seconds or a date (RFC 9110, section
    10.2.3).
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    if date.tzinfo is None:  # The obsolete "-0000" means UTC.
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def error_code(body: bytes) -> str:
    """Return the `code` or `type` of an error in OpenAI's format; "" if there is none.

    The error's message is never used, since services quote the text that was sent.
    """
    try:
        error = json.loads(body)["error"]
        code = error.get("code") or error.get("type")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    return code if isinstance(code, str) and _CODE.fullmatch(code) else ""
