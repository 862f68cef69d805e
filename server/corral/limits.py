"""What the operator allows."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from corral.providers.config import Limits
from corral.providers.document_limits import DocumentLimits
from corral.server.errors import ERRORS
from corral.server.routing import ContractRoute, StackOf

router = APIRouter(prefix="/v1", tags=["Inspect"], route_class=ContractRoute, responses=ERRORS)


class LimitsReply(BaseModel):
    """What the operator allows, as run.yaml has it."""

    server: Limits = Field(description="Of one request: `server.limits`.")
    document: DocumentLimits = Field(description="Of one document: `rag.document_limits`.")


@router.get("/limits", summary="What the operator allows")
async def limits(stack: StackOf) -> LimitsReply:
    """Return how much one request and one document may have."""
    config = stack.config
    return LimitsReply(server=config.server.limits, document=config.rag.document_limits)
