"""One run of a sync: ingest new and changed documents, delete documents that no longer exist.

The stored documents are the only record of earlier runs: the `origin` of each names its source and
its version there. So the next run continues a run that was killed, and a sync into a copied or
restored vector DB does not read unchanged documents again. Documents are ingested as jobs.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import ContractViolation, CorralError, InvalidRequest, NotFound
from corral.api.options import checked
from corral.api.rag import URL, RAGDocument
from corral.api.source import Content, Source, SourceItem
from corral.providers.base.documents import delete_document, origins_of
from corral.providers.base.sync_config import SyncEntry
from corral.providers.ingestion.jobs.jobs import Job, JobRequest, JobStatus
from corral.providers.ingestion.read import compression
from corral.providers.ingestion.read.detecting import (
    BINARY,
    MAIL,
    NOTEBOOK,
    PICTURES,
    TEXT,
    stated,
    type_in_file,
    type_of,
)
from corral.providers.ingestion.read.encodings import encoding_of
from corral.providers.ingestion.read.external import named_type
from corral.providers.ingestion.read.mime_types import served_type, split_mime_type
from corral.providers.ingestion.service import Ingestion
from corral.providers.sources.documents import file_metadata, skip_reason

BATCH_DOCUMENTS = 64
BATCH_BYTES = 8 * 1024 * 1024
"""Maximum size of a batch of documents; its jobs are awaited before the next batch is read."""
MAX_VERSION = 200
MAX_NAMED = 100
"""Maximum number of failed documents, and of skipped ones, that a report names."""
WAIT_SECONDS = 3600.0
_OPTION = re.compile(r"--([a-z-]+)(?: NAME)?(?= takes it)")
_MEDIA = ("image/", "audio/", "video/", "font/")


class SyncLibrary(Protocol):
    """A principal's view of a library with ingestion; `Stack` implements it."""

    ingestion: Ingestion

    async def index(self, vector_db_id: str) -> EmbeddingIndex:
        """Return the index of a vector DB."""


@dataclass(slots=True)
class SyncReport:
    """The result of a run.

    Attributes:
        listed: Number of documents in the source.
        unchanged, stored, deleted, failed, skipped: Numbers of documents.
        failures, skips: (document id or key, reason) for the first `MAX_NAMED` documents of each.
        problems: Reasons why the listing is incomplete, or why nothing was deleted.
        seconds: Duration of the run.
    """

    listed: int = 0
    unchanged: int = 0
    stored: int = 0
    deleted: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    skips: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def fail(self, name: str, reason: str) -> None:
        """Count a document that could not be read or stored."""
        self.failed += 1
        if len(self.failures) < MAX_NAMED:
            self.failures.append((name, reason))

    def skip(self, name: str, reason: str) -> None:
        """Count an item that is not a readable document."""
        self.skipped += 1
        if len(self.skips) < MAX_NAMED:
            self.skips.append((name, reason))


