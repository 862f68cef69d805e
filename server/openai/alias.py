"""The same routes under `/v1/openai/v1`: OpenAI's API in Llama Stack's dialect.

Older clients of Llama Stack (such as 0.2.12) use OpenAI's routes there, and expect the replies of
Llama Stack 0.2. This module has the routes that differ; the others are shared:

* An unknown file id becomes a failed file of the store, and every purpose is accepted.
* An unknown id is a 400.
* `search_query` is a text if the query is one.
* The content of a file is also under `content`, with its name and attributes.
* `last_id` of the files of a store is the last of all, not of the page.
* The chunking strategy `auto` is shown as `auto`.
"""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from corral.api.vector_dbs import VectorDB
from corral.providers.ingestion.jobs.jobs import Job
from corral.server.access.roles import READER
from corral.server.errors import ERRORS
from corral.server.openai import (
    chat,
    conversations,
    embeddings,
    file_batches,
    files,
    models,
    responses,
    search,
    store_files,
    vector_stores,
)
from corral.server.openai.attaching import attach_one, fitting, page_of, settled, shown
from corral.server.openai.objects import (
    Attributes,
    AutoStrategy,
    FileContentPage,
    SearchPage,
    TextContent,
    VectorStoreFileObject,
    VectorStoreObject,
)
from corral.server.openai.paging import Cursor, CursorOf, Page
from corral.server.openai.requests import (
    AttachFile,
    CreateVectorStore,
    SearchVectorStore,
)
from corral.server.openai.routes import ALIAS, OpenAIRoute, StoreOf, StoresOf
from corral.server.openai.store_files import (
    FILES,
    AttachedOf,
    ContentsOf,
    FileIdInPath,
    StatusFilter,
)
from corral.server.routing import RetrievalOf, StackOf, routes_of

STORES = ALIAS + "/vector_stores"
STORE = STORES + "/{vector_store_id:id}"

SHARED = (
    search.router,  # before vector_stores, whose ids may contain anything
    file_batches.router,
    store_files.router,
    vector_stores.router,
    files.router,
    embeddings.router,
    models.router,
    chat.router,
    responses.router,
    conversations.router,
)

router = APIRouter(route_class=OpenAIRoute, responses=ERRORS, include_in_schema=False)


def _share(shared: APIRouter) -> None:
    """Serve the routes of a router under the alias too."""
    for route in routes_of(shared):
        router.add_api_route(
            ALIAS + route.path.removeprefix("/v1"),
            route.endpoint,
            methods=sorted(route.methods or ()),
            dependencies=route.dependencies,
            response_class=route.response_class,
            route_class_override=type(route),
        )


_share(file_batches.router)  # before the routes below: the id of a store may hold slashes


class LlamaStackSearchPage(SearchPage):
    """The results, best first."""

    search_query: str | list[str] = Field(  # type: ignore[assignment]  # OpenAI's is a list
        description="As the query was given."
    )


class LlamaStackContentPage(FileContentPage):
    """The parsed text of a file, with Llama Stack's additional fields."""

    file_id: str
    filename: str
    attributes: Attributes
    content: list[TextContent]


@router.post(STORES)
async def create(request: CreateVectorStore, stack: StackOf, stores: StoresOf) -> VectorStoreObject:
    """Create a vector store and read its files into it."""
    store, jobs = await vector_stores.created(request, stack, stores, must_exist=False)
    await settled(stack, jobs)
    return await vector_stores.shown(store, stack)


@router.post(STORE + "/search", dependencies=[READER])
async def search_store(
    request: SearchVectorStore, store: StoreOf, stack: StackOf, retrieval: RetrievalOf
) -> LlamaStackSearchPage:
    """Search a vector store."""
    page = await search.search(request, store, stack, retrieval)
    queries = page.search_query
    query = queries[0] if isinstance(request.query, str) else queries
    return LlamaStackSearchPage(**{**dict(page), "search_query": query})


@router.post(STORE + "/files")
async def attach_file(request: AttachFile, store: StoreOf, stack: StackOf) -> VectorStoreFileObject:
    """Read a file into a store."""
    job = await attach_one(stack, store, request, must_exist=False)
    return _shown(job, store.registered)


@router.get(STORE + "/files")
async def list_files(
    store: StoreOf, cursor: CursorOf, stack: StackOf, status: StatusFilter = None
) -> Page[VectorStoreFileObject]:
    """Return a page of the files of a store."""
    page = await page_of(stack, store, cursor, status, _shown, **FILES)
    turned = Cursor(limit=1, order="asc" if cursor.order == "desc" else "desc")
    last = await page_of(stack, store, turned, status, **FILES)
    return page.model_copy(update={"last_id": last.first_id})


@router.get(STORE + "/files/{file_id}")
async def retrieve_file(job: AttachedOf, store: StoreOf) -> VectorStoreFileObject:
    """Return the state of a file."""
    return _shown(job, store.registered)


@router.get(STORE + "/files/{file_id}/content")
async def read_file(
    file_id: FileIdInPath, job: AttachedOf, contents: ContentsOf
) -> LlamaStackContentPage:
    """Return the text of a file."""
    return LlamaStackContentPage(
        data=contents,
        file_id=file_id,
        filename=job.filename,
        attributes=fitting(job.attributes),
        content=[TextContent(text=each.text) for each in contents],
    )


def _shown(job: Job, vector_db: VectorDB) -> VectorStoreFileObject:
    """Return a file in Llama Stack's format, which shows the strategy `auto` as such."""
    file = shown(job, vector_db)
    return file if job.chunking else file.model_copy(update={"chunking_strategy": AutoStrategy()})


for _source in SHARED:
    _share(_source)
