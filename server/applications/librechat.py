"""LibreChat's file service, rag_api: its files are documents of one vector DB.

A file belongs to the user who sent it. Other users find it only through the agent that it was sent
for, its `entity_id`.
"""

from __future__ import annotations

import base64
import mimetypes
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request, UploadFile
from pydantic import BaseModel, Field, RootModel
from starlette.types import Scope

from corral.api.chunks import Chunk
from corral.api.document_names import title_of
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import Conflict, InvalidRequest, NotFound
from corral.api.filters import Comparison, Compound, Filter
from corral.api.rag import URL, RAGDocument
from corral.api.vector_dbs import VectorDBRegistration
from corral.api.wire import Identifier, Strict
from corral.providers.base.config import ServerSettings
from corral.providers.base.documents import (
    WHOLE,
    StoredDocument,
    delete_document,
    list_documents,
    read_document,
)
from corral.providers.ingestion.read.mime_types import chosen_type
from corral.providers.stack.stack import Stack
from corral.server.access import audit
from corral.server.access.roles import PUBLIC, READER, WRITER
from corral.server.applications.tokens import USER, with_user
from corral.server.limits import check_max_chunks
from corral.server.routers import Application, refusals, with_bearer
from corral.server.routing import LimitsOf, NotFoundRoute, RetrievalOf, StackOf

PUBLIC_USER = "public"
"""The owner of files sent without a user."""
PAGE = 1000
"""Documents per page of ids."""


class LibreChatError(BaseModel):
    """An error in the format of LibreChat's service."""

    detail: str


router = APIRouter(
    prefix="/librechat",
    tags=["LibreChat"],
    route_class=NotFoundRoute,
    responses=refusals(LibreChatError),
)


class ServiceHealth(BaseModel):
    """The service is running."""

    status: str = "UP"


class Embedded(BaseModel):
    """The result of storing a file."""

    status: bool = True
    message: str = "File processed successfully."
    file_id: str
    filename: str
    known_type: bool = Field(description="True if Corral can read this type of file.")


class LibreChatDocument(BaseModel):
    """A chunk as a LangChain document."""

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
    """The result of a deletion."""

    message: str


Found = list[list[LibreChatDocument | float]]
"""Pairs of a chunk and its distance."""
FileIds = Annotated[list[Identifier], Query(min_length=1, max_length=1000)]


@router.get("/health", summary="Is the service up? (LibreChat)", dependencies=[PUBLIC])
async def health() -> ServiceHealth:
    """Return UP."""
    return ServiceHealth()


@router.get("/ids", summary="List the files (LibreChat)")
async def ids(request: Request, stack: StackOf) -> list[str]:
    """Return the ids of the user's files."""
    index = await _index(stack)
    file_ids: list[str] = []
    more = index is not None
    while index and more:
        page = await list_documents(index, file_ids[-1] if file_ids else "", PAGE)
        file_ids += [each.document_id for each in page.items]
        more = page.has_more
    if index is None or _user(request) is None:
        return file_ids
    return [name for name in file_ids if await _file(request, index, name)]


@router.get("/documents", summary="Show files (LibreChat)")
async def documents(request: Request, stack: StackOf, ids: FileIds) -> list[LibreChatDocument]:
    """Return the chunks of files, in order."""
    _, files = await _files(request, stack, ids)
    chunks = [chunk for each in files for chunk in each.chunks]
    audit.current().returns(_name(stack), [chunk.chunk_id for chunk in chunks])
    return [_document(chunk) for chunk in chunks]


@router.delete("/documents", summary="Delete files (LibreChat)", dependencies=[WRITER])
async def delete(request: Request, ids: FileNames, stack: StackOf) -> Deleted:
    """Delete files; if one is unknown, none is deleted."""
    index, _ = await _files(request, stack, ids.root)
    for name in ids.root:
        await delete_document(index, name)
    return Deleted(message=f"Documents for {len(ids.root)} files deleted successfully")


@router.post("/embed", summary="Store a file (LibreChat)", dependencies=[WRITER])
async def embed(
    request: Request,
    stack: StackOf,
    file_id: Annotated[Identifier, Form()],
    file: UploadFile,
    entity_id: Annotated[str | None, Form()] = None,
) -> Embedded:
    """Parse, split, embed and store a file; it replaces the user's file with the same id."""
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
    stored = await read_document(await _made(stack), file_id, WHOLE)
    if stored and not _may(request, stored):
        raise Conflict(f"The file_id {file_id!r} is another user's.", field="file_id")
    try:
        await stack.ingestion.insert([document], _name(stack))
    except InvalidRequest as error:
        if error.field is None or not error.field.endswith("mime_type"):
            raise
        reply = {"status": False, "message": str(error), "known_type": False}
        return Embedded(file_id=file_id, filename=filename, **reply)
    return Embedded(file_id=file_id, filename=filename, known_type=True)


