"""Durable ingestion: submit documents as jobs, and list and change the jobs."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError

from corral.api.document_names import name_in
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import Forbidden, InvalidRequest, NotFound, Unavailable
from corral.api.rag import URL, RAGDocument
from corral.api.scope import Scope as Permissions
from corral.api.vector_dbs import ChunkingConfig, SplitOn, VectorDB
from corral.api.wire import Metadata
from corral.api.writes import Write
from corral.providers.base.documents import (
    change_attributes,
    delete_document,
)
from corral.providers.files.store import StoredFile
from corral.providers.ingestion.ingest import InsertReport
from corral.providers.ingestion.jobs.following import follow_write
from corral.providers.ingestion.jobs.jobs import UNFINISHED, Job, JobRequest, JobStatus, Submission
from corral.providers.ingestion.jobs.queue import NoLongerOurs
from corral.providers.ingestion.jobs.reader import Scope
from corral.providers.ingestion.jobs.runner import LOOK_EVERY_SECONDS, FileLibrary, Workers
from corral.providers.ingestion.read.reading import Reader
from corral.providers.ingestion.read.records import Columns, records, table_of_objects
from corral.providers.ingestion.rows import row_documents
from corral.providers.ingestion.split.chunking import Sizes

MAX_PAGE = 1000

WAIT_SECONDS = 60.0
"""Maximum time, in seconds, that a change waits for a document that is being stored."""

_ATTRIBUTES = TypeAdapter(Metadata)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Documents before they are submitted.

    Attributes:
        changed: The documents to ingest.
        unchanged: Ids of the documents that are stored in the form they would get now.
        chunking: The requested sizes; None for the registration's.
    """

    changed: list[RAGDocument]
    unchanged: list[str]
    chunking: ChunkingConfig | None


