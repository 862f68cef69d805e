"""How the command line sends a request, and what its failures say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from corral.api.errors import CorralError

JSON = dict[str, Any]

BAD_INPUT = 2
FAILURE = 1
_BAD_INPUT_STATUSES = {400, 404, 409, 413, 415, 422}


class CommandError(CorralError):
    """An expected failure of a command: printed as a message and a hint, never as a traceback.

    Args:
        message: What went wrong, one sentence.
        hint: What to do about it, or "".
        exit_code: 2 where the input is to blame, 1 for every other failure.
        status: The HTTP status behind it, None where no server answered.
    """

    def __init__(
        self, message: str, *, hint: str = "", exit_code: int = FAILURE, status: int | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code
        self.status = status


class Transport:
    """Sends requests; whatever goes wrong is a `CommandError`.

    Args:
        http: An open client whose base URL is the server's.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def call(self, method: str, path: str, body: JSON | None = None) -> Any:
        """Send a request and return the parsed reply."""
        # ASCII escapes carry even a lone surrogate of a strange file name, for the server to judge.
        content = None if body is None else json.dumps(body).encode("ascii")
        with self.transport_errors():
            response = await self.http.request(
                method, path, content=content, headers={"content-type": "application/json"}
            )
        if not response.is_success:
            raise refusal(response)
        try:
            return response.json()
        except ValueError:
            raise CommandError(
                f"{self.url} answered {path} with something that is not JSON.",
                hint="Is a Corral server listening there?",
            ) from None

    @contextmanager
    def transport_errors(self) -> Iterator[None]:
        """Raise CommandError where a request in this context is not answered."""
        try:
            yield
        except httpx.TimeoutException:
            raise CommandError(f"{self.url} did not answer in time.") from None
        except httpx.TransportError as error:
            raise CommandError(
                f"Cannot reach a server at {self.url}: {str(error) or type(error).__name__}.",
                hint="Start one with `corral serve`, or leave --url out to work in process.",
            ) from None

    @property
    def url(self) -> str:
        """Where the server is."""
        return str(self.http.base_url).rstrip("/")


def rows_of(reply: Any) -> list[JSON]:
    """Return the objects of a reply `{"data": [...]}`."""
    data = object_of(reply).get("data")
    if not isinstance(data, list):
        raise CommandError("The server's answer holds no `data` list.", hint="Is it Corral?")
    return [object_of(item) for item in data]


def object_of(reply: Any) -> JSON:
    """Return a reply that must be an object."""
    if not isinstance(reply, dict):
        raise CommandError("The server's answer is not a JSON object.", hint="Is it Corral?")
    return reply


def refusal(response: httpx.Response) -> CommandError:
    """Return what a server's error reply says."""
    status = response.status_code
    message, hint = _said(response)
    if status == 401 and not hint:
        hint = "Pass a key with --key or in CORRAL_API_KEY."
    exit_code = BAD_INPUT if status in _BAD_INPUT_STATUSES else FAILURE
    return CommandError(message, hint=hint, exit_code=exit_code, status=status)


def _said(response: httpx.Response) -> tuple[str, str]:
    """Return message and hint of an error reply, in our shape or in that of a like server."""
    try:
        body = response.json()
    except ValueError:
        body = None
    error = body.get("error", body) if isinstance(body, dict) else None
    if isinstance(error, dict):
        message = error.get("message") or error.get("detail")
        if isinstance(message, str):
            return message, str(error.get("hint") or "")
        if message:
            return json.dumps(message, ensure_ascii=False), ""
    return f"The server answered {response.status_code} {response.reason_phrase}.", ""
