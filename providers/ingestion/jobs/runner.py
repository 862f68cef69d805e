"""Run jobs: the workers of a process claim jobs and process each from file to stored chunks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from itertools import accumulate, chain, groupby
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import CorralError, InvalidRequest, NotFound, ProviderError
from corral.api.library import Library
from corral.api.options import checked
from corral.api.principal import Principal, Role
from corral.api.rag import URL, RAGDocument
from corral.api.vector_dbs import SplitOn
from corral.providers.base.config import IngestionSettings
from corral.providers.base.owner import Owner
from corral.providers.files.store import FileStore
from corral.providers.ingestion.chunk_buffer import PackedChunks
from corral.providers.ingestion.contexts import ContextCost
from corral.providers.ingestion.ingest import Ingester, Splitting
from corral.providers.ingestion.jobs.jobs import ErrorCode, Job, Progress, Step
from corral.providers.ingestion.jobs.queue import MAX_ATTEMPTS, JobQueue, NoLongerOurs
from corral.providers.ingestion.parts import Text
from corral.providers.state.claims import Claims
from corral.providers.state.leases import Leases
from corral.providers.state.state import State

REPORT_EVERY_SECONDS = 0.3
FLOAT_BYTES = 4
STORE_SECONDS = 10.0
"""Maximum time, in seconds, that a stopping worker waits for a document that is being stored."""
LOOK_EVERY_SECONDS = 0.25
"""Interval at which idle workers and watchers check for writes of other processes."""
TAKE_OVER_EVERY_SECONDS = 2.0
SWEEP_EVERY_SECONDS = 3600.0
KEPT_SECONDS = 7 * 24 * 3600.0
"""Age in seconds at which a finished job is deleted if a newer job has replaced it."""

log = logging.getLogger(__name__)


class FileLibrary(Library, Protocol):
    """A principal's view of a library with uploaded files; `Stack` implements it."""

    files: FileStore
    principal: Principal

    def for_principal(self, principal: Principal) -> FileLibrary:
        """Return a view for another principal."""


