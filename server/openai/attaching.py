"""Files of vector stores: a job attaches each file, and the newest job has the file's state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from corral.api.errors import InvalidRequest, NotFound
from corral.api.vector_dbs import VectorDB
from corral.providers.ingestion.jobs.jobs import UNFINISHED, Job, JobRequest, JobStatus
from corral.providers.stack.stack import Stack
from corral.providers.stack.vector_store_table import VectorStore
from corral.server.llama_stack.wire import check_registered
from corral.server.openai.files import own_file
from corral.server.openai.objects import (
    Attributes,
    FileCounts,
    FileStatus,
    LastError,
    StaticSizes,
    StaticStrategy,
    VectorStoreFileObject,
)
from corral.server.openai.paging import Cursor, Page, continued, ends
from corral.server.openai.requests import (
    MAX_KEY,
    MAX_PAIRS,
    MAX_VALUE,
    SET_BY_SERVER,
    AttachFile,
    chunking_config,
)

ATTACHED_PURPOSES = ("assistants", "user_data")
"""Purposes of the files that vector DBs accept."""

_STATUSES: dict[JobStatus, FileStatus] = {
    JobStatus.QUEUED: "in_progress",
    JobStatus.RUNNING: "in_progress",
    JobStatus.COMPLETED: "completed",
    JobStatus.FAILED: "failed",
    JobStatus.CANCELLED: "cancelled",
}


async def check_files(stack: Stack, file_ids: Sequence[str], places: str = "file_ids[{}]") -> None:
    """Refuse files that a vector DB cannot accept.

    Args:
        stack: The stack with the files.
        file_ids: Ids of the files.
        places: The request's field for a file, with its number in the braces.

    Raises:
        NotFound: A file does not exist, or has expired.
        InvalidRequest: A file has another purpose, or appears twice.
    """
    seen: set[str] = set()
    for number, file_id in enumerate(file_ids):
        place = places.format(number)
        if file_id in seen:
            raise InvalidRequest(
                f"File {file_id!r} is in the request twice.", hint="Send it once.", field=place
            )
        seen.add(file_id)
        file = await own_file(stack, file_id, field=place)
        if file.purpose not in ATTACHED_PURPOSES:
            raise InvalidRequest(
                f"{place} must be a file with the purpose {' or '.join(ATTACHED_PURPOSES)} "
                f"({file_id!r} has {file.purpose}).",
                hint="Upload it again with another purpose.",
                field=place,
            )


async def attach(
    stack: Stack,
    vector_store_id: str,
    files: Sequence[AttachFile],
    *,
    batch: bool = False,
    must_exist: bool = True,
) -> list[Job]:
    """Queue files to be read into a store and return their jobs.

    Args:
        stack: The stack with store and files.
        vector_store_id: Id of the store.
        files: Checked by `check_files`, unless missing files should fail later.
        batch: True if the files form a batch.
        must_exist: True to refuse a missing file; otherwise its job fails.
    """
    requests = [
        JobRequest(
            vector_store_id,
            file_id=each.file_id,
            attributes=each.attributes or {},
            acl=each.acl,
            chunking=chunking_config(each.chunking_strategy),
            must_exist=must_exist,
        )
        for each in files
    ]
    return await stack.ingestion.submit(requests, batch=batch)


async def settled(stack: Stack, jobs: Sequence[Job]) -> None:
    """Wait until jobs of one batch are final, at most `ingestion.wait_seconds`."""
    await stack.ingestion.wait(jobs, stack.config.ingestion.wait_seconds)


async def attach_one(
    stack: Stack, store: VectorStore, file: AttachFile, *, must_exist: bool = True
) -> Job:
    """Queue a file to be read into a store, wait as `settled` does, and return its job.

    Args:
        file: As for `attach`.
        must_exist: As for `attach`.

    Raises:
        InvalidRequest: The file's settings differ from the store's.
    """
    check_registered(file, store.registered)
    [job] = await attach(stack, store.identifier, [file], must_exist=must_exist)
    await settled(stack, [job])
    with suppress(NotFound):  # it was detached in the meantime
        return await stack.ingestion.job(job.job_id)
    return job


def shown(job: Job, vector_db: VectorDB) -> VectorStoreFileObject:
    """Return the wire's form of a file of a store."""
    sizes = job.chunking or vector_db.chunking
    failed = job.status is JobStatus.FAILED
    return VectorStoreFileObject(
        id=job.file_id or job.document_id,
        created_at=job.created_at,
        vector_store_id=job.vector_db_id,
        usage_bytes=job.usage_bytes,
        status=_STATUSES[job.status],
        last_error=LastError(
            code=job.error_code or "server_error", message=job.error_message or "Unknown."
        )
        if failed
        else None,
        attributes=fitting(job.attributes),
        chunking_strategy=StaticStrategy(
            static=StaticSizes(
                max_chunk_size_tokens=sizes.chunk_size_in_tokens,
                chunk_overlap_tokens=sizes.overlap_in_tokens,
            )
        ),
        filename=job.filename,
        progress=job.progress.as_dict(),
    )


def fitting(metadata: Mapping[str, Any]) -> Attributes:
    """Return the metadata pairs of a document that are valid attributes, at most `MAX_PAIRS`.

    Metadata has fewer limits: it may have lists, long texts and names that the server sets.
    """
    pairs = ((key, value) for key, value in metadata.items() if _fits(key, value))
    return dict(islice(pairs, MAX_PAIRS))


def _fits(key: str, value: Any) -> bool:
    """Return True if a pair may be sent as an attribute."""
    named = 1 <= len(key) <= MAX_KEY and key not in SET_BY_SERVER
    return named and (
        len(value) <= MAX_VALUE if isinstance(value, str) else isinstance(value, int | float)
    )


async def page_of(
    stack: Stack,
    store: VectorStore,
    cursor: Cursor,
    status: FileStatus | None,
    form: Callable[[Job, VectorDB], VectorStoreFileObject] = shown,
    **which: Any,
) -> Page[VectorStoreFileObject]:
    """Return a page of the files of a store in the wire format.

    Args:
        which: Selects the jobs, as for `Ingestion.page`.
    """
    with continued():
        jobs, has_more = await stack.ingestion.page(
            vector_db_id=store.identifier,
            status=status and [state for state, name in _STATUSES.items() if name == status],
            **which,
            **cursor.model_dump(),
        )
    data = [form(job, store.registered) for job in jobs]
    return Page[VectorStoreFileObject](data=data, has_more=has_more, **ends(data))


def file_counts(counts: Counter[JobStatus]) -> FileCounts:
    """Return jobs by state as files by status."""
    return FileCounts(
        in_progress=sum(counts[status] for status in UNFINISHED),
        completed=counts[JobStatus.COMPLETED],
        failed=counts[JobStatus.FAILED],
        cancelled=counts[JobStatus.CANCELLED],
        total=counts.total(),
    )
