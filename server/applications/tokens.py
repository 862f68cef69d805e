"""LibreChat's tokens: it signs each request with a secret that it shares with its file service.

A valid token is replaced by the operator's API key for LibreChat, so the server sees one principal;
the user in the token decides which files are searched.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

from corral.api.errors import Unauthenticated
from corral.providers.base.config import LibreChatSettings

USER = "corral.librechat_user"
"""Key of the token's user in a scope."""


def with_user(scope: Scope, settings: LibreChatSettings) -> Scope:
    """Return a request with its user and the operator's key in place of the token.

    Raises:
        Unauthenticated: The token is missing, malformed, of another secret, or expired.
    """
    if settings.jwt_secret is None:
        return scope
    given = Headers(scope=scope).get("authorization", "")
    scheme, _, token = given.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated("Missing or invalid Authorization header.")
    claims = verified(token.strip(), settings.jwt_secret.get_secret_value(), time.time())
    others = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
    if settings.api_key is not None:
        key = f"Bearer {settings.api_key.get_secret_value()}"
        others.append((b"authorization", key.encode("latin-1")))
    return {**scope, "headers": others, USER: claims["id"]}


def verified(token: str, secret: str, now: float) -> dict[str, Any]:
    """Return the claims of an unexpired token signed with HS256.

    Raises:
        Unauthenticated: The token is malformed, forged or expired.
    """
    refusal = Unauthenticated("Invalid or expired token.")
    try:
        signed, _, signature = token.rpartition(".")
        head, payload = (json.loads(_decoded(part)) for part in signed.split("."))
        made = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest()
        if head["alg"] != "HS256" or not hmac.compare_digest(made, _decoded(signature)):
            raise refusal
        if float(payload["exp"]) <= now or not isinstance(payload["id"], str):
            raise refusal
    except (ValueError, KeyError, TypeError, RecursionError):
        raise refusal from None
    return dict(payload)


def _decoded(part: str) -> bytes:
    return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
