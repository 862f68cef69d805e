"""Dify's external knowledge API: its knowledge is a vector DB."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from corral.api.document_names import title_of
from corral.api.wire import Identifier, NullsAreDefaults
from corral.server.access.roles import READER
from corral.server.applications.conditions import Conditions, as_filter
from corral.server.limits import check_max_chunks
from corral.server.routers import Application, refusals
from corral.server.routing import LimitsOf, NotFoundRoute, RetrievalOf, StackOf

_MALFORMED = "Authorization header"


class DifyError(BaseModel):
    """An error in Dify's format."""

    error_code: int = Field(
        description="1001: malformed Authorization header; 1002: wrong key; 2001: unknown "
        "knowledge; else the HTTP status."
    )
    error_msg: str


def _refusal(status: int, code: str, message: str) -> dict[str, Any]:
    """Return an error in Dify's format; Dify shows `error_msg` to its users."""
    number = status
    if status == 401:
        number = 1001 if _MALFORMED in message.partition(". ")[0] else 1002
    elif status == 403:
        number = 1002
    elif code == "not_found":
        number = 2001
    return {"error_code": number, "error_msg": message}


router = APIRouter(
    tags=["Dify"], route_class=NotFoundRoute, responses=refusals(DifyError), dependencies=[READER]
)
APPLICATION = Application(
    router,
    paths=("/v1/dify", "/retrieval"),
    refusal=_refusal,
    description="Vector DBs as Dify's external knowledge.",
)


class RetrievalSetting(NullsAreDefaults):
    """Limits of the result."""

    model_config = ConfigDict(extra="ignore")

    top_k: int = Field(default=5, ge=1, description="At most `server.limits.max_k`.")
    score_threshold: float | None = Field(
        default=None, ge=0, le=1, description="Minimum score, on Corral's scale."
    )


class DifyRequest(NullsAreDefaults):
    """A query in Dify's format."""

    # Unknown fields are allowed: newer versions send more than they document.
    model_config = ConfigDict(extra="ignore")

    knowledge_id: Identifier = Field(description="Id of a vector DB.")
    query: str = Field(min_length=1)
    retrieval_setting: RetrievalSetting = RetrievalSetting()
    metadata_condition: Conditions | None = None


class Record(BaseModel):
    """A chunk."""

    content: str
    score: float
    title: str
    metadata: dict[str, Any] = Field(description="Never null: Dify fails on that.")


class DifyReply(BaseModel):
    """The best chunks, best first."""

    records: list[Record]


@router.post("/v1/dify/retrieval", summary="Retrieve (Dify)")
@router.post("/retrieval", include_in_schema=False)
async def retrieval(
    request: DifyRequest, stack: StackOf, search: RetrievalOf, limits: LimitsOf
) -> DifyReply:
    """Return the best chunks for a question, with the vector DB's registered search settings."""
    setting = request.retrieval_setting
    check_max_chunks(setting.top_k, limits, field="retrieval_setting.top_k")
    index = await stack.index(request.knowledge_id)
    filters = await as_filter(request.metadata_condition, index)
    result = await search.search(
        request.knowledge_id,
        request.query,
        k=setting.top_k,
        filters=filters,
        score_threshold=setting.score_threshold or 0.0,
    )
    return DifyReply(
        records=[
            Record(
                content=hit.chunk.content,
                score=hit.score,
                title=title_of(hit.chunk),
                metadata={"chunk_id": hit.chunk.chunk_id, **hit.chunk.metadata},
            )
            for hit in result.hits
        ]
    )
