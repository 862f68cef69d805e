"""Paths below a vector DB: finds the end of its id and the start of a document's id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import parse_qs, unquote

from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from corral.api.errors import Conflict, ProviderError
from corral.api.wire import MAX_ID_LENGTH
from corral.server.routing import ContractRoute, stack_of

PREFIX = "/v1/vector-dbs/"
MARKER = "documents"
REGISTERED = "corral.registered"
PAGE_PARAMETERS = frozenset({"after", "limit", "names", "details", "q", "sort", "order", "offset"})
"""What only a request for a list of documents has."""


class DocumentRoute(ContractRoute):
    """A route below a vector DB, whose id may contain slashes and the word `documents`.

    The path is split at unescaped slashes, so slashes of ids should be sent as %2F. If ids are sent
    unescaped, as by Llama Stack's clients, the split that yields a registered vector DB is used. If
    the whole path is a registered id, it names that vector DB.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match a request; return the match, and a scope with the ids in its path."""
        match, child = super().matches(scope)
        if match is Match.NONE:
            return match, child
        located = _located(scope)
        if located is None or (located[1] is None) == ("document_id" in self.param_convertors):
            return Match.NONE, {}
        names = dict(zip(("vector_db_id", "document_id"), located, strict=True))
        wanted = {name: names[name] for name in self.param_convertors}
        return match, {**child, "path_params": {**child.get("path_params", {}), **wanted}}


def _located(scope: Scope) -> tuple[str, str | None] | None:
    """Return the vector DB and the document that a path names; None if it names neither.

    Raises:
        Conflict: A deletion could mean a document or a whole vector DB.
    """
    tail = _tail(scope)
    splits = list(_splits(tail))
    if not splits:
        return None
    registered = scope[REGISTERED]
    chosen = next((split for split in splits if split[0] in registered), None)
    whole = unquote(tail)
    if whole in registered and not _asks_for_a_page(scope):
        if scope["method"] == "DELETE" and chosen is not None and chosen[1] is not None:
            raise Conflict(
                f"This is a document of {chosen[0]!r} and the vector DB {whole!r}.",
                hint="To unregister the vector DB, write the slashes of its id as %2F.",
                field="vector_db_id",
            )
        return None
    return chosen or splits[0]


class RegisteredIds:
    """ASGI middleware that looks up the registered ids among those that a path may name.

    Matching routes cannot await, so the lookup happens before.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look up the ids and pass the request on."""
        if scope["type"] == "http" and PREFIX in scope["path"] and MARKER in scope["path"]:
            scope[REGISTERED] = await self._registered(scope)
        await self._app(scope, receive, send)

    async def _registered(self, scope: Scope) -> set[str]:
        stack = stack_of(scope)
        tail = _tail(scope)
        named = {unquote(tail), *(vector_db_id for vector_db_id, _ in _splits(tail))}
        with suppress(ProviderError):  # the route will meet the same error, and report it
            return await stack.registered(named)
        return set()


def _tail(scope: Scope) -> str:
    raw = scope.get("raw_path") or scope["path"].encode()
    return str(raw.decode("ascii", "replace").partition("?")[0].partition(PREFIX)[2])


def _splits(tail: str) -> Iterator[tuple[str, str | None]]:
    """Yield every split of a path into an id, `documents` and possibly a document's id."""
    parts = tail.split("/")
    for place in range(1, len(parts)):
        if parts[place] == MARKER:
            vector_db_id, rest = unquote("/".join(parts[:place])), "/".join(parts[place + 1 :])
            if len(vector_db_id) > MAX_ID_LENGTH:
                return
            if rest or place == len(parts) - 1:
                yield vector_db_id, unquote(rest) or None


def _asks_for_a_page(scope: Scope) -> bool:
    parameters = parse_qs(scope.get("query_string", b"").decode("ascii", "replace"))
    return bool(PAGE_PARAMETERS & parameters.keys())
