"""The RAG tool: insert documents, ask a question, get a context within a token budget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from corral.api.chunks import Chunk
from corral.api.errors import InvalidRequest
from corral.api.library import Library
from corral.api.rag import (
    RAGDocument,
    RAGQueryConfig,
    RAGQueryResult,
)
from corral.api.spans import span
from corral.api.wire import TextItem
from corral.providers.base.config import Limits, RagSettings
from corral.providers.ingestion.pipeline import Pipeline, Splitting
from corral.providers.ingestion.read.parsing import ParsedDocument
from corral.providers.ingestion.storing import store
from corral.providers.rag.context import Context, assemble
from corral.providers.rag.search import Material, Retrieval


@dataclass(frozen=True, slots=True)
class InsertReport:
    """What an insert did.

    Attributes:
        chunks: What is stored now: the number of chunks by document id.
        unchanged: Ids of the documents that were left alone.
        unread: By document id, what it holds that could not be read.
        notes: What the caller has to know, such as that chunks are longer than the model reads.
    """

    chunks: dict[str, int] = field(default_factory=dict)
    unchanged: list[str] = field(default_factory=list)
    unread: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class RagTool:
    """The RAG tool, for server, command line and benchmark.

    Args:
        library: The vector DBs and models; a `Stack`.
        settings: Allowed URLs, and limits of reading a document.
        limits: Limits of one request.
        pipeline: Reads and splits documents; None makes one from the settings.

    Raises:
        ConfigError: An allowed host of the settings is no host name.
    """

    def __init__(
        self,
        library: Library,
        settings: RagSettings | None = None,
        *,
        limits: Limits | None = None,
        pipeline: Pipeline | None = None,
    ) -> None:
        self.library = library
        self._limits = limits or Limits()
        self.retrieval = Retrieval(library, self._limits.max_k)
        self._pipeline = pipeline or Pipeline(settings or RagSettings())

    def on(self, library: Library) -> Self:
        """Return this tool on another library, such as one principal's view of the stack."""
        return type(self)(library, limits=self._limits, pipeline=self._pipeline)

    async def insert(
        self,
        documents: Sequence[RAGDocument],
        vector_db_id: str,
        chunk_size_in_tokens: int | None = None,
        overlap: int | None = None,
        *,
        skip_unchanged: bool = False,
        same_origin_only: bool = False,
    ) -> InsertReport:
        """Parse, split, embed and store documents, all or none.

        A document whose id is stored already is replaced as a whole, in the same step. Each chunk
        carries its document's metadata, `document_id`, `token_count` and `metadata_token_count`,
        and for Markdown and HTML the first heading of level 1 as `title`, unless the metadata has a
        title.

        Args:
            documents: Each id once.
            vector_db_id: Where to.
            chunk_size_in_tokens: Most cl100k tokens of a chunk, 1 to 8192; None takes the
                registration's. Where nobody has said a size, chunks also fit into what the
                embedding model reads; where somebody has, a note says if they do not.
            overlap: Most tokens repeated from the chunk before, at most half the size; None takes
                the registration's share of the size.
            skip_unchanged: Whether to leave documents alone that are stored as they would be now.
            same_origin_only: Whether to refuse to replace a document of another origin.

        Raises:
            NotFound: There is no such vector DB.
            Conflict: A document would replace one of another origin.
            InvalidRequest: A document is empty, unreadable, given twice, of an unsupported type or
                at an address that is not allowed; a size is out of range; there is too much.
            MissingDependency: The package that reads a document is not installed.
            ProviderError: The embedder or the backend failed; nothing was stored.
        """
        vector_db = await self.library.vector_db(vector_db_id)
        sizes = chunk_size_in_tokens, overlap
        how = await self._pipeline.splitting(self.library, vector_db, *sizes)
        self._check_documents(documents)
        same: set[str] = set()
        if skip_unchanged or same_origin_only:
            index = await self.library.index(vector_db_id)
            same = await self._pipeline.unchanged(
                index, documents, how.sizes, same_origin_only=same_origin_only
            )
        report = InsertReport(unchanged=sorted(same) if skip_unchanged else [])
        chunks = await self._all_chunks(documents, how, report)
        if report.chunks:
            replaced, cache = list(report.chunks), self._pipeline.cache
            await store(self.library, vector_db_id, chunks, replace_documents=replaced, cache=cache)
        report.notes.extend(await self._pipeline.notes(chunks, how))
        return report

    async def _all_chunks(
        self, documents: Sequence[RAGDocument], how: Splitting, report: InsertReport
    ) -> list[Chunk]:
        """Return the chunks of the documents that the report does not call unchanged."""
        chunks: list[Chunk] = []
        for number, document in enumerate(documents):
            if document.document_id not in report.unchanged:
                chunks += await self._chunks(number, document, how, report, len(chunks))
        return chunks

    async def _chunks(
        self, number: int, document: RAGDocument, how: Splitting, report: InsertReport, before: int
    ) -> list[Chunk]:
        """Return the chunks of a document, and note in the report what it has become."""
        parsed = await self._parse(number, document)
        if parsed.unread:
            report.unread[document.document_id] = parsed.unread
        most = self._limits.max_chunks_per_insert - before
        made = await self._pipeline.split(document, parsed, how, most)
        report.chunks[document.document_id] = len(made)
        self._check_chunks(before + len(made))
        return made

    async def query(
        self,
        content: str | Sequence[str],
        vector_db_ids: Sequence[str],
        config: RAGQueryConfig | None = None,
    ) -> RAGQueryResult:
        """Return the context that answers a question from one or several vector DBs.

        Args:
            content: The question. Several texts are joined by the query generator's separator.
                Empty, with `filters` or `order_by`: the context has the chunks that pass.
            vector_db_ids: The vector DBs to search; see `Retrieval.search_many` for several.
            config: How to retrieve and assemble; None takes the defaults.

        Raises:
            NotFound: One of the vector DBs does not exist.
            InvalidRequest: A bad setting, a language model that is not configured, or too many
                vector DBs.
            ProviderError: An embedder, a language model or a backend failed.
        """
        config = config or RAGQueryConfig()
        limit = self._limits.max_vector_dbs_per_query
        with span("tool"):
            if len(vector_db_ids) > limit:
                raise _too_many("vector DBs", len(vector_db_ids), limit, "max_vector_dbs_per_query")
            material = await self.retrieval.search_for_context(content, vector_db_ids, config)
            context = await _context(material)
        metadata = {**context.metadata, **_search_metadata(material)}
        items = None if context.items is None else [TextItem(text=item) for item in context.items]
        return RAGQueryResult(content=items, metadata=metadata)

    async def _parse(self, number: int, document: RAGDocument) -> ParsedDocument:
        """Return a document's text; errors say which document they are about."""
        try:
            return await self._pipeline.read(document)
        except InvalidRequest as error:
            raise InvalidRequest(
                f"Document {document.document_id!r}: {error.message}",
                hint=error.hint,
                field=f"documents[{number}].{error.field or 'content'}",
            ) from error

    def _check_documents(self, documents: Sequence[RAGDocument]) -> None:
        if not documents:
            raise InvalidRequest("The request has no documents.", field="documents")
        most = self._limits.max_documents_per_insert
        if len(documents) > most:
            raise _too_many("documents", len(documents), most, "max_documents_per_insert")
        seen: set[str] = set()
        for number, document in enumerate(documents):
            if document.document_id in seen:
                raise InvalidRequest(
                    f"Document {document.document_id!r} is in the request twice.",
                    hint="Send one version of it.",
                    field=f"documents[{number}].document_id",
                )
            seen.add(document.document_id)

    def _check_chunks(self, count: int) -> None:
        most = self._limits.max_chunks_per_insert
        if count > most:
            raise InvalidRequest(  # how many there are is not known: splitting ends here
                f"The request has more than {most} chunks.",
                hint="Send fewer documents, or use larger chunks; the operator's setting is "
                "server.limits.max_chunks_per_insert.",
                field="documents",
            )


