"""Shared parts of the routes of OpenAI's wire: parsing of paths, and statuses of refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import Depends, Response
from starlette.routing import Match
from starlette.types import Scope

from corral.providers.stack.vector_store_table import VectorStore
from corral.providers.stack.vector_stores import VectorStores
from corral.server.routing import ContractRoute, PathId, StackOf

ALIAS = "/v1/openai/v1"
"""The prefix under which Llama Stack's clients call OpenAI's routes."""

POLL_HEADER = "openai-poll-after-ms"
POLL_MILLISECONDS = "500"
"""Milliseconds between polls; the clients' `..._and_poll` read it."""

_SLASH = "\0"  # in no id


class OpenAIRoute(ContractRoute):
    """A route of OpenAI's wire: an unknown id is a 404, and an id may contain slashes.

    Slashes of ids should be sent as %2F. If clients send them unescaped, as Llama Stack's do, an id
    extends up to the route's final words.
    """

    @property
    def not_found_status(self) -> int:  # type: ignore[override]  # nothing assigns to it
        """Under the alias it is 400, which Llama Stack's clients expect."""
        return 400 if self.path.startswith(ALIAS) else 404

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match a request; return the match, and a scope with the ids in its path."""
        raw = bytes(scope.get("raw_path") or b"").decode("ascii", "replace").partition("?")[0]
        if "%2f" not in raw.lower() or "%00" in raw:
            return super().matches(scope)
        parts = (unquote(part).replace("/", _SLASH) for part in raw.split("/"))
        match, child = super().matches({**scope, "path": "/".join(parts)})
        names: Mapping[str, Any] = child.get("path_params", {})
        return match, {**child, "path_params": {n: _whole(v) for n, v in names.items()}}


def _whole(value: Any) -> Any:
    return value.replace(_SLASH, "/") if isinstance(value, str) else value


def json_response(value: Any) -> Response:
    """Return a JSON response in ASCII, because a language model may emit half a character."""
    return Response(json.dumps(value), media_type="application/json")


async def _vector_stores(stack: StackOf) -> VectorStores:
    return VectorStores(stack)


StoresOf = Annotated[VectorStores, Depends(_vector_stores)]


async def _usable(vector_store_id: PathId, stores: StoresOf) -> VectorStore:
    return await stores.usable(vector_store_id)


StoreOf = Annotated[VectorStore, Depends(_usable)]
"""The store that a path names; one that is unknown or has expired is refused."""
