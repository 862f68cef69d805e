"""Documents of a vector DB: list, show, delete. (To insert them is the RAG tool's part.)"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated
from urllib.parse import parse_qs, unquote

from fastapi import APIRouter, Query
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from corral.api.chunks import MAX_ID_LENGTH
from corral.api.errors import Conflict, NotFound, ProviderError
from corral.providers.documents import Page, delete_document, list_documents, read_document
from corral.providers.stack import Stack
from corral.server.documents_wire import DeletedDocument, Document, DocumentList, DocumentSummary
from corral.server.routes.contract import ERRORS, ContractRoute, PathId, StackOf

PREFIX = "/v1/vector-dbs/"
MARKER = "documents"
REGISTERED = "corral.registered"
MAX_DOCUMENTS = 10_000
MAX_CHUNKS = 1000


class DocumentRoute(ContractRoute):
    """A route below a vector DB, whose id may hold slashes and the word `documents` itself.

    The path is split where it stands unescaped: a slash that belongs to an id is best sent as %2F.
    Where ids come as they are, as Llama Stack's clients send them, the split is the one after which
    a registered vector DB stands. A path that is whole the id of a registered one is that one's.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Say whether a request is for this route, and with which ids."""
        match, child = super().matches(scope)
        if match is Match.NONE:
            return match, child
        found = _located(scope)
        if found is None or (found[1] is None) == ("document_id" in self.param_convertors):
            return Match.NONE, {}
        names = dict(zip(("vector_db_id", "document_id"), found, strict=True))
        wanted = {name: names[name] for name in self.param_convertors}
        return match, {**child, "path_params": {**child.get("path_params", {}), **wanted}}


def _located(scope: Scope) -> tuple[str, str | None] | None:
    """Return the vector DB and the document that a path names; None where it names neither.

    Raises:
        Conflict: To delete it could mean a document or a whole vector DB.
    """
    tail = _tail(scope)
    splits = list(_splits(tail))
    if not splits:
        return None
    registered = scope[REGISTERED]
    chosen = next((split for split in splits if split[0] in registered), None)
    whole = unquote(tail)
    if whole in registered and not _asks_for_a_page(scope):
        if scope["method"] == "DELETE" and chosen is not None and chosen[1] is not None:
            raise Conflict(
                f"This is a document of {chosen[0]!r} and the vector DB {whole!r}.",
                hint="To unregister the vector DB, write the slashes of its id as %2F.",
                field="vector_db_id",
            )
        return None
    return chosen or splits[0]


class RegisteredIds:
    """ASGI middleware that looks up which of the ids that a path may name are registered.

    Routes are matched without waiting, so this happens before.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look up the ids and pass the request on."""
        if scope["type"] == "http" and MARKER in scope["path"]:
            scope[REGISTERED] = await self._registered(scope)
        await self._app(scope, receive, send)

    async def _registered(self, scope: Scope) -> set[str]:
        stack: Stack = scope["app"].state.stack
        tail = _tail(scope)
        named = {unquote(tail), *(vector_db_id for vector_db_id, _ in _splits(tail))}
        with suppress(ProviderError):  # which the route will meet, too, and tell
            return await stack.registered(named)
        return set()


def _tail(scope: Scope) -> str:
    raw = scope.get("raw_path") or scope["path"].encode()
    return str(raw.decode("ascii", "replace").partition("?")[0].partition(PREFIX)[2])


def _splits(tail: str) -> Iterator[tuple[str, str | None]]:
    """Yield every reading of a path as an id, `documents` and perhaps a document's id."""
    parts = tail.split("/")
    for place in range(1, len(parts)):
        if parts[place] == MARKER:
            vector_db_id, rest = unquote("/".join(parts[:place])), "/".join(parts[place + 1 :])
            if len(vector_db_id) > MAX_ID_LENGTH:
                return
            if rest or place == len(parts) - 1:
                yield vector_db_id, unquote(rest) or None


def _asks_for_a_page(scope: Scope) -> bool:
    asked = parse_qs(scope.get("query_string", b"").decode("ascii", "replace"))
    return bool({"after", "limit"} & asked.keys())


router = APIRouter(
    prefix="/v1/vector-dbs", tags=["Documents"], route_class=DocumentRoute, responses=ERRORS
)

After = Annotated[str, Query(description="`last_id` of the page before; empty: begin.")]
Documents = Annotated[int, Query(ge=1, le=MAX_DOCUMENTS, description="Most documents of a page.")]
Chunks = Annotated[int, Query(ge=0, le=MAX_CHUNKS, description="Most chunks of the reply.")]
Offset = Annotated[int, Query(ge=0, description="Chunks to pass over.")]


@router.get("/{vector_db_id:id}/documents", summary="List the documents of a vector DB")
async def list_all(
    vector_db_id: PathId, stack: StackOf, after: After = "", limit: Documents = 100
) -> DocumentList:
    """Return the documents by id, a page at a time, each with its number of chunks.

    Chunks without `document_id` in their metadata belong to no document. Backends that cannot group
    (memory, Qdrant, Milvus, Weaviate) read every chunk for each page: ask them for large pages.
    """
    found = await list_documents(await stack.index(vector_db_id), after, limit)
    data = [DocumentSummary(document_id=d.document_id, chunk_count=d.chunks) for d in found.items]
    return DocumentList(data=data, has_more=found.has_more, last_id=found.last_id)


@router.get("/{vector_db_id:id}/documents/{document_id:id}", summary="Show a document")
async def retrieve(
    vector_db_id: PathId,
    document_id: PathId,
    stack: StackOf,
    offset: Offset = 0,
    limit: Chunks = 100,
) -> Document:
    """Return a document's metadata and its chunks in their order, without embeddings."""
    page = Page(offset, limit)
    found = await read_document(await stack.index(vector_db_id), document_id, page)
    if found is None:
        raise _unknown(vector_db_id, document_id)
    return Document(
        vector_db_id=vector_db_id,
        document_id=document_id,
        chunk_count=found.chunk_count,
        metadata=found.metadata,
        chunks=found.chunks,
    )


@router.delete("/{vector_db_id:id}/documents/{document_id:id}", summary="Delete a document")
async def delete(vector_db_id: PathId, document_id: PathId, stack: StackOf) -> DeletedDocument:
    """Delete a document with all its chunks, in one write; a failed one leaves it whole."""
    deleted = await delete_document(await stack.index(vector_db_id), document_id)
    if not deleted:
        raise _unknown(vector_db_id, document_id)
    return DeletedDocument(document_id=document_id, chunk_count=deleted)


def _unknown(vector_db_id: str, document_id: str) -> NotFound:
    return NotFound(
        f"There is no document {document_id!r} in vector DB {vector_db_id!r}.",
        hint="GET /v1/vector-dbs/ID/documents lists them.",
        field="document_id",
    )
