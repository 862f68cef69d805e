"""LibreChat's file service, rag_api: its files are documents of one vector DB.

A file belongs to the user who sent it. Others find it only through the agent that it was sent for,
its `entity_id`.
"""

from __future__ import annotations

import base64
import mimetypes
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request, UploadFile
from pydantic import BaseModel, Field, RootModel

from corral.api.chunks import Chunk
from corral.api.errors import Conflict, InvalidRequest, NotFound
from corral.api.filters import Comparison, Compound, Filter
from corral.api.hits import Hit
from corral.api.rag import URL, RAGDocument
from corral.api.vector_dbs import VectorDBRegistration
from corral.api.wire import Identifier, Strict
from corral.providers.documents import (
    WHOLE,
    Page,
    delete_document,
    list_documents,
    read_document,
)
from corral.providers.ingestion.mime_types import chosen_type
from corral.providers.stack import Stack
from corral.server.access import audit
from corral.server.access.roles import PUBLIC, READER, WRITER
from corral.server.applications.forms import LibreChatError, refusals
from corral.server.applications.tokens import USER
from corral.server.limits import check_max_chunks
from corral.server.routing import (
    ContractRoute,
    FormRoute,
    LimitsOf,
    RagToolOf,
    RetrievalOf,
    StackOf,
)
from corral.server.tools.places import title_of

PUBLIC_USER = "public"
"""Whose files are that nobody in particular sent."""
PAGE = 1000
"""Ids that are read at once."""


class LibreChatRoute(ContractRoute):
    """A route whose clients expect 404 for an unknown file; a body may be a form."""

    not_found_status = 404


class UploadRoute(FormRoute, LibreChatRoute):
    """A route of these whose body is a form."""


router = APIRouter(
    prefix="/librechat",
    tags=["LibreChat"],
    route_class=LibreChatRoute,
    responses=refusals(LibreChatError),
)
uploads = APIRouter(
    prefix="/librechat",
    tags=["LibreChat"],
    route_class=UploadRoute,
    responses=refusals(LibreChatError),
)


class ServiceHealth(BaseModel):
    """The service is there."""

    status: str = "UP"


class Embedded(BaseModel):
    """What became of a file."""

    status: bool = True
    message: str = "File processed successfully."
    file_id: str
    filename: str
    known_type: bool = Field(description="Whether files of this kind can be read.")


class LibreChatDocument(BaseModel):
    """A chunk, as LangChain would print it."""

    page_content: str
    metadata: dict[str, Any]


class FileQuery(Strict):
    """A question to one file."""

    query: str = Field(min_length=1)
    file_id: Identifier
    k: int = Field(default=4, ge=1)
    entity_id: str | None = None


class FilesQuery(Strict):
    """A question to several files."""

    query: str = Field(min_length=1)
    file_ids: list[Identifier] = Field(min_length=1, max_length=1000)
    k: int = Field(default=4, ge=1)


class FileNames(RootModel[list[Identifier]]):
    """Files to delete."""

    root: list[Identifier] = Field(min_length=1, max_length=1000)


class Deleted(BaseModel):
    """What is gone."""

    message: str


Found = list[list[LibreChatDocument | float]]
"""Pairs of a chunk and its distance."""
FileIds = Annotated[list[Identifier], Query(min_length=1, max_length=1000)]


@router.get("/health", summary="Is the service up? (LibreChat)", dependencies=[PUBLIC])
async def health() -> ServiceHealth:
    """Return that it is."""
    return ServiceHealth()


@router.get("/ids", summary="List the files (LibreChat)")
async def ids(request: Request, stack: StackOf) -> list[str]:
    """Return the ids of the caller's files."""
    return [name for name in await _all_ids(stack) if await _owned(request, stack, name)]


@router.get("/documents", summary="Show files (LibreChat)")
async def documents(request: Request, stack: StackOf, ids: FileIds) -> list[LibreChatDocument]:
    """Return the chunks of files, in their order."""
    found = [await _chunks(request, stack, name) for name in ids]
    return [_document(chunk) for chunks in found for chunk in chunks]


@router.delete("/documents", summary="Delete files (LibreChat)", dependencies=[WRITER])
async def delete(request: Request, ids: FileNames, stack: StackOf) -> Deleted:
    """Delete files; if one is unknown, none is."""
    for name in ids.root:
        await _chunks(request, stack, name)
    index = await stack.index(_settings(stack).vector_db_id)
    for name in ids.root:
        await delete_document(index, name)
    return Deleted(message=f"Documents for {len(ids.root)} files deleted successfully")