@router.post("/query", summary="Query a file (LibreChat)", dependencies=[READER])
async def query(
    request: Request, question: FileQuery, stack: StackOf, search: RetrievalOf, limits: LimitsOf
) -> Found:
    """Return the best chunks of a file, each with its distance, 1 - score: lower is better."""
    check_max_chunks(question.k, limits, field="k")
    wanted = _of(request, [question.file_id], question.entity_id)
    return await _search(stack, search, question.query, question.k, wanted)


@router.post("/query_multiple", summary="Query several files (LibreChat)", dependencies=[READER])
async def query_multiple(
    request: Request, question: FilesQuery, stack: StackOf, search: RetrievalOf, limits: LimitsOf
) -> Found:
    """Return the best chunks of several files, each with its distance: lower is better."""
    check_max_chunks(question.k, limits, field="k")
    wanted = _of(request, question.file_ids)
    hits = await _search(stack, search, question.query, question.k, wanted)
    if not hits:
        raise NotFound("No documents found for the given query.")
    return hits


async def _search(
    stack: Stack, search: RetrievalOf, question: str, k: int, wanted: Filter
) -> Found:
    if await _index(stack) is None:
        return []
    hits = (await search.search(_name(stack), question, k=k, filters=wanted)).hits
    return [[_document(hit.chunk), 1.0 - hit.score] for hit in hits]


def _document(chunk: Chunk) -> LibreChatDocument:
    recorded = chunk.chunk_metadata.page if chunk.chunk_metadata else None
    metadata = {"source": title_of(chunk), "page": recorded, **chunk.metadata}
    return LibreChatDocument(page_content=chunk.content, metadata=metadata)


def _of(request: Request, file_ids: list[str], entity_id: str | None = None) -> Filter:
    """Return a filter for the visible chunks of files, including those of an agent."""
    named = Comparison("in", "file_id", tuple(file_ids))
    user = _user(request)
    if user is None:
        return named
    own = Comparison("in", "user_id", (user, PUBLIC_USER))
    agents = (Comparison("eq", "entity_id", entity_id),) if entity_id else ()
    return Compound("and", (named, Compound("or", (own, *agents))))


async def _files(
    request: Request, stack: Stack, file_ids: list[str]
) -> tuple[EmbeddingIndex, list[StoredDocument]]:
    """Return the index and the files that the caller may see.

    Raises:
        NotFound: A file does not exist.
    """
    if index := await _index(stack):
        files = [await _file(request, index, name) for name in file_ids]
        if all(files):
            return index, [each for each in files if each]
    raise NotFound("The specified file_ids were not found.", field="ids")


async def _file(request: Request, index: EmbeddingIndex, file_id: str) -> StoredDocument | None:
    file = await read_document(index, file_id, WHOLE)
    return file if file and _may(request, file) else None


def _may(request: Request, file: StoredDocument) -> bool:
    user = _user(request)
    return user is None or file.metadata.get("user_id") in (user, PUBLIC_USER)


async def _index(stack: Stack) -> EmbeddingIndex | None:
    """Return the index of LibreChat's files, or None before the first one.

    Record it for the audit log.
    """
    name = _name(stack)
    audit.current().names(name)
    return await stack.index(name) if await stack.registered([name]) else None


async def _made(stack: Stack) -> EmbeddingIndex:
    """Return the index of LibreChat's files; register it if the operator has not."""
    if index := await _index(stack):
        return index
    name = _name(stack)
    await stack.register(VectorDBRegistration(vector_db_id=name))
    return await stack.index(name)


def _name(stack: Stack) -> str:
    return stack.config.server.librechat.vector_db_id


def _user(request: Request) -> str | None:
    """Return LibreChat's user, None if its tokens are not read."""
    user: str | None = request.scope.get(USER)
    return user


def _with_key(scope: Scope, settings: ServerSettings) -> Scope:
    """Return a request with the operator's key in place of LibreChat's token."""
    path = scope["path"]
    if path.startswith("/librechat/") and path != "/librechat/health":
        return with_user(scope, settings.librechat)
    return with_bearer(scope, settings)


APPLICATION = Application(
    router,
    paths=("/librechat",),
    refusal=lambda status, code, message: {"detail": message},
    with_key=_with_key,
    description="LibreChat's file service.",
)
