"""Jobs have the rights of who submitted them, and are known to whom their documents are open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import Conflict, Forbidden, NotFound, Unavailable
from corral.api.principal import Principal, Role
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.documents import change_acl, delete_document, stored_acl
from corral.providers.embedding.hashing.embedder import HashingEmbedder
from corral.providers.ingestion import service
from corral.providers.ingestion.jobs import following
from corral.providers.ingestion.jobs.jobs import Job, JobRequest, JobStatus
from corral.providers.ingestion.jobs.queue import JobQueue
from corral.providers.stack.stack import Stack

from ..stack.rebuild_stack import begin, steps, switch
from ..vector_io.engines import engine_of
from .jobs_stack import Watched, finished, opened, stored, upload

ANN = Principal(user="ann", role=Role.WRITER)
BOB = Principal(user="bob", role=Role.WRITER)


def of_ann(text: str, acl: list[str] | None = None) -> JobRequest:
    """Return a request for the document d that is open to ann."""
    document = RAGDocument(document_id="d", content=text, acl=acl or ["user:ann"])
    return JobRequest("db", document=document)


async def submit(stack: Stack, who: Principal, request: JobRequest) -> Job:
    """Submit a document and wait for its end."""
    [job] = await stack.for_principal(who).ingestion.submit([request])
    [ended] = await finished(stack, [job])
    return ended


async def test_a_job_does_not_replace_what_its_sender_may_not_see(tmp_path: Path) -> None:
    """A writer's job fails on a hidden document, which stays; its owner's replaces it.

    If this fails: the workers write with the rights of the operator, and whoever can submit a job
    can overwrite anything.
    """
    async with opened(tmp_path) as stack:
        assert (await submit(stack, ANN, of_ann("Hay."))).status is JobStatus.COMPLETED
        taken = await submit(stack, BOB, of_ann("Straw.", ["user:bob"]))
        assert (taken.status, "taken" in str(taken.error_message)) == (JobStatus.FAILED, True)
        assert await stored(stack) == {"d": ["Hay."]}
        forged = await submit(stack, BOB, of_ann("Straw.", ["user:ann"]))
        assert forged.status is JobStatus.FAILED
        assert (await submit(stack, ANN, of_ann("Grass."))).status is JobStatus.COMPLETED
        assert await stored(stack) == {"d": ["Grass."]}


async def test_jobs_are_known_to_whom_their_documents_are_open(tmp_path: Path) -> None:
    """Lists, counts and ids: what another may not read does not exist for it, nor is it cancelled.

    If this fails: names of files, titles and ids of hidden documents are told by their jobs.
    """
    async with opened(tmp_path) as stack:
        hidden = await submit(stack, ANN, of_ann("Hay."))
        document = RAGDocument(document_id="e", content="Straw.")
        shared = await submit(stack, ANN, JobRequest("db", document=document))
        mine = stack.for_principal(ANN).ingestion
        jobs, _ = await mine.page(vector_db_id="db")
        assert [job.job_id for job in jobs] == [shared.job_id, hidden.job_id]
        theirs = stack.for_principal(BOB).ingestion
        jobs, _ = await theirs.page(vector_db_id="db")
        assert [job.job_id for job in jobs] == [shared.job_id]
        assert (await theirs.counts(vector_db_id="db")).total() == 1
        assert (await stack.ingestion.counts(vector_db_id="db")).total() == 2
        with pytest.raises(NotFound):
            await theirs.job(hidden.job_id)


async def test_a_pending_job_of_a_hidden_document_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may not read the document is told that the id is taken; its owner's job goes on."""
    watched = Watched()
    monkeypatch.setattr(HashingEmbedder, "embed_documents", watched.method())
    watched.gate.clear()
    async with opened(tmp_path) as stack:
        jobs = await stack.for_principal(ANN).ingestion.submit([of_ann("Hay.")])
        with pytest.raises(Conflict):
            await stack.for_principal(BOB).ingestion.submit([of_ann("Straw.", ["user:bob"])])
        watched.gate.set()
        assert (await finished(stack, jobs))[0].status is JobStatus.COMPLETED


