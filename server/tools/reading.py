"""The tools that read: search, fetch, rag_query, list_vector_dbs, get_vector_db."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from corral.api.chunks import Chunk
from corral.api.document_names import shown_place, title_of, web_address
from corral.api.errors import InvalidRequest, NotFound
from corral.api.rag import RAGQueryConfig
from corral.api.vector_dbs import VectorDB
from corral.providers.base.config import ToolSettings
from corral.providers.base.documents import WHOLE, Page, count_documents, read_document
from corral.providers.rag.passages import document_text
from corral.providers.rag.selection import ContextHit
from corral.server.access import audit
from corral.server.limits import check_count, check_max_chunks
from corral.server.tools.places import Place
from corral.server.tools.shapes import (
    Citation,
    EmptyBecause,
    FetchAnswer,
    FetchArguments,
    NameArguments,
    NoArguments,
    QuestionAnswer,
    QuestionArguments,
    SearchAnswer,
    SearchArguments,
    SearchResult,
    VectorDBDetails,
    VectorDBSummaries,
    VectorDBSummary,
)
from corral.server.tools.tool import ToolServices

MAX_FETCHED_CHUNKS = 1000
"""Maximum chunks in one result of `fetch`; longer documents come in parts."""
CHUNKS_PER_RESULT = 4
"""Chunks that `search` examines per returned document."""
SHOWN_IDS = 100
"""Maximum number of ids that an error lists."""


async def search(services: ToolServices, arguments: SearchArguments) -> SearchAnswer:
    """Return the best documents, each with its best passage."""
    names = await scope(services, arguments.vector_db_ids)
    if not names:
        return SearchAnswer(results=[])
    k = min(arguments.max_results * CHUNKS_PER_RESULT, services.limits.max_k)
    retrieved = await services.retrieval.search_many(
        names, arguments.query, k=k, mode=arguments.mode, filters=arguments.filters
    )
    best: dict[Place, ContextHit] = {}
    for each in retrieved.hits:
        best.setdefault(Place.of(each.vector_db_id, each.hit.chunk), each)
    results = list(best.items())[: arguments.max_results]
    return SearchAnswer(results=[_result(services, place, each) for place, each in results])


async def fetch(services: ToolServices, arguments: FetchArguments) -> FetchAnswer:
    """Return a document's text, joined from its chunks without their overlaps."""
    place = Place.parse(arguments.id)
    await scope(services, [place.vector_db_id])
    page = Page(arguments.offset, MAX_FETCHED_CHUNKS)
    chunks, metadata, count = await _read(services, place, page)
    metadata |= {"vector_db_id": place.vector_db_id, "chunk_count": count}
    if arguments.offset + len(chunks) < count:
        metadata["next_offset"] = arguments.offset + len(chunks)
    return FetchAnswer(
        id=str(place),
        title=title_of(chunks[0]),
        text=document_text(chunks),
        url=web_address(chunks[0]) or place.url(services.base_url),
        metadata=metadata,
    )


async def whole_text(services: ToolServices, place: Place) -> str:
    """Return the whole text of a document of any length, for readers who cannot request parts."""
    await scope(services, [place.vector_db_id])
    chunks, _, _ = await _read(services, place, WHOLE)
    return document_text(chunks)


async def rag_query(services: ToolServices, arguments: QuestionArguments) -> QuestionAnswer:
    """Return a context within a token budget, with the sources of its markers."""
    check_max_chunks(arguments.max_chunks, services.limits, field="max_chunks")
    names = await scope(services, arguments.vector_db_ids)
    if not names:
        return QuestionAnswer(context="", citations=[], token_count=0)
    config = RAGQueryConfig(
        max_tokens_in_context=arguments.max_tokens,
        max_chunks=arguments.max_chunks,
        mode=arguments.mode,
        filters=arguments.filters,
        citations=True,
    )
    result = await services.rag_tool.query(arguments.question, names, config)
    metadata = result.metadata
    citations = [
        _citation(services, each, score)
        for each, score in zip(
            metadata.get("citations", []), metadata.get("scores", []), strict=True
        )
    ]
    return QuestionAnswer(
        context=result.text,
        reason=None if result.text else _reason(metadata),
        confidence=metadata.get("confidence"),
        citations=citations,
        token_count=metadata.get("token_count", 0),
    )


def _reason(metadata: Mapping[str, Any]) -> EmptyBecause:
    """Return the reason for an empty context."""
    if metadata.get("reason") == "nothing_relevant":
        return "nothing_relevant"
    return "budget" if metadata.get("dropped_by_reason", {}).get("budget") else "nothing_found"


