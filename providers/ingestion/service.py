"""Ingestion that survives anything: documents become jobs, which are submitted and changed here."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, Self
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError

from corral.api.documents import READ_AT_ONCE
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import Forbidden, InvalidRequest, NotFound, Unavailable
from corral.api.principal import Principal, Role
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig, VectorDB
from corral.api.wire import Metadata
from corral.api.writes import Write
from corral.providers.base.document_names import name_in
from corral.providers.base.documents import (
    acls_of,
    change_attributes,
    delete_document,
    stored_acl,
)
from corral.providers.ingestion.ingest import InsertReport
from corral.providers.ingestion.jobs.jobs import UNFINISHED, Job, JobRequest, JobStatus, Submission
from corral.providers.ingestion.jobs.queue import NoLongerOurs
from corral.providers.ingestion.jobs.reader import Scope, followed
from corral.providers.ingestion.jobs.runner import LOOK_EVERY_SECONDS, FileLibrary, Workers
from corral.providers.ingestion.split.chunking import Sizes

MAX_PAGE = 1000

WAIT_SECONDS = 60.0
"""How long a change to a document waits while it is being stored."""

_ATTRIBUTES = TypeAdapter(Metadata)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Documents before they are submitted.

    Attributes:
        changed: What has to be ingested.
        unchanged: Ids of the documents that are stored as they would be now.
        chunking: The sizes that were asked for; None: the registration's.
    """

    changed: list[RAGDocument]
    unchanged: list[str]
    chunking: ChunkingConfig | None