async def test_a_file_of_another_tenant_is_as_one_that_is_missing(tmp_path: Path) -> None:
    """The same refusal, and nothing is queued."""
    async with opened(tmp_path) as stack:
        file_id = await upload(stack, "Hay.")
        foreign = stack.for_principal(Principal("other", "eve", frozenset(), Role.ADMIN))
        await foreign.register(VectorDBRegistration(vector_db_id="db", embedding_model="hashing"))
        told = []
        for guess in (file_id, "file-" + "0" * 24):
            with pytest.raises(NotFound) as caught:
                await foreign.ingestion.submit([JobRequest("db", file_id=guess)])
            told.append(str(caught.value).replace(guess, "ID"))
        assert told[0] == told[1]


async def test_a_file_is_its_senders_and_the_admins(tmp_path: Path) -> None:
    """Another writer of the tenant neither lists, reads, deletes nor ingests it.

    If this fails: a document that is hidden by its acl is read as the file that it was made of.
    """
    async with opened(tmp_path) as stack:
        mine, theirs = stack.for_principal(ANN), stack.for_principal(BOB)
        file_id = await upload(mine, "Hay.")
        assert [file.file_id for file in (await mine.files.page())[0]] == [file_id]
        assert await theirs.files.page() == ([], False)
        for refused in (
            theirs.files.get(file_id),
            theirs.files.delete(file_id),
            theirs.ingestion.submit([JobRequest("db", file_id=file_id)]),
        ):
            with pytest.raises(NotFound):
                await refused
        admin = stack.for_principal(Principal(role=Role.ADMIN))
        assert (await admin.files.get(file_id)).owner == "ann"
        jobs = await mine.ingestion.submit([JobRequest("db", file_id=file_id)])
        assert (await finished(stack, jobs))[0].status is JobStatus.COMPLETED


async def acls(stack: Stack, document_id: str) -> list[list[str] | None]:
    """Return the acls of a document's chunks."""
    index = await stack.index("db")
    ids = await index.document_chunk_ids(document_id)
    return [chunk.acl for chunk in await index.get_chunks(ids)]


async def attached(stack: Stack, acl: list[str] | None) -> str:
    """Attach a file to the vector DB, give its document an acl, and return its id."""
    file_id = await upload(stack, "Hay.")
    asked = JobRequest("db", file_id=file_id, attributes={"year": 2025})
    await finished(stack, await stack.ingestion.submit([asked]))
    if acl is not None:
        await change_acl(await stack.index("db"), file_id, acl)
    return file_id


async def test_a_refused_change_of_attributes_changes_nothing(tmp_path: Path) -> None:
    """Who may not write a document's acl may not write its attributes; the acl stays.

    If this fails: the refused job runs again with its submitter's rights and without the acl, and
    a hidden document is open to everybody.
    """
    sales = Principal(user="ann", groups=frozenset({"sales"}), role=Role.WRITER)
    async with opened(tmp_path) as stack:
        file_id = await attached(stack, ["group:sales", "group:hr"])
        with pytest.raises(Forbidden):
            await stack.for_principal(sales).ingestion.set_attributes("db", file_id, {"b": 2})
        job = await stack.ingestion.newest("db", file_id)
        assert (job.status, job.attributes) == (JobStatus.COMPLETED, {"year": 2025})
        assert await acls(stack, file_id) == [["group:hr", "group:sales"]]


@pytest.mark.parametrize(
    ("write", "left"),
    [(delete_document, []), (partial(change_acl, acl=["group:hr"]), [["group:hr"]])],
)
async def test_a_change_of_attributes_undoes_no_other_write(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[EmbeddingIndex, str], Coroutine[None, None, int]],
    left: list[list[str]],
) -> None:
    """A document that is deleted or closed meanwhile is so afterwards.

    If this fails: the chunks are stored as they were read, so a deleted document is back, and a
    closed one is open to whom it was closed.
    """
    async with opened(tmp_path) as stack:
        file_id = await attached(stack, ["group:sales"])
        index, others = await stack.index("db"), list[asyncio.Task[int]]()
        engine = engine_of(index)
        read = engine.get

        async def read_before(ids: Sequence[str], embeddings: bool) -> Sequence[Chunk]:
            found: Sequence[Chunk] = await read(ids, embeddings)
            if embeddings and not others:
                others.append(asyncio.create_task(write(index, file_id)))
                await asyncio.wait(others, timeout=0.5)
            return found

        monkeypatch.setattr(engine, "get", read_before)
        await stack.ingestion.set_attributes("db", file_id, {"b": 2})
        assert await asyncio.gather(*others) == [1]
        assert await acls(stack, file_id) == left