@uploads.post("/embed", summary="Store a file (LibreChat)", dependencies=[WRITER])
async def embed(
    request: Request,
    stack: StackOf,
    rag_tool: RagToolOf,
    file_id: Annotated[Identifier, Form()],
    file: UploadFile,
    entity_id: Annotated[str | None, Form()] = None,
) -> Embedded:
    """Parse, split, embed and store a file; the caller's own of this id is replaced."""
    filename = file.filename or file_id
    guessed = mimetypes.guess_type(filename)[0]
    kind = chosen_type(guessed, file.content_type) or "application/octet-stream"
    data = base64.b64encode(await file.read()).decode()
    owner = {"entity_id": entity_id} if entity_id else {"user_id": PUBLIC_USER}
    if user := _user(request):
        owner["user_id"] = user
    document = RAGDocument(
        document_id=file_id,
        content=URL(uri=f"data:{kind};base64,{data}"),
        metadata={"source": filename, "filename": filename, "file_id": file_id, **owner},
    )
    await _registered(stack)
    if not await _owned(request, stack, file_id, new=True):
        raise Conflict(f"The file_id {file_id!r} is another user's.", field="file_id")
    try:
        await rag_tool.insert([document], _settings(stack).vector_db_id)
    except InvalidRequest as error:
        if error.field is None or not error.field.endswith("mime_type"):
            raise
        told = {"status": False, "message": str(error), "known_type": False}
        return Embedded(file_id=file_id, filename=filename, **told)
    return Embedded(file_id=file_id, filename=filename, known_type=True)


@router.post("/query", summary="Ask a file (LibreChat)", dependencies=[READER])
async def query(
    request: Request, asked: FileQuery, stack: StackOf, search: RetrievalOf, limits: LimitsOf
) -> Found:
    """Return the best chunks of a file, each with its distance, 1 - score: lower is better."""
    check_max_chunks(asked.k, limits, field="k")
    wanted = _of(request, [asked.file_id], asked.entity_id)
    return await _search(stack, search, asked.query, asked.k, wanted)


@router.post("/query_multiple", summary="Ask several files (LibreChat)", dependencies=[READER])
async def query_multiple(
    request: Request, asked: FilesQuery, stack: StackOf, search: RetrievalOf, limits: LimitsOf
) -> Found:
    """Return the best chunks of several files, each with its distance: lower is better."""
    check_max_chunks(asked.k, limits, field="k")
    wanted = _of(request, asked.file_ids)
    found = await _search(stack, search, asked.query, asked.k, wanted)
    if not found:
        raise NotFound("No documents found for the given query.")
    return found


async def _search(
    stack: Stack, search: RetrievalOf, question: str, k: int, wanted: Filter
) -> Found:
    name = _settings(stack).vector_db_id
    if not await stack.registered([name]):
        return []
    hits = (await search.search(name, question, k=k, filters=wanted)).hits
    return [_found(hit) for hit in hits]


def _found(hit: Hit) -> list[LibreChatDocument | float]:
    return [_document(hit.chunk), 1.0 - hit.score]


def _document(chunk: Chunk) -> LibreChatDocument:
    recorded = chunk.chunk_metadata.page if chunk.chunk_metadata else None
    metadata = {"source": title_of(chunk), "page": recorded, **chunk.metadata}
    return LibreChatDocument(page_content=chunk.content, metadata=metadata)


def _of(request: Request, file_ids: list[str], entity_id: str | None = None) -> Filter:
    """Return the filter for chunks of files that the caller may see, and those of an agent."""
    named = Comparison("in", "file_id", tuple(file_ids))
    user = _user(request)
    if user is None:
        return named
    own = Comparison("in", "user_id", (user, PUBLIC_USER))
    agents = (Comparison("eq", "entity_id", entity_id),) if entity_id else ()
    return Compound("and", (named, Compound("or", (own, *agents))))


async def _chunks(request: Request, stack: Stack, file_id: str) -> list[Chunk]:
    """Return the chunks of a file that the caller may see.

    Raises:
        NotFound: There is none.
    """
    name = _settings(stack).vector_db_id
    if await stack.registered([name]):
        index = await stack.index(name)
        found = await read_document(index, file_id, WHOLE)
        entry = audit.current()
        entry.names(name)
        if found is not None and _may(request, found.metadata):
            entry.returns(name, [chunk.chunk_id for chunk in found.chunks])
            return list(found.chunks)
    raise NotFound("The specified file_ids were not found.", field="ids")


async def _owned(request: Request, stack: Stack, file_id: str, *, new: bool = False) -> bool:
    """Return True if the caller may see a file; without users everybody may.

    Args:
        new: What to return for a file that is not there.
    """
    if _user(request) is None:
        return True
    index = await stack.index(_settings(stack).vector_db_id)
    found = await read_document(index, file_id, Page(0, 1))
    return new if found is None else _may(request, found.metadata)


def _may(request: Request, metadata: dict[str, Any]) -> bool:
    user = _user(request)
    return user is None or metadata.get("user_id") in (user, PUBLIC_USER)


async def _all_ids(stack: Stack) -> list[str]:
    name = _settings(stack).vector_db_id
    if not await stack.registered([name]):
        return []
    index = await stack.index(name)
    page = await list_documents(index, "", PAGE)
    names = [each.document_id for each in page.items]
    while page.has_more:
        page = await list_documents(index, page.last_id, PAGE)
        names += [each.document_id for each in page.items]
    return names


async def _registered(stack: Stack) -> None:
    """Register the vector DB of LibreChat's files, if the operator has not."""
    name = _settings(stack).vector_db_id
    if not await stack.registered([name]):
        model = stack.default_model()
        await stack.register(VectorDBRegistration(vector_db_id=name, embedding_model=model))


def _settings(stack: Stack) -> Any:
    return stack.config.server.librechat


def _user(request: Request) -> str | None:
    """Return LibreChat's user, None where its tokens are not read."""
    user: str | None = request.scope.get(USER)
    return user
