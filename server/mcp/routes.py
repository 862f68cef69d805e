"""MCP at /mcp: streamable HTTP, without sessions, so any number of servers can share a name.

Versions of the protocol with and without a handshake are served. Hosts, body sizes and keys are
checked as for every other route, before the SDK sees a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.types import Receive, Scope, Send

from corral.server.access.roles import READER
from corral.server.limits import MIB
from corral.server.mcp import check_installed
from corral.server.routing import ContractRoute
from corral.server.tools.tool import ToolServices, ToolServicesOf

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

# JSON-RPC has its own schema, which OpenAPI cannot express.
router = APIRouter(route_class=ContractRoute, include_in_schema=False)


def _services_of(context: Any) -> ToolServices:
    services: ToolServices = context.request.state.services
    return services


class Sessions:
    """The SDK's part of a running app, started by the first request: its import takes long."""

    def __init__(self, app: FastAPI) -> None:
        self._config = app.state.stack.config
        self._lock = asyncio.Lock()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._manager: StreamableHTTPSessionManager | None = None

    async def manager(self) -> StreamableHTTPSessionManager:
        """Return the running session manager.

        Raises:
            MissingDependency: The package `mcp` is not installed.
        """
        async with self._lock:
            if self._manager is None:
                self._manager = await asyncio.to_thread(self._make)
                started = asyncio.Event()
                self._task = asyncio.create_task(self._run(self._manager, started))
                await started.wait()
        return self._manager

    def _make(self) -> StreamableHTTPSessionManager:
        check_installed()
        from mcp.server.streamable_http_manager import (  # noqa: PLC0415 - an extra may be absent
            StreamableHTTPSessionManager,
        )

        from corral.server.mcp.protocol import mcp_server  # noqa: PLC0415 - it needs the extra

        settings = self._config.server
        return StreamableHTTPSessionManager(
            mcp_server(settings.tools, _services_of),
            json_response=True,
            stateless=True,
            max_request_body_size=int(settings.limits.max_body_mib * MIB),
        )

    async def _run(self, manager: StreamableHTTPSessionManager, started: asyncio.Event) -> None:
        """Hold the manager's tasks; the task that starts them must also end them."""
        async with manager.run():
            started.set()
            await self._stop.wait()

    async def close(self) -> None:
        """End the running sessions."""
        self._stop.set()
        if self._task is not None:
            await self._task


@asynccontextmanager
async def sessions(app: FastAPI) -> AsyncIterator[None]:
    """Hold the app's MCP sessions while it runs; needs `app.state.stack`."""
    app.state.mcp = Sessions(app)
    try:
        yield
    finally:
        await app.state.mcp.close()


class _Handled(Response):
    """The SDK's response to a request."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        super().__init__()
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._manager.handle_request(scope, receive, send)


@router.post("/mcp", dependencies=[READER])  # A tool that writes checks for a higher role itself.
async def mcp(request: Request, services: ToolServicesOf) -> Any:
    """Answer a message of the Model Context Protocol (JSON-RPC), with or without a handshake."""
    manager = await request.app.state.mcp.manager()
    request.state.services = services
    return _Handled(manager)