async def _context(material: Material) -> Context:
    plan = material.plan
    assert plan.tokenizer is not None  # noqa: S101 - for mypy
    with span("context") as traced:
        context = await asyncio.to_thread(
            assemble,
            plan.question.text,
            material.selection,
            plan.request,
            plan.tokenizer,
            material.neighbors,
        )
        traced["tokens"] = int(context.metadata.get("token_count", 0))
    return context


def _search_metadata(material: Material) -> dict[str, Any]:
    """Return the notes, confidence and generated query; the steps if the request explains."""
    retrieved = material.retrieved
    metadata: dict[str, Any] = {"notes": retrieved.notes} if retrieved.notes else {}
    if retrieved.evidence.confidence is not None:
        metadata["confidence"] = retrieved.evidence.confidence
    if retrieved.reason is not None:
        metadata["reason"] = retrieved.reason
    if material.plan.request.explain:
        metadata["evidence"] = asdict(retrieved.evidence)
        metadata["steps"] = {
            name: list(map(asdict, steps)) for name, steps in retrieved.steps.items()
        }
    if material.plan.question.generated is not None:
        metadata["generated_query"] = material.plan.question.generated
    return metadata


def _too_many(what: str, count: int, most: int, setting: str) -> InvalidRequest:
    return InvalidRequest(
        f"The request has {count} {what}.",
        hint=f"At most {most} are allowed (server.limits.{setting}).",
        field="documents" if what != "vector DBs" else "vector_db_ids",
    )