async def test_a_failed_change_of_attributes_stores_nothing_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file keeps its acl and its attributes where the backend fails; the next change works."""

    async def away(*_: object) -> int:
        raise Unavailable("The backend is away.")

    async with opened(tmp_path) as stack:
        file_id = await attached(stack, ["group:hr"])
        with monkeypatch.context() as patch:
            patch.setattr(service, "change_attributes", away)
            with pytest.raises(Unavailable):
                await stack.ingestion.set_attributes("db", file_id, {"b": 2})
        job = await stack.ingestion.newest("db", file_id)
        assert (job.status, job.attributes) == (JobStatus.COMPLETED, {"year": 2025})
        assert await acls(stack, file_id) == [["group:hr"]]
        job = await stack.ingestion.set_attributes("db", file_id, {"b": 2})
        assert (job.status, job.attributes) == (JobStatus.COMPLETED, {"b": 2})
        assert await acls(stack, file_id) == [["group:hr"]]


async def test_a_change_of_attributes_that_cannot_be_recorded_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full once the chunks have their attributes; the next change works.

    If this fails: the file's job runs until the process ends, and the file can be neither changed,
    removed nor ingested again.
    """

    async def full(*_: object) -> None:
        raise Unavailable("The disk is full.")

    async with opened(tmp_path) as stack:
        file_id = await attached(stack, ["group:hr"])
        with monkeypatch.context() as patch:
            patch.setattr(JobQueue, "relabeled", full)
            with pytest.raises(Unavailable, match="disk"):
                await stack.ingestion.set_attributes("db", file_id, {"b": 2})
        job = await stack.ingestion.set_attributes("db", file_id, {"c": 3})
        assert (job.status, job.attributes) == (JobStatus.COMPLETED, {"c": 3})
        index = await stack.index("db")
        [chunk] = await index.get_chunks(await index.document_chunk_ids(file_id))
        assert ("b" in chunk.metadata, chunk.metadata["c"]) == (False, 3)


@pytest.mark.parametrize("how", ["release", "take_over"])
async def test_a_change_of_attributes_that_is_cut_off_stores_nothing_anew(
    tmp_path: Path, how: str
) -> None:
    """The process that changes attributes ends in the middle: the file stays as it is stored.

    If this fails: whoever takes the job over stores the file again, without its acl.
    """
    async with opened(tmp_path) as stack:
        file_id = await attached(stack, ["group:hr"])
        table = stack.ingestion._queue
        job = await stack.ingestion.newest("db", file_id)
        assert await table.change_attributes(job, "dead", {"b": 2})
        await getattr(table, how)("dead")
        await asyncio.sleep(0.5)  # two looks of the workers
        job = await stack.ingestion.newest("db", file_id)
        assert (job.status, job.attributes) == (JobStatus.COMPLETED, {"year": 2025})
        assert await acls(stack, file_id) == [["group:hr"]]


async def test_a_name_in_any_script_knows_its_own_job(tmp_path: Path) -> None:
    """A job is known to its submitter, also where it may not read the document.

    If this fails: a name is compared as JSON escapes it, and only ASCII names match.
    """
    async with opened(tmp_path) as stack:
        for name in ("ann", "zo\u00eb", 'o"neill', "\u674e"):
            mine = stack.for_principal(Principal(user=name, role=Role.WRITER)).ingestion
            hidden = RAGDocument(document_id=name, content="Hay.", acl=["user:cem"])
            [job] = await mine.submit([JobRequest("db", document=hidden)])
            assert (await mine.job(job.job_id)).status in JobStatus


async def known(stack: Stack, who: Principal) -> list[str]:
    """Return the documents of the jobs that a principal sees in the vector DB's list."""
    jobs, _ = await stack.for_principal(who).ingestion.page(vector_db_id="db", newest_only=True)
    return [job.document_id for job in jobs]


