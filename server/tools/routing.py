"""How a route comes by what its tools work with."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from corral.server.routing import LimitsOf, RagToolOf, RetrievalOf, StackOf
from corral.server.tools.tool import Desk


async def _desk(
    request: Request, stack: StackOf, retrieval: RetrievalOf, rag_tool: RagToolOf, limits: LimitsOf
) -> Desk:
    settings = stack.config.server.tools
    base_url = settings.public_url or str(request.base_url)
    return Desk(stack, retrieval, rag_tool, limits, settings, base_url.rstrip("/"))


DeskOf = Annotated[Desk, Depends(_desk)]
"""What the tools of a request work with, as its caller may see it."""
