"""`corral mcp`: the protocol over standard input and output, for desktop agents."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from corral.api.principal import Principal
from corral.providers.base.config import RunConfig, data_home, load_config
from corral.providers.rag.search import Retrieval
from corral.providers.rag.tool import RagTool
from corral.providers.stack.stack import Stack
from corral.server.mcp import check_installed
from corral.server.tools.tool import ToolServices


def services_of(stack: Stack) -> ToolServices:
    """Return the services of tools in the user's own process."""
    server = stack.config.server
    here = f"http://{server.host}:{server.port}"
    return ToolServices(
        stack,
        Retrieval(stack, server.limits.max_k),
        RagTool(stack, limits=server.limits),
        (server.tools.public_url or here).rstrip("/"),
    )


def serve_stdio(path: Path | None, home: Path | None, operator: Principal) -> None:
    """Serve MCP until standard input ends, as `operator` may see it.

    Raises:
        MissingDependency: The package `mcp` is not installed.
        ConfigError: The configuration cannot be read or cannot work.
    """
    check_installed()
    folder = home or data_home()
    asyncio.run(_serve(load_config(path, folder), folder, operator))


async def _serve(config: RunConfig, home: Path, operator: Principal) -> None:
    from mcp.server.stdio import stdio_server  # noqa: PLC0415 - an extra may be absent

    from corral.server.mcp.protocol import mcp_server  # noqa: PLC0415 - it needs the extra

    stack = Stack(config, home)
    try:
        services = services_of(stack.for_principal(operator))
        server: Any = mcp_server(config.server.tools, lambda _: services)
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    finally:
        await stack.close()