async def insert(stack: Stack, acl: list[str] | None, document_id: str = "d") -> None:
    """Store a document by another road than a job."""
    index = await stack.index("db")
    chunk = Chunk(content="Straw.", metadata={"document_id": document_id}, acl=acl)
    await index.add_chunks([chunk], np.eye(1, 16), replace_documents=[document_id])


async def test_jobs_are_closed_and_opened_with_their_documents(tmp_path: Path) -> None:
    """Every road that changes a document's acl changes who knows of its job, in lists and counts.

    If this fails: names and attributes of a document are shown to whom it was closed, or a file is
    unknown to whom it was opened.
    """
    async with opened(tmp_path) as stack:
        file_id = await attached(stack, None)
        theirs, index = stack.for_principal(BOB).ingestion, await stack.index("db")

        async def reset() -> None:
            await change_acl(index, file_id, None)
            assert await known(stack, BOB) == [file_id]
            assert await theirs.usage_bytes("db") > 0

        async def closed() -> None:
            assert await known(stack, BOB) == []
            assert not await theirs.counts(vector_db_id="db", files_only=True)
            assert await theirs.usage_bytes("db") == 0
            with pytest.raises(NotFound):
                await theirs.set_attributes("db", file_id, {"b": 2})
            with pytest.raises(NotFound):
                await theirs.remove("db", file_id)

        await reset()
        await change_acl(index, file_id, ["group:hr"])
        await closed()
        await reset()
        await insert(stack, ["group:hr"], file_id)
        await closed()
        await reset()
        again = RAGDocument(document_id=file_id, content="Hay.", acl=["group:hr"])
        await finished(stack, await stack.ingestion.submit([JobRequest("db", document=again)]))
        await closed()


async def test_of_two_processes_the_last_to_record_an_acl_has_read_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process is slow to record who reads a document, which another closes and records before.

    If this fails: the names of a closed document's file are shown for good.
    """
    async with opened(tmp_path) as stack, opened(tmp_path) as other:
        file_id = await attached(stack, ["group:hr"])
        read = stored_acl

        async def slow(index: EmbeddingIndex, document_id: str) -> set[str] | None:
            acl = await read(index, document_id)
            monkeypatch.undo()
            await change_acl(await other.index("db"), file_id, ["group:hr"])
            return acl

        monkeypatch.setattr(following, "stored_acl", slow)
        await change_acl(await stack.index("db"), file_id, None)
        assert await known(stack, BOB) == []


async def test_a_closed_document_is_not_opened_by_a_slower_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that has read an open document is cancelled once it has recorded that.

    Meanwhile another task of the process has closed the document.
    If this fails: who hangs up in the right moment makes a closed document's file known for good.
    """
    async with opened(tmp_path) as stack:
        file_id = await attached(stack, ["group:hr"])
        read, index = stored_acl, await stack.index("db")
        closing: list[asyncio.Task[int]] = []

        async def slow(whole: EmbeddingIndex, document_id: str) -> set[str] | None:
            acl = await read(whole, document_id)
            monkeypatch.setattr(following, "stored_acl", hung_up)
            closing.append(asyncio.create_task(change_acl(index, file_id, ["group:hr"])))
            await asyncio.wait(closing, timeout=0.5)
            return acl

        async def hung_up(whole: EmbeddingIndex, document_id: str) -> set[str] | None:
            if asyncio.current_task() is opening:
                raise asyncio.CancelledError
            return await read(whole, document_id)

        monkeypatch.setattr(following, "stored_acl", slow)
        opening = asyncio.create_task(change_acl(index, file_id, None))
        await asyncio.wait({opening})
        await closing[0]
        assert opening.cancelled()
        assert await known(stack, BOB) == []


async def test_jobs_follow_through_a_rebuild(tmp_path: Path) -> None:
    """The registration's time says whose jobs they are, whichever index holds the chunks now."""
    async with opened(tmp_path) as stack:
        file_id = await attached(stack, None)
        old = await stack.index("db")
        ids = await old.document_chunk_ids(file_id)
        await begin(stack, language="nb")
        await steps(stack)
        await switch(stack)
        await old.set_acl(ids, ["group:hr"])
        assert await known(stack, BOB) == []