class JobRunner:
    """Runs the jobs of one owner.

    Args:
        queue: The queue of jobs.
        ingester: Reads, splits, embeds and stores documents.
        owner: Name of the owner; it runs only jobs claimed by this owner.
        retry_seconds: Pause before the first retry of a job.
        leases: Holds the owner's lease. Without a current lease, no document is stored.
    """

    def __init__(
        self,
        queue: JobQueue,
        ingester: Ingester,
        owner: str,
        retry_seconds: float,
        leases: Leases,
    ) -> None:
        self._queue, self._ingester, self._owner = queue, ingester, owner
        self._leases = leases
        self._retry_seconds = retry_seconds

    async def do(self, jobs: Sequence[Job], library: FileLibrary) -> list[Job]:
        """Run jobs that this owner has claimed, and record the outcome in the table.

        Several jobs are embedded and stored together. If that fails, each is run alone, so that the
        failure of one document does not affect the others.

        Args:
            jobs: One job, or the jobs of `next_jobs`.
            library: The view of the jobs' principal.

        Returns:
            The next jobs, claimed in the write that completed these jobs; empty if the jobs were
            run one by one, or if no job is waiting.
        """
        if len(jobs) == 1:
            return await self._alone(jobs[0], library, claim_next=True)
        try:
            return await self._do(jobs, library, claim_next=True)
        except Exception as error:  # noqa: BLE001 - any error; run each document alone
            log.info("%d jobs are done one by one: %s", len(jobs), type(error).__name__)
        for job in jobs:
            await self._alone(job, library, claim_next=False)
        return []

    async def _alone(self, job: Job, library: FileLibrary, *, claim_next: bool) -> list[Job]:
        try:
            return await self._do([job], library, claim_next=claim_next)
        except NoLongerOurs:
            pass
        except CorralError as error:
            await self._failed(job, error)
        except Exception as error:
            log.error("A job failed: %s", type(error).__name__)
            log.debug("the same, with its message", exc_info=error)
            await self._end(job, "server_error", "The server failed on this document.")
        return []

    async def _do(
        self, jobs: Sequence[Job], library: FileLibrary, *, claim_next: bool
    ) -> list[Job]:
        index = await _index(jobs[0], library)
        texts = await self._texts(jobs, library)
        how = await self._ingester.splitting(library, index.vector_db, *_sizes(jobs[0]))
        now = time.time()
        states = [_Embedding(job, own, now) for job, own in zip(jobs, texts, strict=True)]
        await self._embed(
            states, [self._ingester.chunks(*text, how) for own in texts for text in own], how
        )
        for state in states:
            state.notes += await self._ingester.notes(state.chunks, how)
        steps = [state.step(time.time()) for state in states]
        await self._queue.report(self._owner, steps, storing=True)
        storing = asyncio.ensure_future(self._store(index, states, claim_next=claim_next))
        try:
            return await asyncio.shield(storing)
        except asyncio.CancelledError:
            await asyncio.wait({storing}, timeout=STORE_SECONDS)
            raise

    async def _embed(
        self, states: Sequence[_Embedding], chunks: Sequence[Iterator[Chunk]], how: Splitting
    ) -> None:
        """Embed the chunks of several documents, and assign each batch to its documents."""
        of = {name: state for state in states for name in state.document_ids}
        if len(of) < sum(len(state.document_ids) for state in states):
            raise InvalidRequest("Two jobs store documents of the same id.")
        coming = self._ingester.embed(chain.from_iterable(chunks), how)
        async with aclosing(coming):
            async for some in coming:
                at = 0
                for document_id, own in groupby(some.chunks, lambda chunk: chunk.document_id):
                    state, part = of[str(document_id)], list(own)
                    state.add(part, some.embeddings[at : at + len(part)], fresh=some.fresh)
                    if cost := some.costs.get(str(document_id)):
                        state.cost.add(cost)
                    at += len(part)
                    if not some.is_last:  # After the last batch, the `storing` report follows.
                        await self._report(state)

    async def _store(
        self, index: EmbeddingIndex, states: Sequence[_Embedding], *, claim_next: bool
    ) -> list[Job]:
        chunks = states[0].chunks if len(states) == 1 else [c for s in states for c in s.chunks]
        names = [name for state in states for name in state.document_ids]
        containers = [name for state in states for name in state.containers]
        rows = [part for state in states for part in state.take_rows()]
        while not self._leases.is_current(self._owner):  # Frozen since the last report.
            await self._leases.renew(self._owner)
            steps = [state.step(time.time()) for state in states]
            await self._queue.report(self._owner, steps, storing=True)
        await self._ingester.store(index, chunks, rows, names, containers)
        row = index.vector_db.embedding_dimension * FLOAT_BYTES
        steps = [state.step(time.time(), row) for state in states]
        return await self._queue.complete(self._owner, steps, claim_next=claim_next)

    async def _texts(self, jobs: Sequence[Job], library: FileLibrary) -> list[list[Text]]:
        """Return the documents of each job and their parsed texts."""
        kept = await self._queue.reader.documents([job for job in jobs if job.file_id is None])
        return [await self._read(job, kept.get(job.number), library) for job in jobs]

    async def _read(
        self, job: Job, document: RAGDocument | None, library: FileLibrary
    ) -> list[Text]:
        if job.file_id is None:
            if document is None:
                raise NotFound("The job's document is no longer stored.", hint="Submit it again.")
            document = document.model_copy(update={"metadata": job.attributes})
            return await self._ingester.read_all(document)
        file = await library.files.get(job.file_id)
        own = file_document(job, file.sha256)
        async with library.files.local(file) as path:
            return await self._ingester.read_file(own, path, job.filename, file.charset)

    async def _report(self, state: _Embedding) -> None:
        now = time.time()
        if now - state.reported >= REPORT_EVERY_SECONDS:
            state.reported = now
            await self._queue.report(self._owner, [state.step(now)])

    async def _failed(self, job: Job, error: CorralError) -> None:
        """Record a failure. Provider errors are retried; other errors are final."""
        message = str(error).replace("\0", "\ufffd")  # PostgreSQL stores no NUL.
        if isinstance(error, InvalidRequest):
            unsupported = (error.field or "").endswith("mime_type")
            await self._end(job, "unsupported_file" if unsupported else "invalid_file", message)
        elif not isinstance(error, ProviderError) or job.attempts >= MAX_ATTEMPTS:
            await self._end(job, "server_error", message)
        else:
            pause = self._retry_seconds * 4 ** (job.attempts - 1)
            await self._give_back(job, message, time.time() + pause)

    async def _end(self, job: Job, code: ErrorCode, message: str) -> None:
        with suppress(NoLongerOurs):
            await self._queue.fail(job, self._owner, code, message)

    async def _give_back(self, job: Job, message: str, until: float) -> None:
        with suppress(NoLongerOurs):
            await self._queue.postpone(job, self._owner, message, until)


