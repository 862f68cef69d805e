"""Vector stores: create, list, show, change, delete."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from typing import Any

from fastapi import APIRouter

from corral.api.errors import CorralError, NotFound
from corral.api.vector_dbs import ChunkingConfig, VectorDBRegistration
from corral.providers.ingestion.jobs.jobs import Job
from corral.providers.stack.stack import Stack
from corral.providers.stack.vector_store_table import VectorStore
from corral.providers.stack.vector_stores import VectorStores, new_identifier
from corral.server.access.roles import ADMIN
from corral.server.errors import ERRORS
from corral.server.openai.attaching import attach, check_files, file_counts, settled
from corral.server.openai.objects import (
    DeletedStore,
    ExpiresAfter,
    FileCounts,
    VectorStoreObject,
)
from corral.server.openai.paging import CursorOf, Page, ends
from corral.server.openai.requests import (
    AUTO,
    EXTENSIONS,
    AttachFile,
    CreateVectorStore,
    UpdateVectorStore,
)
from corral.server.openai.routes import OpenAIRoute, StoresOf
from corral.server.routing import PathId, StackOf

router = APIRouter(
    prefix="/v1/vector_stores", tags=["Vector stores"], route_class=OpenAIRoute, responses=ERRORS
)

NO_FILES = FileCounts(in_progress=0, completed=0, failed=0, cancelled=0, total=0)


@router.post("", summary="Create a vector store")
async def create(request: CreateVectorStore, stack: StackOf, stores: StoresOf) -> VectorStoreObject:
    """Register a vector DB under a new id, attach files to it, and return it.

    A failed request leaves nothing behind. Answers as soon as the files are read, or after
    `ingestion.wait_seconds` with `in_progress`.
    """
    await check_files(stack, request.file_ids)
    store, jobs = await created(request, stack, stores)
    await settled(stack, jobs)
    return await shown(store, stack)


@router.get("", summary="List the vector stores")
async def list_all(cursor: CursorOf, stack: StackOf, stores: StoresOf) -> Page[VectorStoreObject]:
    """Return vector stores, page by page. A vector DB registered through any API is a store."""
    page, has_more = await stores.page(**cursor.model_dump())
    data = [await shown(store, stack) for store in page]
    return Page[VectorStoreObject](data=data, has_more=has_more, **ends(data))


@router.get("/{vector_store_id:id}", summary="Show a vector store")
async def retrieve(vector_store_id: PathId, stack: StackOf, stores: StoresOf) -> VectorStoreObject:
    """Return a vector store, even if it has expired."""
    return await shown(await stores.get(vector_store_id), stack)


@router.post("/{vector_store_id:id}", summary="Change a vector store")
async def update(
    vector_store_id: PathId, request: UpdateVectorStore, stack: StackOf, stores: StoresOf
) -> VectorStoreObject:
    """Change name, description, metadata or expiry; absent fields stay as they are."""
    return await shown(await stores.update(vector_store_id, _changes(request)), stack)


@router.delete("/{vector_store_id:id}", summary="Delete a vector store", dependencies=[ADMIN])
async def delete(vector_store_id: PathId, stores: StoresOf) -> DeletedStore:
    """Delete a vector store with its vector DB and all chunks; its files stay under /v1/files."""
    await stores.delete(vector_store_id)
    return DeletedStore(id=vector_store_id)


async def created(
    request: CreateVectorStore, stack: Stack, stores: VectorStores, *, must_exist: bool = True
) -> tuple[VectorStore, list[Job]]:
    """Create a store and queue its files; return both. A failure leaves nothing behind."""
    how = request.chunking_strategy
    files = [AttachFile(file_id=file_id, chunking_strategy=how) for file_id in request.file_ids]
    try:
        store = await stores.create(registration(request, stack), details(request))
    except CorralError as error:
        if error.field in EXTENSIONS and error.field in (request.metadata or {}):
            error.field = f"metadata.{error.field}"
        raise
    if not files:
        return store, []
    async with AsyncExitStack() as undo:
        undo.push_async_callback(stores.delete, store.identifier)
        jobs = await attach(stack, store.identifier, files, batch=True, must_exist=must_exist)
        undo.pop_all()
    return store, jobs


def registration(request: CreateVectorStore, stack: Stack) -> VectorDBRegistration:
    """Return the registration for a request to create a store, under a new identifier."""
    model = request.embedding_model or stack.usable_default_model()
    given: dict[str, Any] = {
        "provider_id": request.provider_id,
        "provider_vector_db_id": request.provider_vector_db_id or request.provider_vector_store_id,
        "embedding_dimension": request.embedding_dimension,
        "vector_db_name": request.name or None,
        "search_mode": request.search_mode,
        "ranker": request.ranker,
        "language": request.language,
        "chunking": _chunking(stack, model),
    }
    return VectorDBRegistration(
        vector_db_id=new_identifier(),
        embedding_model=model,
        **{name: value for name, value in given.items() if value is not None},
    )


def details(request: CreateVectorStore) -> dict[str, Any]:
    """Return the fields of the request that a registration lacks."""
    expires = request.expires_after
    return {
        "description": request.description,
        "metadata": request.metadata,
        "expires_after_days": expires.days if expires else None,
    }


def _chunking(stack: Stack, model: str) -> ChunkingConfig | None:
    """Return `AUTO`, or chunks that fit the model if it is known to read fewer tokens."""
    reads = stack.model(model)[1].max_tokens
    return AUTO if reads is None or reads >= AUTO.chunk_size_in_tokens else None


def _changes(request: UpdateVectorStore) -> dict[str, Any]:
    changes: dict[str, Any] = {name: getattr(request, name) for name in request.model_fields_set}
    if "name" in changes:
        changes["name"] = changes["name"] or ""
    if "expires_after" in changes:
        expires = changes.pop("expires_after")
        changes["expires_after_days"] = expires.days if expires else None
    return changes


async def shown(store: VectorStore, stack: Stack) -> VectorStoreObject:
    """Convert a store to the wire format."""
    over = store.is_over(stack.stores.clock())
    counts, usage = NO_FILES, 0
    if not over:
        with suppress(NotFound):  # it was deleted since
            name = store.identifier
            jobs = await stack.ingestion.counts(vector_db_id=name, files_only=True)
            counts, usage = file_counts(jobs), await stack.ingestion.usage_bytes(name)
    days, vector_db = store.expires_after_days, store.vector_db
    return VectorStoreObject(
        id=store.identifier,
        created_at=int(store.created_at),
        name=store.name,
        description=store.description,
        usage_bytes=usage,
        file_counts=counts,
        status="expired" if over else "in_progress" if counts.in_progress else "completed",
        expires_after=ExpiresAfter(days=days) if days else None,
        expires_at=store.expires_at,
        last_active_at=store.last_active_at,
        metadata=dict(store.metadata) if store.metadata is not None else None,
        provider_id=vector_db.provider_id if vector_db else None,
        embedding_model=vector_db.embedding_model if vector_db else None,
        search_mode=vector_db.search_mode if vector_db else None,
        language=vector_db.language if vector_db else None,
    )
