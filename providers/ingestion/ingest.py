"""Ingest documents: read, split, embed and store. Routes, the library, MCP and jobs use this code.

`Ingester.insert` runs all four steps for the documents of one request. A job runs the same steps,
and records its progress between them (`jobs/runner.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk, embedded_text
from corral.api.embedder import Embedder
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import InvalidRequest
from corral.api.library import Library
from corral.api.rag import URL, RAGDocument
from corral.api.reranker import Reranker
from corral.api.vector_dbs import SplitOn, VectorDB
from corral.providers.base.config import Limits, RagSettings
from corral.providers.base.documents import parts_of
from corral.providers.ingestion.cache import EmbeddingCache
from corral.providers.ingestion.contexts import ContextCache, ContextCost, ContextWriter
from corral.providers.ingestion.document_state import unchanged
from corral.providers.ingestion.parts import Text, with_parts
from corral.providers.ingestion.read.detecting import type_of
from corral.providers.ingestion.read.external import ExternalReader
from corral.providers.ingestion.read.mime_types import chosen_type, served_type
from corral.providers.ingestion.read.parsing import ParsedDocument
from corral.providers.ingestion.read.reading import Reader
from corral.providers.ingestion.split.budget import Window
from corral.providers.ingestion.split.chunking import Sizes, each_chunk, unread, window_of
from corral.providers.ingestion.storing import EMBED_BATCH, all_cleaned, embed, prepare, preparing
from corral.providers.models.language import LanguageModels, serving

if TYPE_CHECKING:
    from corral.providers.ingestion.read.fetching import Fetcher

Content = str | bytes | Path | URL
"""The content of a document before it is read: text, bytes, a file or a `data:` URI."""

JOB_BATCH = 64
"""Number of chunks that a job embeds at a time.