@dataclass(slots=True)
class SyncRun:
    """Brings one vector DB in step with one source.

    Attributes:
        library: The view of the vector DB's tenant.
        entry: The settings of the sync.
        source: An open source; the caller closes it.
        reads: Returns True if a configured reader accepts a MIME type.
        report: The result so far.
    """

    library: SyncLibrary
    entry: SyncEntry
    source: Source
    reads: Callable[[str], bool]
    report: SyncReport = field(default_factory=SyncReport)

    async def run(self, *, full: bool = False) -> SyncReport:
        """Sync the vector DB, and return the report.

        Args:
            full: True to read all documents again, even if their versions are stored.

        Raises:
            NotFound: There is no such vector DB.
            CorralError: The source cannot be listed. Nothing was changed.
        """
        started = time.monotonic()
        try:
            await self._run(full)
        finally:
            self.report.seconds = time.monotonic() - started
        return self.report

    async def _run(self, full: bool) -> None:
        index = await self.library.index(self.entry.vector_db_id)
        listing = await self.source.listing()
        origins = await origins_of(index)
        stored = {
            document_id: origin.removeprefix(self._mark)
            for document_id, origin in origins.items()
            if origin and origin.startswith(self._mark)
        }
        items = {self.entry.prefix + item.key: item for item in listing.items}
        if len(items) != len(listing.items):
            raise ContractViolation("A source lists a key twice.")
        self.report.listed = len(items)
        for key, reason in listing.skipped:
            self.report.skip(key, _OPTION.sub(_setting, reason))
        self.report.problems.extend(listing.problems)

        wanted: dict[str, SourceItem] = {}
        for document_id, item in items.items():
            version = _bounded(item.version)
            if not full and version is not None and stored.get(document_id) == version:
                self.report.unchanged += 1
            elif document_id in origins and document_id not in stored and not self.entry.replace:
                self.report.fail(
                    document_id,
                    "is stored from another place; a prefix gives it an id of its own, and "
                    "replace: true replaces it",
                )
            elif self._is_media(document_id):
                self.report.skip(document_id, "a picture, sound or film")
            else:
                wanted[document_id] = item
        gone = set(stored) - set(items)
        gone |= await self._ingest(index, wanted, stored, full=full)
        await self._delete(index, gone, complete=not listing.problems, empty=not listing.items)

    def _is_media(self, document_id: str) -> bool:
        """Return True if a name is that of a media file that no reader accepts; skip the fetch."""
        kind = named_type(document_id)
        built_in = self.entry.pictures if kind in PICTURES else bool(type_of(document_id))
        return kind.startswith(_MEDIA) and not built_in and not self.reads(kind)

    async def _ingest(
        self,
        index: EmbeddingIndex,
        wanted: dict[str, SourceItem],
        stored: dict[str, str],
        *,
        full: bool,
    ) -> set[str]:
        """Read and store documents; return the stored ids that no longer have a document."""
        gone: set[str] = set()
        batch: list[RAGDocument] = []
        size = 0
        async for document_id, content in self._contents(wanted, {} if full else stored):
            document = None if content is None else await self._document(document_id, content)
            if content is None or document is None:
                gone.add(document_id)
                continue
            batch.append(document)
            size += len(content.data)
            if len(batch) >= BATCH_DOCUMENTS or size >= BATCH_BYTES:
                await self._store(batch)
                batch, size = [], 0
        await self._store(batch)
        return gone & set(stored)

    async def _contents(
        self, wanted: dict[str, SourceItem], stored: dict[str, str]
    ) -> AsyncIterator[tuple[str, Content | None]]:
        """Yield the changed documents by id; None for a document that no longer exists."""
        for document_id, item in wanted.items():
            try:
                content = await self.source.read(item, stored.get(document_id))
            except NotFound:
                yield document_id, None
                continue
            except CorralError as error:
                self.report.fail(document_id, str(error))
                continue
            if content is None or stored.get(document_id) == _bounded(content.version):
                self.report.unchanged += 1
                continue
            yield document_id, content

    async def _document(self, document_id: str, content: Content) -> RAGDocument | None:
        """Return a document; None if the content cannot be read, which the report counts."""
        try:
            return await asyncio.to_thread(self._made, document_id, content)
        except InvalidRequest as error:
            self.report.skip(document_id, skip_reason(error))
            return None

    def _made(self, document_id: str, content: Content) -> RAGDocument:
        data = content.data
        if not (content.mime_type or self.reads(named_type(document_id))):
            data = compression.unpacked(data)
        if not data.strip():
            raise InvalidRequest("empty")
        kind = self._type(document_id, data, content.mime_type)
        metadata = file_metadata(document_id, split_mime_type(kind)[0])
        encoded = base64.b64encode(data).decode("ascii")
        version = _bounded(content.version)
        fields = {
            "document_id": document_id,
            "content": URL(uri=f"data:{kind};base64,{encoded}"),
            "mime_type": kind or None,
            "metadata": {**metadata, **content.metadata, **self.entry.metadata},
            "origin": f"{self._mark}{version}",
            "acl": self.entry.acl,
        }
        return checked(RAGDocument, fields)

    def _type(self, document_id: str, data: bytes, mime_type: str) -> str:
        """Return the MIME type of a document, with its charset.

        Args:
            mime_type: The type that the source states; "" if it states none.

        Raises:
            InvalidRequest: Neither Corral nor a reader can read this type.
        """
        if mime_type:
            return served_type(document_id, mime_type)
        kind = type_of(document_id) or ""
        try:
            kind = stated(data, kind) or kind or type_in_file(io.BytesIO(data))
        except InvalidRequest:
            kind = named_type(document_id)
            if not self.reads(kind):
                raise
            return kind
        if kind in {*BINARY, NOTEBOOK, MAIL} or self.reads(kind):
            return kind
        encoding, _ = encoding_of(data, kind)
        return f"{kind or TEXT};charset={encoding.removesuffix('-sig')}"

    async def _store(self, documents: Sequence[RAGDocument]) -> None:
        """Ingest documents as jobs, and wait for the jobs."""
        if not documents:
            return
        ingestion = self.library.ingestion
        requests = [JobRequest(self.entry.vector_db_id, document=each) for each in documents]
        jobs = await ingestion.submit(requests, batch=True)
        await ingestion.wait(jobs, WAIT_SECONDS)
        for job in jobs:
            await self._count(await ingestion.job(job.job_id))

    async def _count(self, job: Job) -> None:
        if job.status is JobStatus.COMPLETED:
            self.report.stored += 1
        else:
            self.report.fail(job.document_id, job.error_message or str(job.status))

    async def _delete(
        self, index: EmbeddingIndex, gone: set[str], *, complete: bool, empty: bool
    ) -> None:
        """Delete the documents that the source no longer has, unless the listing may be wrong."""
        if not gone or not self.source.deletes:
            return
        if not complete:
            self.report.problems.append(f"Nothing was deleted: {len(gone)} may only be unreadable.")
        elif empty:
            self.report.problems.append(
                f"Nothing was deleted: the source lists no document, and {len(gone)} are stored. "
                "If that is right, delete them with `corral documents delete`."
            )
        else:
            for document_id in sorted(gone):
                self.report.deleted += await delete_document(index, document_id) > 0

    @property
    def _mark(self) -> str:
        """The prefix of the `origin` of all documents of this source."""
        return f"source:{hashlib.sha256(self.source.identity.encode()).hexdigest()[:32]}:"


def _setting(option: re.Match[str]) -> str:
    """Return the setting of a source for an option of `corral ingest`."""
    return f"the source's {option[1].replace('-', '_')}"


def _bounded(version: str | None) -> str | None:
    """Return a version that fits into an `origin`: a long one is hashed."""
    if version is None or len(version) <= MAX_VERSION:
        return version
    return hashlib.sha256(version.encode("utf-8", "surrogatepass")).hexdigest()
