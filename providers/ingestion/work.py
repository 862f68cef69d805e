"""One job, from its claim to its end: read, split, embed, store, each step noted in the table."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import CorralError, InvalidRequest, NotFound, ProviderError
from corral.api.library import Library
from corral.api.options import checked
from corral.api.principal import Principal
from corral.api.rag import URL, RAGDocument
from corral.providers.files.store import FileStore
from corral.providers.ingestion.job_table import MAX_ATTEMPTS, JobTable, NoLongerOurs
from corral.providers.ingestion.jobs import ErrorCode, Job, Progress
from corral.providers.ingestion.packed import PackedChunks
from corral.providers.ingestion.parsing import ParsedDocument
from corral.providers.ingestion.pipeline import Embedded, Pipeline

REPORT_EVERY_SECONDS = 0.3
FLOAT_BYTES = 4
STORE_SECONDS = 10.0
"""How long a worker that is told to stop waits for a document that is being stored."""
FIRST_PAUSE_SECONDS = 2.0
"""Before a job is tried again; four times as long after each further failure."""

log = logging.getLogger(__name__)


class Shelves(Library, Protocol):
    """A library with uploaded files, as a principal sees it; `Stack` is one."""

    files: FileStore
    principal: Principal

    def for_principal(self, principal: Principal) -> Shelves:
        """Return the same as another principal sees it."""


class Work:
    """Does jobs for one owner.

    Args:
        table: Where the jobs are.
        pipeline: Makes chunks of documents.
        owner: For whom; only its own jobs are given to it.
        clock: Says the time, in Unix seconds.
    """

    def __init__(
        self,
        table: JobTable,
        pipeline: Pipeline,
        owner: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._pipeline = pipeline
        self._owner = owner
        self._clock = clock

    async def do(self, job: Job, shelves: Shelves) -> Job | None:
        """Do a job that this owner has claimed; whatever happens is in the table afterwards.

        Args:
            job: The job.
            shelves: Where vector DBs, models and files are, as the job's tenant sees them.

        Returns:
            The next job, claimed in the step that noted the end of this one; None where this one
            was not stored, or none waits.
        """
        try:
            return await self._do(job, shelves)
        except NoLongerOurs:
            pass
        except CorralError as error:
            await self._failed(job, error)
        except Exception as error:
            log.error("A job failed: %s", type(error).__name__)
            log.debug("the same, with its message", exc_info=error)
            await self._end(job, "server_error", "The server failed on this document.")
        return None

    async def _do(self, job: Job, shelves: Shelves) -> Job | None:
        index = await _index(job, shelves)
        document, parsed = await self._read(job, shelves)
        how = await self._pipeline.splitting(shelves, index.vector_db, *_sizes(job))
        state = _Embedding(job.progress.started_at or self._clock(), parsed)
        chunks = self._pipeline.chunks(document, parsed, how)
        async with aclosing(self._pipeline.embed(chunks, how)) as coming:
            async for some in coming:
                state.add(some)
                if not some.is_last:  # `storing` says the same right away
                    await self._report(job, state)
        unread = [f"not read: {', '.join(parsed.unread)}"] if parsed.unread else []
        notes = [*unread, *await self._pipeline.notes(state.chunks, how)]
        progress = state.progress(self._clock())
        await self._table.storing(job, self._owner, progress, headway=state.headway())
        storing = asyncio.ensure_future(self._store(job, index, state, notes))
        try:
            return await asyncio.shield(storing)
        except asyncio.CancelledError:
            await asyncio.wait({storing}, timeout=STORE_SECONDS)
            raise

    async def _store(
        self, job: Job, index: EmbeddingIndex, state: _Embedding, notes: Sequence[str]
    ) -> Job | None:
        chunks, dimension = state.chunks, index.vector_db.embedding_dimension
        size = state.content_bytes + len(chunks) * dimension * FLOAT_BYTES
        # Nobody here keeps the embeddings: the index lets them go once it has its own form of them.
        await index.add_chunks(chunks, state.matrix(dimension), replace_documents=[job.document_id])
        progress = state.progress(self._clock())
        return await self._table.complete(job, self._owner, progress, size, notes, claim_next=True)

    async def _read(self, job: Job, shelves: Shelves) -> tuple[RAGDocument, ParsedDocument]:
        """Return a job's document and its text."""
        if job.file_id is None:
            document = await self._table.document(job)
            if document is None:
                raise NotFound("The document is no longer kept.", hint="Submit it again.")
            document = document.model_copy(update={"metadata": job.attributes})
            return document, await self._pipeline.read(document)
        file = await shelves.files.get(job.file_id)
        path = shelves.files.path(file)
        return file_document(job, file.sha256), await self._pipeline.read_file(path, job.filename)

    async def _report(self, job: Job, state: _Embedding) -> None:
        now = self._clock()
        if now - state.reported >= REPORT_EVERY_SECONDS:
            state.reported = now
            progress = state.progress(now)
            await self._table.report(job, self._owner, progress, headway=state.headway())

    async def _failed(self, job: Job, error: CorralError) -> None:
        """Record a failure: what may pass is tried again, the rest is final."""
        if isinstance(error, InvalidRequest):
            unsupported = (error.field or "").endswith("mime_type")
            await self._end(job, "unsupported_file" if unsupported else "invalid_file", str(error))
        elif not isinstance(error, ProviderError) or job.attempts >= MAX_ATTEMPTS:
            await self._end(job, "server_error", str(error))
        else:
            pause = FIRST_PAUSE_SECONDS * 4 ** (job.attempts - 1)
            await self._give_back(job, str(error), self._clock() + pause)

    async def _end(self, job: Job, code: ErrorCode, message: str) -> None:
        with suppress(NoLongerOurs):
            await self._table.fail(job, self._owner, code, message)

    async def _give_back(self, job: Job, message: str, until: float) -> None:
        with suppress(NoLongerOurs):
            await self._table.postpone(job, self._owner, message, until)


