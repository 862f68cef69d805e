"""Pages of stored PDFs: as pictures, and the areas of passages on them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from corral.api.errors import InvalidRequest, NotFound
from corral.api.wire import Identifier
from corral.providers.ingestion.pages import DocumentPages
from corral.server.access import audit
from corral.server.errors import ERRORS
from corral.server.routing import ContractRoute, StackOf

MAX_WIDTH = 2000
MAX_PASSAGES = 20
MAX_PAGE = 1_000_000

# A document is replaced under its id, so a picture is kept only for a while, and by no proxy.
_HEADERS = {
    "cache-control": "private, max-age=300",
    "vary": "authorization",
    "content-security-policy": "default-src 'none'; sandbox",
    "x-content-type-options": "nosniff",
}

router = APIRouter(
    prefix="/v1/pages", tags=["Documents"], route_class=ContractRoute, responses=ERRORS
)

VectorDBId = Annotated[Identifier, Query(description="Vector DB of the document.")]
DocumentId = Annotated[Identifier, Query(description="Id of the document.")]
Page = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Number of the page, from 1.")]


class PageArea(BaseModel):
    """A rectangle on a page, in percent of the page, from the top left."""

    left: float
    top: float
    width: float
    height: float


class PageAreas(BaseModel):
    """The areas of passages on a page."""

    page: int
    page_count: int = Field(description="Number of pages of the document.")
    areas: list[PageArea] = Field(
        description="About one a line; empty: the passages were not found on the page."
    )


@router.get(
    "/picture",
    summary="Show a page of a PDF",
    response_class=Response,
    responses={200: {"content": {"image/png": {}}, "description": "The page as a picture."}},
)
async def picture(
    stack: StackOf,
    vector_db_id: VectorDBId,
    document_id: DocumentId,
    page: Page = 1,
    width: Annotated[int, Query(ge=100, le=MAX_WIDTH, description="In pixels.")] = 1200,
) -> Response:
    """Return a page of an uploaded PDF, to those who may read all of the document."""
    pages = DocumentPages(stack, stack.ingestion, vector_db_id, document_id)
    made = await pages.picture(page, width)
    return Response(made, media_type="image/png", headers=_HEADERS)


@router.get("/areas", summary="Find passages on a page of a PDF")
async def areas(
    stack: StackOf,
    vector_db_id: VectorDBId,
    document_id: DocumentId,
    page: Page = 1,
    chunk_id: Annotated[
        list[Identifier] | None,
        Query(max_length=MAX_PASSAGES, description="Chunks of the document to find."),
    ] = None,
) -> PageAreas:
    """Return where chunks are on a page, by the positions of their letters."""
    index = await stack.index(vector_db_id)
    chunks = await index.get_chunks(chunk_id or [])
    if any(chunk.document_id != document_id for chunk in chunks):
        raise InvalidRequest(
            "A chunk_id is of another document.", field="chunk_id", hint="Send its own chunks."
        )
    if len(chunks) < len(set(chunk_id or [])):
        raise NotFound("There is no such chunk.", field="chunk_id")
    audit.current().returns(vector_db_id, [chunk.chunk_id for chunk in chunks])
    pages = DocumentPages(stack, stack.ingestion, vector_db_id, document_id)
    marks, count = await pages.areas(page, chunks)
    rectangles = [PageArea(**each._asdict()) for each in marks]
    return PageAreas(page=page, page_count=count, areas=rectangles)