class Workers:
    """Runs jobs concurrently until it is closed.

    Jobs are in a table that all processes of an installation share. Each job has one owner at a
    time, a worker. If an owner on this machine was killed, its jobs are taken over at once. The
    jobs of any other dead or frozen owner are taken over when its lease has expired.

    Args:
        library: Vector DBs, models and files; usually a `Stack`.
        home: The data folder, for the locks of its processes.
        state: The tables.
        settings: Number of workers, and the pause before retries.
        ingester: Reads, splits, embeds and stores documents.
        host: As in `JobQueue`.

    Attributes:
        following: Held while the ACL of a stored document is read and recorded in its jobs.
    """

    def __init__(
        self,
        library: FileLibrary,
        home: Path,
        state: State,
        settings: IngestionSettings,
        ingester: Ingester,
        host: str,
    ) -> None:
        self.ingester = ingester
        self.queue = JobQueue(state, host=host)
        self.following = asyncio.Lock()
        self._library = library
        self._settings = settings
        self._owners = [Owner(home / "workers") for _ in range(settings.workers)]
        self._names = [owner.name for owner in self._owners]
        self._leases, self._claims = Leases(state), Claims(state, home)
        self._tasks: set[asyncio.Task[None]] = set()
        # Changed attributes that could not be written to the table.
        self._unrelabeled: list[tuple[Job, Mapping[str, Any]]] = []
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Wake idle workers."""
        self._news.set()

    async def change_attributes(self, job: Job, attributes: Mapping[str, Any]) -> bool:
        """Change the attributes of a job, as in `JobQueue.change_attributes`."""
        try:
            return await self.queue.change_attributes(job, self._names[0], attributes)
        except (CorralError, asyncio.CancelledError):
            self._unrelabeled.append((job, job.attributes))  # The change may be committed.
            raise

    async def relabeled(self, job: Job, attributes: Mapping[str, Any]) -> None:
        """Record the attributes of a stored document; if the write fails, retry it later.

        Raises:
            CorralError, NoLongerOurs: The write failed.
        """
        try:
            await self.queue.relabeled(job, self._names[0], attributes)
        except CorralError:
            self._unrelabeled.append((job, attributes))
            raise

    async def start(self) -> None:
        """Start the workers, unless they are running."""
        if self._tasks:
            return
        await self._leases.renew(*self._names)
        loops = [*map(self._work, self._names), self._keep_up()]
        self._tasks = {asyncio.create_task(loop) for loop in loops}
        for owner in self._owners:
            await asyncio.to_thread(owner.enter)

    async def close(self) -> None:
        """Stop the workers; their unfinished jobs are queued again."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for owner in self._owners if tasks else ():
            with suppress(CorralError):  # Otherwise another process takes the jobs over.
                await self.queue.release(owner.name)
                await self._leases.end(owner.name)
            await asyncio.to_thread(owner.leave)

    async def _work(self, owner: str) -> None:
        runner = JobRunner(
            self.queue, self.ingester, owner, self._settings.retry_seconds, self._leases
        )
        jobs: list[Job] = []
        while True:
            try:
                if not jobs:
                    self._news.clear()
                    first = await self.queue.claim(owner)
                    jobs = [first] if first else []
                if jobs:
                    jobs = await runner.do(jobs, self._library.for_principal(jobs[0].principal))
                    continue
            except CorralError as error:
                jobs = []  # The next claim queues them again.
                log.warning("Cannot use the table of jobs: %s", error)
            # Not wait_for: on Python 3.11 it may swallow a cancellation.
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_SECONDS):
                    await self._news.wait()

    async def _keep_up(self) -> None:
        """Take over the jobs of dead owners and sweep old jobs, at intervals."""
        swept = time.monotonic()
        while True:
            try:
                while self._unrelabeled:
                    job, attributes = self._unrelabeled[0]
                    with suppress(NoLongerOurs):
                        await self.queue.relabeled(job, self._names[0], attributes)
                    self._unrelabeled.pop(0)
                await self._leases.renew(*self._names)
                await self._take_over()
                if time.monotonic() - swept > SWEEP_EVERY_SECONDS:
                    swept = time.monotonic()
                    await self._claims.run("sweep jobs", self.sweep, every=SWEEP_EVERY_SECONDS)
            except CorralError as error:
                log.warning("Cannot use the table of jobs: %s", error)
            await asyncio.sleep(TAKE_OVER_EVERY_SECONDS)

    async def _take_over(self) -> None:
        """Queue the jobs of dead and frozen owners again."""
        others = await self.queue.reader.owners() - {*self._names}
        expired = await self._leases.expired(others)
        for owner in others:
            if owner in expired or await asyncio.to_thread(self._was_killed, owner):
                if await self.queue.take_over(owner):
                    self._news.set()
                await self._leases.end(owner)
                await asyncio.to_thread(self._owners[0].forget, owner)

    def _was_killed(self, owner: str) -> bool:
        """Return True if an owner on this machine is dead; for others only the lease can tell."""
        return self._owners[0].is_here(owner) and self._owners[0].is_dead(owner)

    async def sweep(self) -> int:
        """Delete the jobs of deleted vector DBs, and old replaced jobs; return their number."""
        gone = [
            each for each in await self.queue.reader.vector_dbs() if not await self._exists(*each)
        ]
        return await self.queue.sweep(gone, time.time() - KEPT_SECONDS)

    async def _exists(self, tenant: str, vector_db_id: str, created_at: float) -> bool:
        with suppress(NotFound):
            found = await self._of_tenant(tenant).vector_db(vector_db_id)
            return found.created_at == created_at
        return False

    def _of_tenant(self, tenant: str) -> FileLibrary:
        return self._library.for_principal(Principal.stored(tenant, role=Role.ADMIN))