class _Embedding:
    """The chunks of a document and their embeddings, as they come.

    Args:
        started: When the job began, in Unix seconds.
        parsed: The document.
    """

    def __init__(self, started: float, parsed: ParsedDocument) -> None:
        self.chunks = PackedChunks()
        self.content_bytes = 0
        self.reported = started
        self._fresh = False
        self._end = 0
        self._rows: list[NDArray[np.float32]] = []
        self._started = started
        self._parsed = parsed

    def add(self, some: Embedded) -> None:
        """Take some more."""
        self.chunks.extend(some.chunks)
        record = some.chunks[-1].chunk_metadata
        self._end = (record and record.char_end) or 0
        self.content_bytes += sum(len(chunk.content.encode()) for chunk in some.chunks)
        self._rows.append(some.embeddings)
        self._fresh = self._fresh or some.fresh

    def headway(self) -> bool:
        """Return True if embeddings were made that nobody had, since this was asked last."""
        fresh, self._fresh = self._fresh, False
        return fresh

    def matrix(self, dimension: int) -> NDArray[np.float32]:
        """Return all embeddings, shape (n, dimension), once; the parts are let go on the way."""
        result = np.empty((len(self.chunks), dimension), np.float32)
        end = len(result)
        while self._rows:
            rows = self._rows.pop()
            result[end - len(rows) : end] = rows
            end -= len(rows)
        return result

    def progress(self, now: float) -> Progress:
        """Return how far it is."""
        end = self._end
        return Progress(
            pages=self._parsed.page(end - 1) or 0 if end else 0,
            pages_total=len(self._parsed.page_starts) or None,
            characters=end,
            characters_total=len(self._parsed.text),
            chunks=len(self.chunks),
            embedded=len(self.chunks),
            started_at=self._started,
            seconds=max(0.0, now - self._started),
        )


def file_document(job: Job, sha256: str) -> RAGDocument:
    """Return the document that a job's file becomes; its content is named, not held."""
    metadata = {**job.attributes, "file_id": job.file_id, "filename": job.filename}
    content = URL(uri=f"data:;sha256,{sha256}")
    return checked(
        RAGDocument, {"document_id": job.document_id, "content": content, "metadata": metadata}
    )


def _sizes(job: Job) -> tuple[int, int] | tuple[()]:
    """Return size and overlap as the job says them, nothing where it does not."""
    asked = job.chunking
    return (asked.chunk_size_in_tokens, asked.overlap_in_tokens) if asked else ()


async def _index(job: Job, shelves: Shelves) -> EmbeddingIndex:
    index = await shelves.index(job.vector_db_id)
    if index.vector_db.created_at != job.vector_db_created_at:
        raise NotFound(f"The vector DB {job.vector_db_id!r} was deleted.")
    return index
