"""Errors on the wire: one table from class to status, one JSON body for every refusal.

    {"error": {"message", "type", "param", "code", "detail": {"errors": [{loc, msg, type}]}},
     "detail": message, "request_id": id}

`error` is what OpenAI's clients read, `error.detail.errors` is where Llama Stack's look when a
request breaks its schema (it is absent otherwise), and the top-level `detail` repeats the message,
for clients that look there. `message` names the field, the actual value and the remedy. No body is
ever echoed: quoted values are shortened, and searched or stored text is never quoted.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match

from corral.api import errors
from corral.api.spans import span
from corral.server.absent import instead_of
from corral.server.missing import add_values
from corral.server.request import request_id
from corral.server.validation import InvalidBody, from_framework

log = logging.getLogger("corral.server")

STATUSES: dict[type[errors.CorralError], tuple[int, str]] = {
    errors.InvalidRequest: (400, "invalid_request"),
    errors.InvalidEmbedding: (400, "invalid_embedding"),
    errors.InvalidFilter: (400, "invalid_filter"),
    errors.Expired: (400, "expired"),
    errors.TooLarge: (413, "too_large"),
    errors.UnsupportedMode: (400, "unsupported_mode"),
    errors.Unauthenticated: (401, "unauthenticated"),
    errors.Forbidden: (403, "forbidden"),
    errors.NotFound: (404, "not_found"),
    errors.Conflict: (409, "conflict"),
    errors.Elsewhere: (409, "elsewhere"),
    errors.ConfigError: (424, "configuration"),
    errors.UnknownProvider: (400, "unknown_provider"),
    errors.MissingDependency: (424, "missing_dependency"),
    errors.ProviderError: (502, "provider_error"),
    errors.Refused: (502, "provider_error"),
    errors.Unavailable: (503, "unavailable"),
    errors.Overloaded: (503, "unavailable"),
    errors.ProviderTimeout: (504, "provider_timeout"),
    errors.ContractViolation: (500, "internal_error"),
}
"""Status and code by class; a subclass without a row takes its nearest ancestor's."""


class ErrorDetail(BaseModel):
    """One place where a request does not match the schema."""

    loc: list[str | int]
    msg: str
    type: str


class ErrorDetails(BaseModel):
    """The first 20 places."""

    errors: list[ErrorDetail]


class Error(BaseModel):
    """An error, with its cause and a remedy."""

    message: str = Field(description="What is wrong, what was found and what to do.")
    type: Literal["invalid_request_error", "server_error"]
    param: str | None = Field(description="The wrong field, as a dotted path.")
    code: str | None = Field(description="A stable error name for programs.")
    detail: ErrorDetails | None = Field(
        default=None, description="Only for requests that do not match the schema."
    )


class ErrorBody(BaseModel):
    """The body of every 4xx and 5xx."""

    error: Error
    detail: str = Field(description="The same message.")
    request_id: str = Field(description="As in the header x-request-id, the logs and the traces.")


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorBody, "description": "The request is refused; the message says why."},
    "5XX": {"model": ErrorBody, "description": "The server or a backend failed."},
}
"""The `responses` of every route."""

RETRY_AFTER_SECONDS = "2"
"""Pause before a client should repeat a request after a backend was unavailable."""

INTERNAL_ERROR = "The server failed on this request."
MAX_MESSAGE_CHARACTERS = 1000
"""Maximum length of a message, so that a refusal stays small whatever the request holds."""

_CODES = {404: "no_such_route"}


