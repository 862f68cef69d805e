"""The gate: identifies the caller of each request before its body is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, cast

from fastapi import Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from corral.api.errors import CorralError
from corral.api.principal import Principal
from corral.providers.base.config import ServerSettings
from corral.providers.state.allowances import Allowances
from corral.providers.state.state import State
from corral.server.access.audit import AuditLog, Entry, begin
from corral.server.access.callers import Caller, Callers
from corral.server.access.quotas import Quotas, TooMany
from corral.server.access.roles import PRINCIPAL, Public, declared
from corral.server.errors import error_response, response_of
from corral.server.limits import refuse
from corral.server.request import REQUEST_ID, template_of


@dataclass(slots=True)
class Access:
    """Callers, audit log and quotas; a running app has them as `app.state.access`."""

    callers: Callers
    audit: AuditLog
    quotas: Quotas

    @classmethod
    def of(
        cls, settings: ServerSettings, home: Path, state: State, operator: Principal | None
    ) -> Self:
        """Build it from a configuration; see `Callers`."""
        shared = None if state.place.is_sqlite else Allowances(state)
        audit = AuditLog(settings.audit, home)
        return cls(Callers(settings, state, operator), audit, Quotas(shared=shared))

    async def close(self) -> None:
        """Close the callers' keys and the audit log."""
        await self.callers.close()
        self.audit.close()


class Gate:
    """ASGI middleware that lets a request in with a principal, or refuses it.

    It covers every path, known or unknown, including mounted applications. A public route gets no
    principal, even with a key. Websockets are closed, because no route uses them.

    Args:
        app: The inner application.
        routes: The routes of the app, including public ones.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[APIRoute]) -> None:
        self.app = app
        self._routes = routes
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
        access = cast(Access, scope["app"].state.access)
        address = str((scope.get("server") or ("",))[0])
        entry = Entry(request_id=scope.get(REQUEST_ID, ""))
        try:
            caller = await access.callers.of(Headers(scope=scope), address)
        except CorralError as error:
            response = response_of(error)
            self._note(access, entry, scope, response.status_code)
            await refuse(response, receive, send)
            return
        entry.principal = scope[PRINCIPAL] = caller.principal
        begin(entry)
        if not caller.known:
            await self.app(scope, receive, send)
            return
        status = 500

        async def sending(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._within_quota(access.quotas, caller, scope, receive, sending)
        finally:
            self._note(access, entry, scope, status)

    async def _within_quota(
        self, quotas: Quotas, caller: Caller, scope: Scope, receive: Receive, send: Send
    ) -> None:
        who = caller.principal
        name = who.key_id or (who.tenant, who.user)
        try:
            await quotas.refill(name, caller.limits)
            admitted = quotas.admit(name, caller.limits)
        except TooMany as error:
            await refuse(_too_many(error), receive, send)
            return
        except CorralError as error:
            await refuse(response_of(error), receive, send)
            return

        async def counting() -> Message:
            message = await receive()
            admitted.count(len(message.get("body", b"")))
            return message

        try:
            with admitted:
                await self.app(scope, counting, send)
        finally:
            await quotas.settle(name, caller.limits)

    def _note(self, access: Access, entry: Entry, scope: Scope, status: int) -> None:
        """Write the audit log's line."""
        entry.action = f"{scope['method']} {template_of(scope, self._routes)}"
        named = scope.get("path_params") or {}
        entry.names(
            *(
                named[key]
                for key in ("vector_db_id", "vector_store_id", "collection")
                if key in named
            )
        )
        access.audit.write(entry, status)


def _too_many(error: TooMany) -> Response:
    return error_response(
        429,
        "rate_limited",
        f"You may send {error.what}. Try again in {error.seconds} s; the operator's setting is "
        f"server.rate_limits.{error.setting}.",
        retryable=True,
        headers={"retry-after": str(error.seconds)},
    )
