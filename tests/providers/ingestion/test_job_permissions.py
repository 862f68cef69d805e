"""Jobs have the rights of who submitted them, and are known to whom their documents are open."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.api.errors import Conflict, NotFound
from corral.api.principal import Principal, Role
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.embedding.hashing.embedder import HashingEmbedder
from corral.providers.ingestion.jobs import Job, JobRequest, JobStatus
from corral.providers.stack import Stack

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
