"""The gate: the one door of the server. Nothing of a request is read before it knows who asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from corral.api.errors import CorralError
from corral.server.access.callers import Callers
from corral.server.access.roles import PRINCIPAL, Public, declared
from corral.server.errors import response_of
from corral.server.limits import refuse


class Gate:
    """ASGI middleware that lets a request in with a principal, or refuses it.

    It holds for every path, known or not, mounted applications included. A public route gets no
    principal, not even with a key. A websocket is closed: there is none.

    Args:
        app: What is behind it. `app.state.callers` says who asks.
        routes: The routes of the app, the public ones among them.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[APIRoute]) -> None:
        self.app = app
        self._public = [r for r in routes if isinstance(declared(r.dependencies), Public)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif any(route.matches(scope)[0] is Match.FULL for route in self._public):
            await self.app(scope, receive, send)
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        callers = cast(Callers, scope["app"].state.callers)
        address = str((scope.get("server") or ("",))[0])
        try:
            caller = await callers.of(Headers(scope=scope), address)
        except CorralError as error:
            await refuse(response_of(error), receive, send)
            return
        scope[PRINCIPAL] = caller.principal
        await self.app(scope, receive, send)