class _Embedding:
    """Collects the chunks of a job's documents and their embeddings.

    Args:
        job: The job, with the start time of its attempt.
        texts: Its document and the documents in it, with their texts.
        now: The current time in Unix seconds.
    """

    def __init__(self, job: Job, texts: Sequence[Text], now: float) -> None:
        self.job = job
        parsed = texts[0][1]
        self.document_ids = [document.document_id for document, _ in texts]
        self.containers = [each.document_id for each, own in texts if own.parts is not None]
        lengths = [len(own.text) for _, own in texts]
        self._starts = dict(zip(self.document_ids, accumulate(lengths, initial=0), strict=False))
        self._characters = sum(lengths)
        self.chunks = PackedChunks()
        self.notes = [f"not read: {', '.join(parsed.unread)}"] if parsed.unread else []
        spent = job.progress  # of earlier attempts, which cached the sentences
        self.cost = ContextCost(spent.context_calls, spent.context_tokens, spent.context_seconds)
        self._started = job.progress.started_at or now
        self.reported = self._started
        self._content_bytes = self._end = 0
        self._fresh = False
        self._rows: list[NDArray[np.float32]] = []
        self._parsed = parsed

    def add(self, chunks: Sequence[Chunk], rows: NDArray[np.float32], *, fresh: bool) -> None:
        """Add chunks with their embeddings; `fresh` is True if some were computed now."""
        self.chunks.extend(chunks)
        record = chunks[-1].chunk_metadata
        start = self._starts[str(chunks[-1].document_id)]
        self._end = start + ((record and record.char_end) or 0)
        self._content_bytes += sum(len(chunk.content.encode()) for chunk in chunks)
        self._rows.append(rows)
        self._fresh = self._fresh or fresh

    def step(self, now: float, row_bytes: int = 0) -> Step:
        """Return the progress, with `headway` if embeddings were computed since the last call."""
        fresh, self._fresh = self._fresh, False
        usage = self._content_bytes + len(self.chunks) * row_bytes
        return Step(self.job, self._progress(now), fresh, usage, self.notes)

    def take_rows(self) -> list[NDArray[np.float32]]:
        """Return the embeddings in parts, and drop the references to them."""
        rows, self._rows = self._rows, []
        return rows

    def _progress(self, now: float) -> Progress:
        """Return the progress of the document."""
        end = self._end
        return Progress(
            pages=self._parsed.page(end - 1) or 0 if end else 0,
            pages_total=len(self._parsed.page_starts) or None,
            characters=end,
            characters_total=self._characters,
            chunks=len(self.chunks),
            embedded=len(self.chunks),
            context_calls=self.cost.calls,
            context_tokens=self.cost.tokens,
            context_seconds=self.cost.seconds,
            started_at=self._started,
            seconds=max(0.0, now - self._started),
        )


def file_document(job: Job, sha256: str) -> RAGDocument:
    """Return the document for a job's file; a hash of the file stands for its content."""
    metadata = {**job.attributes, "file_id": job.file_id, "filename": job.filename}
    content = URL(uri=f"data:;sha256,{sha256}")
    fields = {"content": content, "metadata": metadata, "acl": job.acl}
    return checked(RAGDocument, {"document_id": job.document_id, **fields})


def _sizes(job: Job) -> tuple[int | None, int | None, SplitOn | None]:
    """Return the job's chunk size, overlap and `split_on`; None for values that are not set."""
    asked = job.chunking
    if asked is None:
        return None, None, None
    size = asked.chunk_size_in_tokens if "chunk_size_in_tokens" in asked.model_fields_set else None
    return size, asked.overlap_in_tokens, asked.split_on


async def _index(job: Job, library: FileLibrary) -> EmbeddingIndex:
    index = await library.index(job.vector_db_id)
    if index.vector_db.created_at != job.vector_db_created_at:
        raise NotFound(f"The vector DB {job.vector_db_id!r} was deleted.")
    return index
