"""Failures of commands: their messages, hints and exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from corral.api.errors import CorralError

if TYPE_CHECKING:
    import httpx

JSON = dict[str, Any]

BAD_INPUT = 2
FAILURE = 1
_BAD_INPUT_STATUSES = {400, 404, 409, 413, 415, 422}


class CommandError(CorralError):
    """An expected failure of a command: printed as a message and a hint, never as a traceback.

    Args:
        message: The problem, in one sentence.
        hint: The remedy, or "".
        exit_code: 2 if the input is to blame, 1 for every other failure.
        status: The HTTP status behind it, None if no server answered.
    """

    def __init__(
        self, message: str, *, hint: str = "", exit_code: int = FAILURE, status: int | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code
        self.status = status


def refusal(response: httpx.Response) -> CommandError:
    """Return a server's error reply as an error."""
    status = response.status_code
    message, hint = _said(response)
    if status == 401 and not hint:
        hint = "Pass a key with --key or in CORRAL_API_KEY."
    exit_code = BAD_INPUT if status in _BAD_INPUT_STATUSES else FAILURE
    return CommandError(message, hint=hint, exit_code=exit_code, status=status)


def _said(response: httpx.Response) -> tuple[str, str]:
    """Return message and hint of an error reply, from Corral or from a similar server."""
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
