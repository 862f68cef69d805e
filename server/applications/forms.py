"""How applications send their key, and how they read a refusal.

Both hold for whatever refuses a request: the gate, a limit, a route that does not exist.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, Field
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from corral.api.errors import Unauthenticated
from corral.providers.base.config import LibreChatSettings
from corral.server.applications.tokens import with_user
from corral.server.errors import ERRORS, response_of
from corral.server.limits import refuse
from corral.server.rewriting import RefusalRewriter, Rewrite

Refusal = Callable[[int, str, str], dict[str, Any]]
"""Makes an application's body of (status, code, message)."""

_MALFORMED = "Authorization header"


def _dify_refusal(status: int, code: str, message: str) -> dict[str, Any]:
    """Return Dify's body: its users read `error_msg`."""
    number = status
    if status == 401:
        number = 1001 if _MALFORMED in message.partition(". ")[0] else 1002
    elif status == 403:
        number = 1002
    elif code == "not_found":
        number = 2001
    return {"error_code": number, "error_msg": message}


def _qdrant_refusal(status: int, code: str, message: str) -> dict[str, Any]:
    return {"result": None, "status": {"error": message}, "time": 0.0}


FORMS: Mapping[str, Refusal] = {
    "/v1/dify": _dify_refusal,
    "/retrieval": _dify_refusal,
    "/qdrant": _qdrant_refusal,
    "/collections": _qdrant_refusal,
    "/v2/rerank": lambda status, code, message: {"message": message},
    "/librechat": lambda status, code, message: {"detail": message},
}
"""By path or its beginning, the form of a refusal."""


class CohereError(BaseModel):
    """An error in Cohere's format."""

    message: str


class DifyError(BaseModel):
    """An error in Dify's format."""

    error_code: int = Field(
        description="1001: malformed Authorization header; 1002: wrong key; 2001: unknown "
        "knowledge; else the HTTP status."
    )
    error_msg: str


class LibreChatError(BaseModel):
    """An error in the format of LibreChat's service."""

    detail: str


class QdrantStatus(BaseModel):
    """The error."""

    error: str


class QdrantError(BaseModel):
    """An error in Qdrant's format."""

    result: None = None
    status: QdrantStatus
    time: float


def refusals(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of routes whose refusals have this form."""
    return {name: {**each, "model": model} for name, each in ERRORS.items()}


_KEY_HEADER = b"api-key"
"""Qdrant's clients send their key here."""


class ApplicationForms:
    """ASGI middleware around the gate, for the paths of `FORMS`."""

    def __init__(self, app: ASGIApp, settings: LibreChatSettings) -> None:
        self._app = app
        self._librechat = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        form = form_of(scope["path"]) if scope["type"] == "http" else None
        if form is None:
            await self._app(scope, receive, send)
            return
        sending = RefusalRewriter(send, _rewriting(form))
        try:
            asked = self._with_key(scope)
        except Unauthenticated as error:
            await refuse(response_of(error), receive, sending)
            return
        await self._app(asked, receive, sending)

    def _with_key(self, scope: Scope) -> Scope:
        """Return a request whose key is where the gate looks for it."""
        if scope["path"].startswith("/librechat/") and scope["path"] != "/librechat/health":
            return with_user(scope, self._librechat)
        return _with_bearer(scope)


def form_of(path: str) -> Refusal | None:
    """Return the form of refusals at a path, None for the common one."""
    found = (name for name in FORMS if path == name or path.startswith(f"{name}/"))
    return next((FORMS[name] for name in found), None)


def _with_bearer(scope: Scope) -> Scope:
    given = Headers(scope=scope)
    key = given.get(_KEY_HEADER.decode())
    if key is None or "authorization" in given:
        return scope
    headers = [*scope["headers"], (b"authorization", b"Bearer " + key.encode("latin-1"))]
    return {**scope, "headers": headers}


def _rewriting(form: Refusal) -> Rewrite:
    """Return what rewrites a refusal in the common form into an application's."""

    def rewrite(status: int, body: bytes) -> tuple[bytes, Mapping[str, str]]:
        try:
            error = json.loads(body)["error"]
            made = form(status, error["code"] or "", error["message"])
        except (ValueError, KeyError, TypeError):
            return body, {}
        return json.dumps(made, ensure_ascii=False).encode("utf-8", "replace"), {}

    return rewrite