class Ingestion:
    """Accepts documents and processes them until they are stored or have failed.

    Jobs are in a table that all processes of a data folder share. Each job has one owner at a time;
    the jobs of a killed owner are taken over. A document is stored as a whole, and replaces its
    earlier version in one step.

    A job writes with the rights of its submitter. A principal sees the jobs of its tenant that it
    submitted, or that ingest documents it may read; other jobs do not exist for it.

    Args:
        library: A principal's view of vector DBs, models and files; usually a `Stack`.
        workers: The workers that run the jobs.
    """

    def __init__(self, library: FileLibrary, workers: Workers) -> None:
        self._library = library
        self._queue, self._reader = workers.queue, workers.queue.reader
        self._workers = workers

    def on(self, library: FileLibrary) -> Ingestion:
        """Return the ingestion for another principal; it shares the workers."""
        return Ingestion(library, self._workers)

    async def start(self) -> None:
        """Start the workers of this process, unless they are running."""
        await self._workers.start()

    async def close(self) -> None:
        """Stop the workers; their unfinished jobs are queued again."""
        await self._workers.close()

    async def sweep(self) -> int:
        """Delete the jobs of deleted vector DBs, and old replaced jobs; return their number."""
        return await self._workers.sweep()

    @property
    def reader(self) -> Reader:
        """The reader of documents, in processes of its own."""
        return self._workers.ingester.reader

    async def text_of(self, source: str | StoredFile) -> str:
        """Return the text of a document and of the documents in it, as ingestion would read them.

        Args:
            source: The address of the document, possibly a `data:` URI, or an uploaded file.

        Raises:
            InvalidRequest: The document is unreadable, has an unsupported type, or has an address
                that is not allowed.
            MissingDependency: The package that reads this type is not installed.
        """
        ingester = self._workers.ingester
        if isinstance(source, str):
            document = RAGDocument(document_id="input", content=URL(uri=source))
            texts = await ingester.read_all(document)
        else:
            document = RAGDocument(document_id=source.filename, content=source.filename)
            async with self._library.files.local(source) as path:
                texts = await ingester.read_file(document, path, source.filename, source.charset)
        [(_, whole), *parts] = texts
        return "\n\n".join([whole.text, *(f"{d.document_id}:\n{t.text}" for d, t in parts)])

    async def rows(
        self, source: StoredFile | Sequence[Mapping[str, Any]], columns: Columns
    ) -> list[RAGDocument]:
        """Convert the rows of an uploaded file, or the given rows, to documents.

        Raises:
            InvalidRequest: The file is unreadable, is not a table, lacks a column or has too many
                rows; or a row has no text or no id, or repeats an id.
            MissingDependency: The package that reads this type is not installed.
        """
        if not isinstance(source, StoredFile):
            return row_documents([*records(table_of_objects(enumerate(source, 1)), columns)])
        async with self._library.files.local(source) as path:
            made = await self.reader.read_rows(path, source.filename, source.charset, columns)
        return row_documents(made, source.filename)

    async def insert(
        self,
        documents: Sequence[RAGDocument],
        vector_db_id: str,
        chunk_size_in_tokens: int | None = None,
        overlap: int | None = None,
        split_on: SplitOn | None = None,
        **options: Any,
    ) -> InsertReport:
        """Read, split, embed and store documents now, all or none; see `Ingester.insert`."""
        sizes = chunk_size_in_tokens, overlap, split_on
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
        """Queue documents durably and return their jobs, in order.

        An unfinished job of the same document is cancelled; if it has the same content, it is
        returned instead of a new job.

        Args:
            requests: The documents or files to ingest.
            batch: True to create a batch; the id of a batch to add the jobs to it.
            same_origin_only: True to reject a document if an unfinished job ingests it from another
                origin.

        Raises:
            NotFound: There is no such vector DB, or no such file. Nothing was queued.
            InvalidRequest: A request names neither a file nor a document, or both, or its
                attributes are not JSON. Nothing was queued.
            Forbidden: The submitter does not hold the tokens of a file's ACL. Nothing was queued.
            Conflict: `same_origin_only` rejects a document. Nothing was queued.
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
        split_on: SplitOn | None = None,
        *,
        skip_unchanged: bool,
        same_origin_only: bool,
    ) -> Prepared:
        """Return the documents to ingest, the unchanged documents, and the chunk sizes.

        Raises:
            NotFound: There is no such vector DB.
            InvalidRequest: A document is repeated, or a size is out of range.
            Conflict: `same_origin_only` is True and a stored document has another origin; or the
                stored embeddings were made with another model.
        """
        twice = [i for i, n in Counter(d.document_id for d in documents).items() if n > 1]
        if twice:
            raise InvalidRequest(
                f"Document {twice[0]!r} is in the request twice.", field="documents"
            )
        index = await self._library.index(vector_db_id)
        sizes = Sizes.of(index.vector_db, size, overlap, split_on)
        same: set[str] = set()
        if documents and (skip_unchanged or same_origin_only):
            same = await self._workers.ingester.unchanged(
                index, documents, sizes, same_origin_only=same_origin_only
            )
        left = sorted(same) if skip_unchanged else []
        changed = [each for each in documents if each.document_id not in left]
        if changed:
            await self._library.embedder_of(index.vector_db)  # Loads the model and checks it.
        chosen = (size, overlap, split_on) != (None, None, None)
        return Prepared(changed, left, sizes.chunking if chosen else None)

    async def _submission(self, request: JobRequest, vector_db: VectorDB) -> Submission:
        if (request.file_id is None) == (request.document is None):
            raise InvalidRequest("A job needs a file or a document.", field="file_id")
        _check_attributes(request.attributes)
        if request.document is not None:
            name = name_in(request.document.metadata) or ""
            return Submission(request, vector_db, name, self._library.principal)
        if request.acl is not None:
            Permissions(self._library.principal, vector_db.default_acl).check_acl(
                request.acl, field="acl"
            )
        filename = await self._filename(str(request.file_id), must_exist=request.must_exist)
        return Submission(request, vector_db, filename, self._library.principal)

    async def _filename(self, file_id: str, *, must_exist: bool) -> str:
        """Return a file's name; "" for a missing file, unless `must_exist`."""
        try:
            file = await self._library.files.get(file_id)
            # A file of another tenant does not exist for this principal.
            if file.tenant == self._library.principal.tenant:
                return file.filename
        except NotFound:
            pass
        if must_exist:
            raise NotFound(f"There is no file {file_id!r}.", field="file_id")
        return ""

    # --- looking -----------------------------------------------------------------------------

    async def job(self, job_id: str) -> Job:
        """Return a job by id, or raise NotFound."""
        return await self._reader.get(self._all(job_id=job_id), f"job {job_id!r}")

    async def newest(self, vector_db_id: str, file_id: str) -> Job:
        """Return the newest job of a file in a vector DB, or raise NotFound."""
        vector_db = await self._library.vector_db(vector_db_id)
        scope = self._all(vector_db=vector_db, file_id=file_id)
        return await self._reader.get(scope, f"file {file_id!r} in vector DB {vector_db_id!r}")

    async def newest_of(self, vector_db_id: str, document_ids: Sequence[str]) -> dict[str, Job]:
        """Return the newest job of each document that has one, by document id."""
        scope = await self._scope(vector_db_id, document_ids=document_ids, newest_only=True)
        jobs = await self._reader.find(scope) if document_ids else []
        return {job.document_id: job for job in sorted(jobs, key=lambda job: job.number)}

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
        """Return jobs in the order of their submission, and True if more follow.

        Args:
            vector_db_id: Only jobs of this vector DB.
            batch_id: Only jobs of this batch.
            status: Only jobs in this state, or in one of these states.
            after: Only jobs after the job with this id, or after the newest job of this file id.
            before: Only jobs before this one; if `after` is None, the jobs nearest to it.
            limit: Maximum number of jobs, 1 to 1000.
            order: "desc" for newest first, "asc" for oldest first.
            newest_only: Only the newest job of each document.
            changed_after: Only jobs that changed after this version, in the order of changes.
            files_only: Only jobs of uploaded files.

        Raises:
            NotFound: There is no such vector DB, or no job or file with the id `after` or `before`.
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
        """Return the number of jobs in each state.

        Without `batch_id`, only the newest job of each document counts.
        """
        which = {"batch_id": batch_id, "newest_only": batch_id is None, "files_only": files_only}
        return await self._reader.counts(await self._scope(vector_db_id, **which))

    async def backlog(self) -> Counter[JobStatus]:
        """Return the number of jobs of all tenants in each state."""
        return await self._reader.counts(Scope())

    async def usage_bytes(self, vector_db_id: str) -> int:
        """Return the size of the texts and embeddings that the jobs of a vector DB have stored."""
        which = {"statuses": {JobStatus.COMPLETED}, "newest_only": True}
        return await self._reader.usage(await self._scope(vector_db_id, **which))

    async def changes(
        self, *, job_id: str | None = None, batch_id: str | None = None
    ) -> AsyncIterator[list[Job]]:
        """Yield all jobs, then the changed ones every `LOOK_EVERY_SECONDS`, until all are final."""
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
        """Wait until jobs are final, or until a timeout; jobs continue after the timeout.

        The end of a job of this process is detected at once; the end of another process's job is
        detected within `LOOK_EVERY_SECONDS`.

        Args:
            jobs: One job, or all jobs of a batch.
            seconds: Timeout; 0 to return at once.
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
        """Cancel unfinished jobs and return their number; documents being stored are skipped."""
        scope = await self._scope(vector_db_id, batch_id=batch_id, job_id=job_id)
        return await self._queue.cancel(scope)

    async def retry(
        self,
        *,
        job_id: str | None = None,
        vector_db_id: str | None = None,
        batch_id: str | None = None,
    ) -> int:
        """Queue failed and cancelled jobs again and return their number."""
        await self.start()
        scope = await self._scope(vector_db_id, batch_id=batch_id, job_id=job_id)
        count = await self._queue.retry(scope)
        self._workers.wake()
        return count

    async def remove(self, vector_db_id: str, file_id: str) -> None:
        """Delete a file's document in a vector DB, and its jobs.

        Raises:
            NotFound: The file was never ingested there.
            Forbidden: The principal submitted the file, but may no longer read its document.
            Unavailable: The document is still being stored after `WAIT_SECONDS`.
        """
        job = await self._changeable(vector_db_id, file_id)
        vector_db = await self._library.vector_db(vector_db_id)
        scope = self._all(vector_db=vector_db, file_id=file_id)
        removed = False
        while not removed:  # Repeat if the file was ingested again in between.
            await self._queue.cancel(scope)
            await self._settled(scope)
            version = max((each.version for each in await self._reader.find(scope)), default=0)
            await delete_document(await self._library.index(vector_db_id), job.document_id)
            removed = await self._queue.remove(scope, version)

    async def set_attributes(
        self, vector_db_id: str, file_id: str, attributes: Mapping[str, Any]
    ) -> Job:
        """Change the attributes of a file and return its job; nothing is embedded again.

        Raises:
            NotFound: The file was never ingested there.
            InvalidRequest: The attributes are not JSON.
            Forbidden, Conflict: The principal may not write the document; nothing is changed.
            Unavailable: The document is still being stored after `WAIT_SECONDS`.
        """
        _check_attributes(attributes)
        vector_db = await self._library.vector_db(vector_db_id)
        await self.start()
        index = await self._library.index(vector_db_id)
        while True:
            await self._settled(self._all(vector_db=vector_db, file_id=file_id))
            job = await self._changeable(vector_db_id, file_id)
            with suppress(NoLongerOurs):  # Another change came first: wait for that one as well.
                if await self._workers.change_attributes(job, attributes):
                    await asyncio.shield(self._relabel(index, job, attributes))
                return await self.newest(vector_db_id, file_id)

    async def _changeable(self, vector_db_id: str, file_id: str) -> Job:
        """Return the newest job of a file; raise Forbidden if its document is hidden."""
        job = await self.newest(vector_db_id, file_id)
        if not (await self._reader.counts(self._all(job_id=job.job_id, changing=True))).total():
            raise Forbidden("You may not read the document of this file.", hint="Ask an admin.")
        return job

    async def _relabel(
        self, index: EmbeddingIndex, job: Job, attributes: Mapping[str, Any]
    ) -> None:
        """Change the attributes of a stored document; if that fails, its job keeps the old ones."""
        recorded: Mapping[str, Any] = job.attributes
        try:
            await change_attributes(index, job.document_id, job.attributes, attributes)
            recorded = attributes
        finally:
            await self._workers.relabeled(job, recorded)

    async def follow(self, write: Write) -> None:
        """Record the ACLs of a write's documents; see `follow_write`."""
        await follow_write(self._library, self._workers, write)

    # --- inside ------------------------------------------------------------------------------

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
