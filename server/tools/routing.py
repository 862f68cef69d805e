"""How a route comes by what its tools work with."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from corral.server.routing import LimitsOf, RagToolOf, RetrievalOf, StackOf
from corral.server.tools.tool import ToolServices


async def _services(
    request: Request, stack: StackOf, retrieval: RetrievalOf, rag_tool: RagToolOf, limits: LimitsOf
) -> ToolServices:
    settings = stack.config.server.tools
    base_url = settings.public_url or str(request.base_url)
    return ToolServices(stack, retrieval, rag_tool, limits, settings, base_url.rstrip("/"))


ToolServicesOf = Annotated[ToolServices, Depends(_services)]
"""What the tools of a request work with, as its caller may see it."""