async def list_vector_dbs(services: ToolServices, _: NoArguments) -> VectorDBSummaries:
    """Return the vector DBs, by id."""
    known = await services.stack.vector_dbs()
    return VectorDBSummaries(vector_dbs=[VectorDBSummary(**_about(each)) for each in known])


async def get_vector_db(services: ToolServices, arguments: NameArguments) -> VectorDBDetails:
    """Return a vector DB with its counts."""
    await scope(services, [arguments.vector_db_id])
    index = await services.stack.index(arguments.vector_db_id)
    return VectorDBDetails(
        **_about(index.vector_db),
        provider_id=index.vector_db.provider_id,
        chunk_count=await index.count(),
        document_count=await count_documents(index),
    )


async def scope(services: ToolServices, wanted: Sequence[str]) -> list[str]:
    """Return the vector DBs of a call: those it names, or else the operator's defaults.

    Raises:
        NotFound: One is unknown, or the caller has none of the defaults; the message lists the
            known ones.
        InvalidRequest: There are too many to search at once.
    """
    known = [vector_db.identifier for vector_db in await services.stack.vector_dbs()]
    chosen = list(dict.fromkeys(wanted)) or _usual(services.settings, known)
    audit.current().names(*chosen)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise NotFound(
            f"There is no vector DB {unknown[0]!r}.",
            hint=f"Known: {_listed(known)}.",
            field="vector_db_ids",
        )
    try:
        setting = "max_vector_dbs_per_query"
        most = services.limits.max_vector_dbs_per_query
        check_count(chosen, most, field="vector_db_ids", setting=setting)
    except InvalidRequest as error:
        hint = f"{error.hint} Pass some of: {_listed(known)}."
        raise InvalidRequest(error.message, hint=hint, field=error.field) from None
    return chosen


def _usual(settings: ToolSettings, known: list[str]) -> list[str]:
    """Return the tenant's vector DBs in the operator's list; without a list, all of them.

    The list may name other tenants' vector DBs, so missing ones are ignored.
    """
    listed = dict.fromkeys(settings.vector_db_ids)
    chosen = [name for name in listed if name in known] if listed else known
    if known and not chosen:
        raise NotFound(
            "None of your vector DBs is in the operator's server.tools.vector_db_ids.",
            hint=f"Pass some of: {_listed(known)}.",
            field="vector_db_ids",
        )
    return chosen


def _listed(names: Iterable[str]) -> str:
    some = list(names)
    shown = ", ".join(some[:SHOWN_IDS])
    return f"{shown} and {len(some) - SHOWN_IDS} more" if len(some) > SHOWN_IDS else shown or "none"


async def _read(
    services: ToolServices, place: Place, page: Page
) -> tuple[Sequence[Chunk], dict[str, Any], int]:
    """Return chunks of a place, their metadata and the total number of chunks."""
    index = await services.stack.index(place.vector_db_id)
    entry = audit.current()
    entry.names(place.vector_db_id)
    if place.chunk_id:
        chunks = await index.get_chunks([place.chunk_id])
        if chunks and page.offset == 0:
            entry.returns(place.vector_db_id, [chunks[0].chunk_id])
            return chunks, dict(chunks[0].metadata), 1
    else:
        document = await read_document(index, place.document_id, page)
        if document is not None and document.chunks:
            entry.returns(place.vector_db_id, [chunk.chunk_id for chunk in document.chunks])
            return document.chunks, dict(document.metadata), document.chunk_count
    short = f", or it has <= {page.offset} chunks" if page.offset else ""
    raise NotFound(
        f"There is no document {str(place)!r}{short}.",
        hint="Pass an id that search returned.",
        field="id",
    )


def _result(services: ToolServices, place: Place, each: ContextHit) -> SearchResult:
    chunk = each.hit.chunk
    return SearchResult(
        id=str(place),
        title=title_of(chunk),
        url=web_address(chunk) or place.url(services.base_url, [chunk.chunk_id]),
        text=chunk.content,
        score=each.hit.score,
        vector_db_id=each.vector_db_id,
    )


def _citation(services: ToolServices, cited: Mapping[str, Any], score: float) -> Citation:
    place = Place.cited(cited)
    return Citation(
        marker=cited["marker"],
        id=str(place),
        title=cited["title"],
        place=shown_place(cited),
        url=cited.get("url") or place.url(services.base_url, cited["chunk_ids"]),
        score=score,
        vector_db_id=place.vector_db_id,
    )


def _about(vector_db: VectorDB) -> dict[str, Any]:
    return {
        "vector_db_id": vector_db.identifier,
        "name": vector_db.vector_db_name or vector_db.identifier,
        "search_mode": vector_db.search_mode,
        "language": vector_db.language,
        "embedding_model": vector_db.embedding_model,
    }