They take about half a second on a laptop, so progress is reported often."""

CONTEXT_BATCH = 8
"""Batch size if a language model writes a sentence about each chunk, which takes seconds."""


@dataclass(frozen=True, slots=True)
class InsertReport:
    """The result of an insert.

    Attributes:
        chunks: Number of stored chunks by document id.
        unchanged: Ids of the documents that were skipped as unchanged.
        unread: By document id, the parts that could not be read.
        notes: Messages for the caller, for example about chunks longer than the model's window.
        containers: Ids of the documents that may contain others, such as mails.
    """

    chunks: dict[str, int] = field(default_factory=dict)
    unchanged: list[str] = field(default_factory=list)
    unread: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    containers: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Splitting:
    """The settings for splitting documents of a vector DB.

    Attributes:
        vector_db: The target.
        embedder: The vector DB's embedder.
        sizes: Chunk size and overlap.
        window: The embedding model's window; None if unknown.
        reranker: Reads the chunks ahead; None if the registration asks for none.
        contexts: Finds the `context_model`; None if the registration names none.
    """

    vector_db: VectorDB
    embedder: Embedder
    sizes: Sizes
    window: Window | None
    reranker: Reranker | None = None
    contexts: LanguageModels | None = None

    @property
    def bound(self) -> Window | None:
        """The window that limits chunks in addition to their size; None for no such limit."""
        return None if self.sizes.chosen else self.window


@dataclass(frozen=True, slots=True)
class Embedded:
    """Chunks with their embeddings.

    Attributes:
        embeddings: Shape (len(chunks), dimension).
        fresh: True if some embeddings were computed now rather than cached.
        is_last: True if no further chunks follow; False may also be the last batch.
        costs: By document id, the cost of the sentences about the chunks.
    """

    chunks: Sequence[Chunk]
    embeddings: NDArray[np.float32]
    fresh: bool
    is_last: bool
    costs: Mapping[str, ContextCost] = field(default_factory=dict)


class Ingester:
    """Splits documents into chunks, embeds and stores them.

    Args:
        settings: Hosts from which URLs may be fetched, and limits for reading a document.
        metadata_cost: Returns the number of tokens of a document's metadata in a context.
        limits: Limits of one insert.
        cache: Cached embeddings; None to compute all embeddings.
        fetcher: Fetches URLs; None to build one from the settings.
        readers: The configured readers.
        contexts: Cached sentences about chunks; None calls the `context_model` for every chunk.

    Raises:
        ConfigError: An allowed host in the settings is not a host name.
    """

    def __init__(
        self,
        settings: RagSettings,
        metadata_cost: Callable[[Mapping[str, Any]], int],
        limits: Limits | None = None,
        cache: EmbeddingCache | None = None,
        fetcher: Fetcher | None = None,
        readers: Sequence[ExternalReader] = (),
        contexts: ContextCache | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._cache = cache
        self._contexts = contexts
        self._metadata_cost = metadata_cost
        self._document_limits = settings.document_limits
        self._settings = settings
        self._fetcher = fetcher or (_fetcher(settings) if settings.allowed_url_hosts else None)
        self.reader = Reader(settings, readers)

    async def insert(
        self,
        library: Library,
        documents: Sequence[RAGDocument],
        vector_db_id: str,
        chunk_size_in_tokens: int | None = None,
        overlap: int | None = None,
        split_on: SplitOn | None = None,
        *,
        skip_unchanged: bool = False,
        same_origin_only: bool = False,
    ) -> InsertReport:
        """Read, split, embed and store documents, all or none.

        A stored document with the same id is replaced as a whole, in the same step. Each chunk has
        its document's metadata, `document_id`, `token_count` and `metadata_token_count`, and for
        Markdown and HTML the first heading of level 1 as `title`, unless the metadata has a title.

        Args:
            documents: Documents with distinct ids.
            chunk_size_in_tokens: Maximum cl100k tokens per chunk, 1 to 8192; None for the
                registration's size. If neither the request nor the registration sets a size, chunks
                also fit the embedding model's window; otherwise a note says if they do not.
            overlap: Maximum tokens repeated from the previous chunk, at most half the size; None
                for the registration's share of the size.
            split_on: Text at which chunks end, "" for none; None for the registration's.
            skip_unchanged: True to skip documents that are stored in the form they would get now.
            same_origin_only: True to reject replacing a document of another origin.

        Raises:
            NotFound: There is no such vector DB.
            Conflict: A document would replace one of another origin.
            InvalidRequest: A document is empty, unreadable, repeated, of an unsupported type or at
                an address that is not allowed; a size is out of range; or a limit is exceeded.
            MissingDependency: The package that reads a document is not installed.
            ProviderError: The embedder or the backend failed; nothing was stored.
        """
        sizes = chunk_size_in_tokens, overlap, split_on
        how = await self.splitting(library, await library.vector_db(vector_db_id), *sizes)
        self._check_documents(documents)
        same: set[str] = set()
        if skip_unchanged or same_origin_only:
            index = await library.index(vector_db_id)
            same = await self.unchanged(
                index, documents, how.sizes, same_origin_only=same_origin_only
            )
        report = InsertReport(unchanged=sorted(same) if skip_unchanged else [])
        chunks = await self._all_chunks(documents, how, report)
        if report.chunks:
            index = await library.index(vector_db_id)
            # Resolve the settings again: a rebuild may have ended in the meantime.
            now = await self.splitting(library, index.vector_db, *sizes)
            await self._embed_and_store(index, chunks, now, report)
        report.notes.extend(await self.notes(chunks, how))
        return report

    # --- the steps, which jobs run one by one ------------------------------------------------

    async def splitting(
        self,
        library: Library,
        vector_db: VectorDB,
        size: int | None = None,
        overlap: int | None = None,
        split_on: SplitOn | None = None,
    ) -> Splitting:
        """Return the settings for splitting: the request's sizes, or else the registration's.

        Raises:
            InvalidRequest: A size is out of range, or the `context_model` is not configured.
            Conflict: The model is not the one that made the stored embeddings.
            ProviderError, MissingDependency: See `preparing`.
        """
        taken = Sizes.of(vector_db, size, overlap, split_on)
        embedder = await library.embedder_of(vector_db)
        reranker = await preparing(library, vector_db)
        model, contexts = vector_db.chunking.context_model, None
        if model is not None:
            field_, hint = "chunking.context_model", "Configure one, or register without it."
            _, contexts = serving(library, model, field_, hint)
        return Splitting(vector_db, embedder, taken, window_of(embedder), reranker, contexts)

    async def unchanged(
        self,
        index: EmbeddingIndex,
        documents: Sequence[RAGDocument],
        sizes: Sizes,
        *,
        same_origin_only: bool,
    ) -> set[str]:
        """Return the ids of documents that are stored in the form they would get now.

        Raises:
            Conflict: `same_origin_only` is True and a stored document has another origin.
        """
        hashes = await self.reader.run(lambda: {d.document_id: sizes.hash(d) for d in documents})
        origins = {d.document_id: d.origin for d in documents} if same_origin_only else {}
        return await unchanged(index, hashes, origins)

    async def read(self, document: RAGDocument) -> ParsedDocument:
        """Return the text of a document; fetch it first if its content is an address.

        Raises:
            InvalidRequest: The document is unreadable, has an unsupported type, or has an address
                that is not allowed.
            MissingDependency: The package that reads this type is not installed.
        """
        return (await self._read(document))[0]

    async def read_all(self, document: RAGDocument) -> list[Text]:
        """Return a document and the documents in it, such as the attachments of a mail, as texts.

        Raises:
            InvalidRequest, MissingDependency: As `read` and `with_parts` say.
        """
        parsed, content, mime_type = await self._read(document)
        return await self._with_parts((document, parsed), content, mime_type)

    async def read_file(
        self, document: RAGDocument, path: Path, filename: str, charset: str = ""
    ) -> list[Text]:
        """Read an uploaded file and the documents in it, as `read_all` does."""
        parsed = await self.reader.read_file(path, filename, charset)
        return await self._with_parts((document, parsed), path, type_of(filename))

    async def _with_parts(self, text: Text, content: Content, mime_type: str | None) -> list[Text]:
        if not text[1].parts:
            return [text]
        return await with_parts(self.reader, text, content, mime_type, self._document_limits)

    async def _read(self, document: RAGDocument) -> tuple[ParsedDocument, Content, str | None]:
        """Return the text, the content and the MIME type of a document."""
        content, mime_type = document.content, document.mime_type
        if not isinstance(content, URL):
            return await self.reader.read(content, mime_type), content, mime_type
        if content.uri[:5].lower() == "data:":
            return await self.reader.read_data_uri(content.uri, mime_type), content, mime_type
        fetched = await (self._fetcher or _fetcher(self._settings)).fetch(content.uri)
        kind = chosen_type(mime_type, served_type(fetched.url, fetched.content_type))
        return await self.reader.read(fetched.data, kind), fetched.data, kind

    def chunks(
        self,
        document: RAGDocument,
        parsed: ParsedDocument,
        how: Splitting,
        most: int | None = None,
    ) -> Iterator[Chunk]:
        """Yield the chunks of a document lazily; see `each_chunk`. Blocks."""
        chosen = how.sizes.chunking, how.vector_db, self._metadata_cost, how.bound, most
        yield from each_chunk(document, parsed, *chosen, how.sizes.hash(document))

    async def embed(
        self, chunks: Iterator[Chunk], how: Splitting, batch: int = JOB_BATCH
    ) -> AsyncGenerator[Embedded, None]:
        """Yield batches of chunks with their embeddings; split the next batch concurrently.

        Raises:
            InvalidRequest: A text has no visible character.
            ProviderError: The embedder failed, the `context_model`, or the re-ranker that reads
                the chunks ahead.
        """
        dimension = how.vector_db.embedding_dimension
        writer = self._writer(how)
        batch = batch if writer is None else CONTEXT_BATCH

        def following() -> list[Chunk]:
            return all_cleaned(list(islice(chunks, batch)), dimension)

        def begun() -> asyncio.Future[list[Chunk]]:
            return asyncio.ensure_future(self.reader.run(following))

        coming: asyncio.Future[list[Chunk]] | None = begun()
        try:
            while coming and (some := await coming):
                coming = begun() if len(some) == batch else None
                costs: Mapping[str, ContextCost] = {}
                if writer is not None:
                    some, costs = await writer.write(some)
                made = self._cache.made if self._cache else -1
                texts = [embedded_text(chunk) for chunk in some]
                rows = await embed(how.embedder, how.vector_db.tenant, texts, self._cache)
                fresh = self._cache is None or self._cache.made > made
                fresh = fresh or any(cost.calls for cost in costs.values())
                if how.reranker is not None:
                    await prepare(how.reranker, how.vector_db, some)
                yield Embedded(some, rows, fresh, coming is None, costs)
        finally:
            if coming:
                coming.cancel()

    async def store(
        self,
        index: EmbeddingIndex,
        chunks: Sequence[Chunk],
        rows: list[NDArray[np.float32]],
        document_ids: Sequence[str],
        containers: Sequence[str],
    ) -> None:
        """Store all chunks of documents in one write, replacing their stored chunks.

        Documents that are no longer in a stored container are deleted in the same write.

        Args:
            rows: The embeddings of the chunks in parts, in order. The list is emptied, so that only
                one copy of them is in memory.
            document_ids: Ids of the documents to replace.
            containers: Ids of the documents that may contain others.

        Raises:
            ProviderError: The backend failed; nothing was stored.
        """
        # Keep no reference to the embeddings, so that the index can free them after its copy.
        dimension = index.vector_db.embedding_dimension
        stored = {each: await parts_of(index, each) for each in containers}
        replaced = dict.fromkeys([*document_ids, *chain.from_iterable(stored.values())])
        await index.add_chunks(chunks, _joined(rows, dimension), replace_documents=list(replaced))

    async def notes(self, chunks: Sequence[Chunk], how: Splitting) -> list[str]:
        """Return messages for the sender, for example about chunks beyond the model's window."""
        if not how.sizes.chosen or how.window is None:
            return []
        model = how.vector_db.embedding_model
        return await self.reader.run(unread, chunks, how.window, model)

    def _writer(self, how: Splitting) -> ContextWriter | None:
        vector_db, model = how.vector_db, how.vector_db.chunking.context_model
        if how.contexts is None or model is None:
            return None
        return ContextWriter(how.contexts, model, vector_db.tenant, self._contexts)

    # --- inside ------------------------------------------------------------------------------

    async def _all_chunks(
        self, documents: Sequence[RAGDocument], how: Splitting, report: InsertReport
    ) -> list[Chunk]:
        """Return the chunks of all documents except those the report lists as unchanged."""
        chunks: list[Chunk] = []
        for number, document in enumerate(documents):
            if document.document_id not in report.unchanged:
                chunks += await self._chunks(number, document, how, report, len(chunks))
        return chunks

    async def _chunks(
        self, number: int, document: RAGDocument, how: Splitting, report: InsertReport, before: int
    ) -> list[Chunk]:
        """Split a document and the documents in it; add their chunk counts to the report."""
        made: list[Chunk] = []
        for each, parsed in await self._parse(number, document):
            if each.document_id in report.chunks:
                raise _repeated(each.document_id, number)
            if parsed.unread:
                report.unread.setdefault(document.document_id, parsed.unread)
            if parsed.parts is not None:
                report.containers.append(each.document_id)
            most = self._limits.max_chunks_per_insert - before - len(made)
            own: list[Chunk] = await self.reader.run(list, self.chunks(each, parsed, how, most))
            report.chunks[each.document_id] = len(own)
            made += own
            self._check_chunks(before + len(made))
        return made

    async def _parse(self, number: int, document: RAGDocument) -> list[Text]:
        """Read a document and the documents in it; errors name the document."""
        try:
            return await self.read_all(document)
        except InvalidRequest as error:
            raise InvalidRequest(
                f"Document {document.document_id!r}: {error.message}",
                hint=error.hint,
                field=f"documents[{number}].{error.field or 'content'}",
            ) from error

    async def _embed_and_store(
        self,
        index: EmbeddingIndex,
        chunks: Sequence[Chunk],
        how: Splitting,
        report: InsertReport,
    ) -> None:
        cleaned: list[Chunk] = []
        rows: list[NDArray[np.float32]] = []
        total = ContextCost()
        async with aclosing(self.embed(iter(chunks), how, EMBED_BATCH)) as coming:
            async for some in coming:
                cleaned += some.chunks
                rows.append(some.embeddings)
                for cost in some.costs.values():
                    total.add(cost)
        if total.calls:
            report.notes.append(total.described(str(how.vector_db.chunking.context_model)))
        await self.store(index, cleaned, rows, list(report.chunks), report.containers)

    def _check_documents(self, documents: Sequence[RAGDocument]) -> None:
        if not documents:
            raise InvalidRequest("The request has no documents.", field="documents")
        most = self._limits.max_documents_per_insert
        if len(documents) > most:
            raise InvalidRequest(
                f"The request has {len(documents)} documents.",
                hint=f"At most {most} are allowed (server.limits.max_documents_per_insert).",
                field="documents",
            )
        seen: set[str] = set()
        for number, document in enumerate(documents):
            if document.document_id in seen:
                raise _repeated(document.document_id, number)
            seen.add(document.document_id)

    def _check_chunks(self, count: int) -> None:
        most = self._limits.max_chunks_per_insert
        if count > most:
            raise InvalidRequest(  # The total is unknown, because splitting stops here.
                f"The request has more than {most} chunks.",
                hint="Send fewer documents, or use larger chunks; the operator's setting is "
                "server.limits.max_chunks_per_insert.",
                field="documents",
            )


def _repeated(document_id: str, number: int) -> InvalidRequest:
    return InvalidRequest(
        f"Document {document_id!r} is in the request twice.",
        hint="Send one version of it.",
        field=f"documents[{number}].document_id",
    )


def _joined(rows: list[NDArray[np.float32]], dimension: int) -> NDArray[np.float32]:
    """Return all embeddings, shape (n, dimension); free each part after copying it."""
    result = np.empty((sum(map(len, rows)), dimension), np.float32)
    end = len(result)
    while rows:
        part = rows.pop()
        result[end - len(part) : end] = part
        end -= len(part)
    return result


def _fetcher(settings: RagSettings) -> Fetcher:
    from corral.providers.ingestion.read.fetching import Fetcher  # noqa: PLC0415 - imports httpx

    return Fetcher(settings)