class Ingestion:
    """Takes documents in, and works on them until they are stored or have failed.

    Jobs are in a table that all processes of a data folder share. Each job has one owner at a time;
    what a killed owner has left is taken over. Documents are stored whole, and replace an earlier
    version in one step.

    A job writes with the rights of who submitted it. A principal sees the jobs of its tenant that
    it submitted, or whose documents it may read; no others exist for it.

    Args:
        library: Where vector DBs, models and files are, as a principal sees them; a `Stack`.
        workers: Run the jobs, and hold the ingester.
    """

    def __init__(self, library: FileLibrary, workers: Workers) -> None:
        self._library = library
        self._queue, self._reader = workers.queue, workers.queue.reader
        self._workers = workers
        self._following = asyncio.Lock()

    def on(self, library: FileLibrary) -> Self:
        """Return the same for another principal."""
        view = copy.copy(self)
        view._library = library
        return view

    async def start(self) -> None:
        """Start the workers of this process, if they do not run."""
        await self._workers.start()

    async def close(self) -> None:
        """Stop the workers; what they have not stored is queued again."""
        await self._workers.close()

    async def sweep(self) -> int:
        """Forget the jobs of deleted vector DBs, and old replaced ones; return how many."""
        return await self._workers.sweep()

    async def insert(
        self,
        documents: Sequence[RAGDocument],
        vector_db_id: str,
        chunk_size_in_tokens: int | None = None,
        overlap: int | None = None,
        **options: bool,
    ) -> InsertReport:
        """Read, split, embed and store documents now, all or none; see `Ingester.insert`."""
        sizes = chunk_size_in_tokens, overlap
        insert = self._workers.ingester.insert
        return await insert(self._library, documents, vector_db_id, *sizes, **options)

    # --- submitting --------------------------------------------------------------------------

    async def submit(
        self,
        requests: Sequence[JobRequest],
        *,
        batch: bool | str = False,
        same_origin_only: bool = False,
    ) -> list[Job]:
        """Queue documents and return their jobs, in order; they outlive the process from here on.

        An unfinished job of the same document is cancelled; one that would store the same is
        returned in the place of a new one.

        Args:
            requests: What to ingest.
            batch: True makes a batch of them; the id of a batch adds them to it.
            same_origin_only: Whether to refuse a document that an unfinished job ingests from
                another origin.

        Raises:
            NotFound: There is no such vector DB, or no such file.
            InvalidRequest: A request names neither a file nor a document, or both, or its
                attributes are no JSON.
            Conflict: As `same_origin_only` says. Nothing was queued, as with the others.
        """
        await self.start()
        known = {r.vector_db_id: None for r in requests}
        vector_dbs = {name: await self._library.vector_db(name) for name in known}
        new = [await self._submission(r, vector_dbs[r.vector_db_id]) for r in requests]
        batch_id = f"vsfb_{uuid4().hex[:24]}" if batch is True else batch or None
        jobs = await self._queue.add(new, batch_id, same_origin=same_origin_only)
        self._workers.wake()
        return jobs

    async def prepare(
        self,
        vector_db_id: str,
        documents: Sequence[RAGDocument],
        size: int | None,
        overlap: int | None,
        *,
        skip_unchanged: bool,
        same_origin_only: bool,
    ) -> Prepared:
        """Return which documents have to be ingested, and into chunks of which sizes.

        Raises:
            NotFound: There is no such vector DB.
            InvalidRequest: A document is given twice, or a size is out of range.
            Conflict: `same_origin_only`, and a document is stored from another origin; or the
                model is not the one that made the embeddings that are stored.
        """
        twice = [i for i, n in Counter(d.document_id for d in documents).items() if n > 1]
        if twice:
            raise InvalidRequest(
                f"Document {twice[0]!r} is in the request twice.", field="documents"
            )
        index = await self._library.index(vector_db_id)
        sizes = Sizes.of(index.vector_db, size, overlap)
        same: set[str] = set()
        if documents and (skip_unchanged or same_origin_only):
            same = await self._workers.ingester.unchanged(
                index, documents, sizes, same_origin_only=same_origin_only
            )
        left = sorted(same) if skip_unchanged else []
        changed = [each for each in documents if each.document_id not in left]
        if changed:
            await self._library.embedder_of(index.vector_db)  # refuses another model; loads it
        chosen = size is not None or overlap is not None
        return Prepared(changed, left, sizes.chunking if chosen else None)

    async def _submission(self, request: JobRequest, vector_db: VectorDB) -> Submission:
        if (request.file_id is None) == (request.document is None):
            raise InvalidRequest("A job needs a file or a document.", field="file_id")
        _check_attributes(request.attributes)
        if request.document is not None:
            name = name_in(request.document.metadata) or ""
            return Submission(request, vector_db, name, self._library.principal)
        filename = await self._filename(str(request.file_id), must_exist=request.must_exist)
        return Submission(request, vector_db, filename, self._library.principal)

    async def _filename(self, file_id: str, *, must_exist: bool) -> str:
        """Return a file's name; "" of one that does not exist, where it need not."""
        try:
            file = await self._library.files.get(file_id)
            if file.tenant == self._library.principal.tenant:  # else it does not exist for this one
                return file.filename
        except NotFound:
            pass
        if must_exist:
            raise NotFound(f"There is no file {file_id!r}.", field="file_id")
        return ""

    # --- looking -----------------------------------------------------------------------------

    async def job(self, job_id: str) -> Job:
        """Return a job, or raise NotFound."""
        return await self._reader.get(self._all(job_id=job_id), f"job {job_id!r}")

    async def newest(self, vector_db_id: str, file_id: str) -> Job:
        """Return the newest job of a file in a vector DB, or raise NotFound."""
        vector_db = await self._library.vector_db(vector_db_id)
        scope = self._all(vector_db=vector_db, file_id=file_id)
        return await self._reader.get(scope, f"file {file_id!r} in vector DB {vector_db_id!r}")

    async def page(
        self,
        *,
        vector_db_id: str | None = None,
        batch_id: str | None = None,
        status: JobStatus | Collection[JobStatus] | None = None,
        after: str | None = None,
        before: str | None = None,
        limit: int = 20,
        order: Literal["asc", "desc"] = "desc",
        newest_only: bool = False,
        changed_after: int | None = None,
        files_only: bool = False,
    ) -> tuple[list[Job], bool]:
        """Return jobs in the order of their submission, and whether there are more.

        Args:
            vector_db_id: Only those of this vector DB.
            batch_id: Only those of this batch.
            status: Only those in this state, or in one of these.
            after: Only those that follow this one: a job's id, or a file's for its newest job.
            before: Only those that precede this one; those right before it where `after` is None.
            limit: Most jobs, 1 to 1000.
            order: "desc" has the newest first.
            newest_only: Only the newest job of each document.
            changed_after: Only those that changed after this version, in the order of changes.
            files_only: Only those of uploaded files.

        Raises:
            NotFound: There is no such vector DB, or nothing of the id `after` or `before`.
        """
        scope = await self._scope(
            vector_db_id,
            batch_id=batch_id,
            statuses={status} if isinstance(status, JobStatus) else status,
            newest_only=newest_only,
            files_only=files_only,
        )
        most = max(1, min(limit, MAX_PAGE))
        if changed_after is not None:
            found = await self._reader.find(replace(scope, changed_after=changed_after), most + 1)
            return found[:most], len(found) > most
        return await self._reader.page(scope, after=after, before=before, limit=most, order=order)

    async def counts(
        self,
        *,
        vector_db_id: str | None = None,
        batch_id: str | None = None,
        files_only: bool = False,
    ) -> Counter[JobStatus]:
        """Return how many jobs are in each state; of a vector DB, the newest of each document."""
        which = {"batch_id": batch_id, "newest_only": batch_id is None, "files_only": files_only}
        return await self._reader.counts(await self._scope(vector_db_id, **which))

    async def backlog(self) -> Counter[JobStatus]:
        """Return how many jobs of all tenants are in each state."""
        return await self._reader.counts(Scope())

    async def usage_bytes(self, vector_db_id: str) -> int:
        """Return the bytes of texts and embeddings that the jobs of a vector DB have stored."""
        which = {"statuses": {JobStatus.COMPLETED}, "newest_only": True}
        return await self._reader.usage(await self._scope(vector_db_id, **which))

    async def changes(
        self, *, job_id: str | None = None, batch_id: str | None = None
    ) -> AsyncIterator[list[Job]]:
        """Yield what has changed, at first all, every `LOOK_EVERY_SECONDS` until all are final."""
        version, done = -1, False
        while not done:
            scope = self._all(batch_id=batch_id, job_id=job_id)
            done = not await self._are_unfinished(scope)
            changed = await self._reader.find(replace(scope, changed_after=version))
            version = max([version, *(job.version for job in changed)])
            yield changed
            if not done:
                await asyncio.sleep(LOOK_EVERY_SECONDS)

    async def wait(self, jobs: Sequence[Job], seconds: float) -> None:
        """Return once jobs are final, or after some seconds; the jobs go on in either case.

        Notices the end of a job of this process at once, and of any other within
        `LOOK_EVERY_SECONDS`.

        Args:
            jobs: One job, or all jobs of a batch.
            seconds: 0 returns at once.
        """
        if not jobs or not seconds:
            return
        batch_id = jobs[0].batch_id
        scope = self._all(batch_id=batch_id, job_id=None if batch_id else jobs[0].job_id)
        with self._queue.watching(jobs) as ended, suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while await self._are_unfinished(scope):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_EVERY_SECONDS):
                            await ended.wait()
                    ended.clear()

    # --- changing ----------------------------------------------------------------------------

    async def cancel(
        self,
        *,
        job_id: str | None = None,
        vector_db_id: str | None = None,
        batch_id: str | None = None,
    ) -> int:
        """Cancel unfinished jobs and return how many; a document that is being stored is stored."""
        scope = await self._scope(vector_db_id, batch_id=batch_id, job_id=job_id)
        return await self._queue.cancel(scope)

    async def retry(
        self,
        *,
        job_id: str | None = None,
        vector_db_id: str | None = None,
        batch_id: str | None = None,
    ) -> int:
        """Queue failed and cancelled jobs again and return how many."""
        await self.start()
        scope = await self._scope(vector_db_id, batch_id=batch_id, job_id=job_id)
        count = await self._queue.retry(scope)
        self._workers.wake()
        return count

    async def remove(self, vector_db_id: str, file_id: str) -> None:
        """Delete what a file has become in a vector DB, and its jobs.

        Raises:
            NotFound: The file was never ingested there.
            Forbidden: Its document is closed to the principal, who submitted it.
            Unavailable: It is being stored, and that takes long.
        """
        job = await self._changeable(vector_db_id, file_id)
        vector_db = await self._library.vector_db(vector_db_id)
        scope = self._all(vector_db=vector_db, file_id=file_id)
        removed = False
        while not removed:  # again if the file was ingested once more meanwhile
            await self._queue.cancel(scope)
            await self._settled(scope)
            version = max((each.version for each in await self._reader.find(scope)), default=0)
            await delete_document(await self._library.index(vector_db_id), job.document_id)
            removed = await self._queue.remove(scope, version)

    async def set_attributes(
        self, vector_db_id: str, file_id: str, attributes: Mapping[str, Any]
    ) -> Job:
        """Give a file other attributes and return its job; nothing is embedded again.

        Raises:
            NotFound: The file was never ingested there.
            InvalidRequest: The attributes are no JSON.
            Forbidden, Conflict: The principal may not write the document; nothing is changed.
            Unavailable: It is being stored, and that takes long.
        """
        _check_attributes(attributes)
        vector_db = await self._library.vector_db(vector_db_id)
        await self.start()
        index = await self._library.index(vector_db_id)
        while True:
            await self._settled(self._all(vector_db=vector_db, file_id=file_id))
            job = await self._changeable(vector_db_id, file_id)
            with suppress(NoLongerOurs):  # another change came first: wait for that one, too
                if await self._queue.change_attributes(job, self._workers.owner, attributes):
                    await asyncio.shield(self._relabel(index, job, attributes))
                return await self.newest(vector_db_id, file_id)

    async def _changeable(self, vector_db_id: str, file_id: str) -> Job:
        """Return the newest job of a file; refuse one whose document is closed to the principal."""
        job = await self.newest(vector_db_id, file_id)
        if not (await self._reader.counts(self._all(job_id=job.job_id, changing=True))).total():
            raise Forbidden("You may not read the document of this file.", hint="Ask an admin.")
        return job

    async def _relabel(
        self, index: EmbeddingIndex, job: Job, attributes: Mapping[str, Any]
    ) -> None:
        """Give a stored document other attributes; where that fails, its job keeps the old ones."""
        recorded: Mapping[str, Any] = job.attributes
        try:
            await change_attributes(index, job.document_id, job.attributes, attributes)
            recorded = attributes
        finally:
            await self._workers.relabeled(job, recorded)

    # --- following ---------------------------------------------------------------------------

    async def follow(self, write: Write) -> None:
        """Record who may read the documents of a write now: their jobs are known to the same.

        A document has the tokens of all of its chunks. One that the write has stored whole is known
        by it; of others all chunks are read, one document at a time, and again once that is
        recorded: another process may have written meanwhile, and whoever records last must have
        read what is true.
        """
        vector_db, default = write.vector_db, write.vector_db.default_acl
        if len(write.chunks) <= READ_AT_ONCE:
            written = acls_of(write.chunks, default)
        else:
            written = await asyncio.to_thread(acls_of, write.chunks, default)
        index: EmbeddingIndex | None = None
        named = {*written, *write.replaced}
        if write.opened:
            index = await self._whole(vector_db)
            named |= set(acls_of(await index.get_chunks(write.opened), default)) if index else set()
        rows = await self._reader.recorded(vector_db, named)
        whole = {name: acl for name, acl in written.items() if name in write.replaced}
        if all(row[0] in whole for row in rows) and not followed(rows, whole):
            return
        index = index or await self._whole(vector_db)
        if index is None:
            return
        for document_id in {row[0] for row in rows}:
            recorded = None
            async with self._following:
                while (acl := await stored_acl(index, document_id)) not in (None, recorded):
                    await self._queue.follow(vector_db, {document_id: acl})
                    recorded = acl

    async def _whole(self, vector_db: VectorDB) -> EmbeddingIndex | None:
        """Return the index of a vector DB as its admin sees it; None: it is not registered."""
        library = self._library.for_principal(Principal.stored(vector_db.tenant, role=Role.ADMIN))
        with suppress(NotFound):
            index = await library.index(vector_db.identifier)
            return index if index.vector_db.created_at == vector_db.created_at else None
        return None

    async def _are_unfinished(self, scope: Scope) -> bool:
        counts = await self._reader.counts(scope)
        return any(counts[each] for each in UNFINISHED)

    async def _scope(self, vector_db_id: str | None, **chosen: Any) -> Scope:
        vector_db = await self._library.vector_db(vector_db_id) if vector_db_id else None
        return self._all(vector_db=vector_db, **chosen)

    def _all(self, **chosen: Any) -> Scope:
        principal = self._library.principal
        return Scope(principal.tenant, reader=principal, **chosen)

    async def _settled(self, scope: Scope) -> None:
        """Wait until no job of a scope is running."""
        running = replace(scope, statuses={JobStatus.RUNNING})
        deadline = time.monotonic() + WAIT_SECONDS
        while (await self._reader.counts(running)).total():
            if time.monotonic() > deadline:
                raise Unavailable("The file is being ingested.", hint="Try again.")
            await asyncio.sleep(LOOK_EVERY_SECONDS)


def _check_attributes(attributes: Mapping[str, Any]) -> None:
    try:
        _ATTRIBUTES.validate_python(dict(attributes))
        json.dumps(dict(attributes))
    except (ValidationError, TypeError, ValueError):
        raise InvalidRequest("attributes must be a JSON object.", field="attributes") from None