async def test_a_version_that_is_not_stored_is_never_opened(tmp_path: Path) -> None:
    """The jobs of earlier and failed versions are closed with the document, and stay closed.

    If this fails: the title of a version that was closed is shown once an open one replaces it.
    """
    async with opened(tmp_path) as stack:
        await submit(stack, ANN, of_ann("Hay."))
        shared = RAGDocument(document_id="d", content="Straw.")
        await submit(stack, ANN, JobRequest("db", document=shared))
        jobs, _ = await stack.for_principal(BOB).ingestion.page(vector_db_id="db")
        assert len(jobs) == 1
        await change_acl(await stack.index("db"), "d", ["group:hr"])
        await change_acl(await stack.index("db"), "d", None)
        jobs, _ = await stack.for_principal(BOB).ingestion.page(vector_db_id="db")
        assert len(jobs) == 1


async def test_a_document_is_known_to_whom_one_of_its_chunks_is_open(tmp_path: Path) -> None:
    """As in the list of documents: its jobs have the tokens of all its chunks."""
    async with opened(tmp_path) as stack:
        await submit(stack, ANN, of_ann("Hay."))
        index = await stack.index("db")
        chunk = Chunk(content="Open.", metadata={"document_id": "d"}, acl=["user:bob"])
        await index.add_chunks([chunk], np.eye(1, 16))
        assert await known(stack, BOB) == ["d"]
        await index.set_acl([chunk.chunk_id], ["group:hr"])
        assert await known(stack, BOB) == []
        carl = Principal(user="carl", role=Role.WRITER)
        assert (await known(stack, ANN), await known(stack, carl)) == (["d"], [])


async def test_a_submitter_does_not_change_a_file_that_is_closed_to_it(tmp_path: Path) -> None:
    """It knows its own job, and can neither change its attributes nor take it from the list."""
    async with opened(tmp_path) as stack:
        mine = stack.for_principal(ANN)
        file_id = await upload(mine, "Hay.")
        await finished(stack, await mine.ingestion.submit([JobRequest("db", file_id=file_id)]))
        await change_acl(await stack.index("db"), file_id, ["group:hr"])
        assert await known(stack, ANN) == [file_id]
        with pytest.raises(Forbidden):
            await mine.ingestion.set_attributes("db", file_id, {"b": 2})
        with pytest.raises(Forbidden):
            await mine.ingestion.remove("db", file_id)
        assert await known(stack, Principal(role=Role.ADMIN)) == [file_id]


async def test_a_file_stays_listed_while_hidden_chunks_of_it_are_stored(tmp_path: Path) -> None:
    """Who removes a file removes the chunks that it sees; the rest keeps its place in the list."""
    async with opened(tmp_path) as stack:
        file_id = await attached(stack, ["user:ann"])
        index = await stack.index("db")
        hidden = Chunk(content="More.", metadata={"document_id": file_id}, acl=["group:hr"])
        await index.add_chunks([hidden], np.eye(1, 16))
        await stack.for_principal(ANN).ingestion.remove("db", file_id)
        assert await known(stack, ANN) == []
        assert await known(stack, Principal(role=Role.ADMIN)) == [file_id]
        assert await stored(stack) == {file_id: ["More."]}


async def test_a_refused_job_takes_no_file_from_the_list(tmp_path: Path) -> None:
    """Another's job under the id of a hidden document fails, and stands beside the stored one.

    If this fails: a writer removes files that it cannot see from everybody's lists and counts.
    """
    async with opened(tmp_path) as stack:
        file_id = await attached(stack, ["group:hr"])
        forged = RAGDocument(document_id=file_id, content="Straw.")
        refused = await submit(stack, BOB, JobRequest("db", document=forged))
        assert refused.status is JobStatus.FAILED
        jobs, _ = await stack.ingestion.page(vector_db_id="db", newest_only=True, files_only=True)
        assert [job.file_id for job in jobs] == [file_id]
        counts = await stack.ingestion.counts(vector_db_id="db", files_only=True)
        assert counts == {JobStatus.COMPLETED: 1}
        assert await stack.ingestion.usage_bytes("db") > 0
