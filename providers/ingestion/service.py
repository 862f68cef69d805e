"""Ingestion that survives anything: documents become jobs, which are submitted and changed here."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self
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
from corral.providers.ingestion.jobs.job_rows import Scope, Submission, followed
from corral.providers.ingestion.jobs.job_views import JobViews
from corral.providers.ingestion.jobs.jobs import Job, JobRequest, JobStatus
from corral.providers.ingestion.jobs.owned_jobs import NoLongerOurs
from corral.providers.ingestion.jobs.runner import FileLibrary
from corral.providers.ingestion.jobs.workers import LOOK_EVERY_SECONDS, Workers
from corral.providers.ingestion.split.chunking import Sizes

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


class Ingestion(JobViews):
    """Takes documents in, and works on them until they are stored or have failed.

    Jobs are in a table that all processes of a data folder share. Each job has one owner at a time;
    what a killed owner has left is taken over. Documents are stored whole, and replace an earlier
    version in one step.

    A job writes with the rights of who submitted it.

    Args:
        library: Where vector DBs, models and files are, as a principal sees them; a `Stack`.
        workers: Who does the jobs.
    """

    def __init__(self, library: FileLibrary, workers: Workers) -> None:
        super().__init__(library, workers.table)
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
        jobs = await self._table.add(new, batch_id, same_origin=same_origin_only)
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
        return await self._table.cancel(scope)

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
        count = await self._table.retry(scope)
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
            await self._table.cancel(scope)
            await self._settled(scope)
            version = max((each.version for each in await self._table.find(scope)), default=0)
            await delete_document(await self._library.index(vector_db_id), job.document_id)
            removed = await self._table.remove(scope, version)

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
                if await self._table.change_attributes(job, self._workers.owner, attributes):
                    await asyncio.shield(self._relabel(index, job, attributes))
                return await self.newest(vector_db_id, file_id)

    async def _changeable(self, vector_db_id: str, file_id: str) -> Job:
        """Return the newest job of a file; refuse one whose document is closed to the principal."""
        job = await self.newest(vector_db_id, file_id)
        if not (await self._table.counts(self._all(job_id=job.job_id, changing=True))).total():
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
        rows = await self._table.recorded(vector_db, named)
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
                    await self._table.follow(vector_db, {document_id: acl})
                    recorded = acl

    async def _whole(self, vector_db: VectorDB) -> EmbeddingIndex | None:
        """Return the index of a vector DB as its admin sees it; None: it is not registered."""
        library = self._library.for_principal(Principal.stored(vector_db.tenant, role=Role.ADMIN))
        with suppress(NotFound):
            index = await library.index(vector_db.identifier)
            return index if index.vector_db.created_at == vector_db.created_at else None
        return None

    async def _settled(self, scope: Scope) -> None:
        """Wait until no job of a scope is running."""
        running = replace(scope, statuses={JobStatus.RUNNING})
        deadline = time.monotonic() + WAIT_SECONDS
        while (await self._table.counts(running)).total():
            if time.monotonic() > deadline:
                raise Unavailable("The file is being ingested.", hint="Try again.")
            await asyncio.sleep(LOOK_EVERY_SECONDS)


def _check_attributes(attributes: Mapping[str, Any]) -> None:
    try:
        _ATTRIBUTES.validate_python(dict(attributes))
        json.dumps(dict(attributes))
    except (ValidationError, TypeError, ValueError):
        raise InvalidRequest("attributes must be a JSON object.", field="attributes") from None