class WireError(errors.CorralError):
    """A refusal with the status and the code that clients of its wire expect.

    Args:
        status: HTTP status, 4xx or 5xx.
        code: A stable error name for programs.
        retryable: True if the same request may succeed later.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str = "",
        field: str | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message, hint=hint, field=field)
        self.status, self.code = status, code
        self.retryable = retryable


def status_of(error: errors.CorralError) -> tuple[int, str]:
    """Return the HTTP status and the code of an error."""
    if isinstance(error, WireError):
        return error.status, error.code
    row = next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), None)
    return row or (500, "internal_error")


def is_retried(status: int) -> bool:
    """Return True if clients of these wires repeat a request after this status."""
    return status in (408, 409, 429) or status >= 500


def error_response(
    status: int,
    code: str,
    message: str,
    *,
    param: str | None = None,
    details: list[dict[str, Any]] | None = None,
    retryable: bool = False,
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Response:
    """Return the response of a refusal.

    Args:
        status: HTTP status, 4xx or 5xx.
        code: A stable error name for programs.
        message: One or two sentences for people; shortened in the middle beyond 1000 characters.
        param: The invalid field of the request, as a dotted path.
        details: The places where a request breaks its schema.
        retryable: True if the same request may succeed later. If not, but clients would repeat it,
            the header `x-should-retry: false` is set.
        headers: More headers.
        more: More keys of the body.
    """
    text = shorten(message)
    error: dict[str, Any] = {
        "message": text,
        "type": "server_error" if status >= 500 else "invalid_request_error",
        "param": shorten(param) if param else None,
        "code": code,
    }
    if details is not None:
        error["detail"] = {"errors": details}
    sent = dict(headers or {})
    if is_retried(status) and not retryable:
        sent["x-should-retry"] = "false"
    if status == 503 and retryable:
        sent.setdefault("retry-after", RETRY_AFTER_SECONDS)
    # A lone surrogate in a message must not make the response fail.
    with span("refusal", code=code):
        common = {"error": error, "detail": text, "request_id": request_id.get()}
        body = json.dumps({**common, **(more or {})}, ensure_ascii=False)
    content = body.encode("utf-8", "replace")
    return Response(content, status, headers=sent, media_type="application/json")


def shorten(text: str, most: int = MAX_MESSAGE_CHARACTERS) -> str:
    """Return a text; if it is longer than `most` characters, cut out its middle.

    Beginning and end stay, because a message ends with the remedy.
    """
    if len(text) <= most:
        return text
    head = most // 2
    return f"{text[:head]} ... {text[-(most - head - 5) :]}"


def internal_error(error: Exception) -> Response:
    """Log an unexpected exception and return its 500."""
    log_failure(error)
    return error_response(500, "internal_error", INTERNAL_ERROR)


def log_failure(error: BaseException) -> None:
    """Log the place of an exception.

    Its message may quote what a user sent, so above DEBUG only types and places are written.
    """
    log.error("%s", describe_stack(error))
    log.debug("the same, with its message", exc_info=error)


def describe_stack(error: BaseException) -> str:
    """Return the traceback of an exception and of its causes, without their messages."""
    parts = []
    current: BaseException | None = error
    while current is not None:
        frames = "".join(traceback.format_tb(current.__traceback__))
        parts.append(f"{type(current).__module__}.{type(current).__qualname__}\n{frames}")
        current = current.__cause__ or (
            None if current.__suppress_context__ else current.__context__
        )
    return "\ncaused by ".join(parts)


def install(app: FastAPI) -> None:
    """Install handlers that give every refusal the same form."""
    app.exception_handler(errors.CorralError)(_corral_error)
    app.exception_handler(RequestValidationError)(_framework_validation)
    app.exception_handler(HTTPException)(_http_exception)


async def _corral_error(request: Request, error: errors.CorralError) -> Response:
    if isinstance(error, InvalidBody):
        await add_values(error, request)
    if isinstance(error, errors.NotFound):
        return response_of(error, getattr(request.scope.get("route"), "not_found_status", None))
    return response_of(error)


def response_of(
    error: errors.CorralError,
    status_here: int | None = None,
    more: Mapping[str, Any] | None = None,
) -> Response:
    """Return the response of an error; log it if it concerns the operator.

    Args:
        error: The exception.
        status_here: Another status than the table's.
        more: More keys of the body.
    """
    status, code = status_of(error)
    status = status_here or status
    if isinstance(error, errors.ContractViolation):
        log_failure(error)
    elif status >= 500 or status == 424:
        log.warning("%s: %s (request %s)", code, error, request_id.get() or "-")
    return error_response(
        status,
        code,
        INTERNAL_ERROR if status == 500 else str(error),
        param=error.field,
        details=error.details if isinstance(error, InvalidBody) else None,
        retryable=error.retryable,
        headers={"www-authenticate": 'Bearer realm="corral"'} if status == 401 else None,
        more=more,
    )


async def _framework_validation(request: Request, error: RequestValidationError) -> Response:
    return await _corral_error(request, from_framework(error.errors()))


async def _http_exception(request: Request, error: HTTPException) -> Response:
    message, headers = str(error.detail), dict(error.headers or {})
    if error.status_code == 404:
        route = f"{request.method} {shorten(request.url.path, 200)}"
        message = f"There is no route {route}. {instead_of(request) or 'See /docs.'}"
    elif error.status_code == 405:
        allowed = ", ".join(_allowed(request))
        message = f"{request.method} is not allowed here. Use {allowed}."
        headers["allow"] = allowed
    code = _CODES.get(error.status_code) or HTTPStatus(error.status_code).name.lower()
    return error_response(error.status_code, code, message, headers=headers)


def _allowed(request: Request) -> Iterator[str]:
    """Yield the methods of a path; the exception only has the methods of one route."""
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes):
            yield method
