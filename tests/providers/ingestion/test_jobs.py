"""Jobs: documents become chunks, fail alone, can be cancelled, retried, changed and removed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import Conflict, InvalidRequest, NotFound, Unavailable
from corral.api.principal import Principal, Role
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import ChunkingConfig, VectorDBRegistration
from corral.providers.base.documents import delete_document
from corral.providers.ingestion import service
from corral.providers.ingestion.ingest import JOB_BATCH
from corral.providers.ingestion.jobs.jobs import Job, JobRequest, JobStatus, Step, Submission
from corral.providers.ingestion.jobs.queue import MAX_ATTEMPTS, JobQueue
from corral.providers.ingestion.jobs.reader import Scope
from corral.providers.ingestion.jobs.runner import REPORT_EVERY_SECONDS
from corral.providers.ingestion.service import Prepared
from corral.providers.stack.stack import Stack
from corral.providers.state.state import State

from .jobs_stack import Watched, finished, of_text, opened, stored, until_running, upload

SHEEP = "# Sheep\n\n" + "A sheep eats grass behind the fence. " * 200


async def test_a_file_and_a_text_become_chunks(tmp_path: Path) -> None:
    """A job ends as completed, its chunks carry the file's names and attributes.

    If this fails: what OpenAI's clients attach to a vector store cannot be found or filtered.
    """
    async with opened(tmp_path) as stack:
        file_id = await upload(stack, SHEEP)
        asked = [JobRequest("db", file_id=file_id, attributes={"year": 2026}), of_text("t", "Hay.")]
        jobs = await finished(stack, await stack.ingestion.submit(asked, batch=True))
        assert [job.status for job in jobs] == [JobStatus.COMPLETED] * 2
        assert jobs[0].batch_id == jobs[1].batch_id
        assert jobs[0].progress.embedded == jobs[0].progress.chunks > 1
        assert jobs[0].progress.share == pytest.approx(1, abs=0.01)
        assert jobs[0].usage_bytes > len(SHEEP)
        index = await stack.index("db")
        ids = await index.document_chunk_ids(file_id)
        (chunk, *_) = await index.get_chunks(ids)
        assert len(ids) == jobs[0].progress.chunks
        assert {"file_id": file_id, "filename": "a.md", "year": 2026}.items() <= (
            chunk.metadata.items()
        )
        assert (await stored(stack))["t"] == ["Hay."]


async def test_an_unchanged_text_is_embedded_once(tmp_path: Path, embedder: Watched) -> None:
    """A new version of a document costs its new passages, and replaces the old one in place.

    If this fails: every small change of a large document pays for all of it.
    """
    async with opened(tmp_path) as stack:
        parts = [f"Part {n}. " + "grass " * 200 for n in range(8)]
        asked = of_text("d", "\n\n".join(parts))
        await finished(stack, await stack.ingestion.submit([asked]))
        first = len(embedder.texts)
        embedder.texts.clear()
        await finished(stack, await stack.ingestion.submit([of_text("e", "\n\n".join(parts))]))
        assert embedder.texts == []
        parts[-1] = "Another end."
        await finished(stack, await stack.ingestion.submit([of_text("d", "\n\n".join(parts))]))
        assert 0 < len(embedder.texts) <= 2 < first
        texts = (await stored(stack))["d"]
        assert "Another end." in texts[-1]
        assert not any("Part 7" in text for text in texts)


async def test_progress_is_noted_while_more_is_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embedder: Watched
) -> None:
    """A job notes its progress between parts of a document; behind the last one it only stores it.

    If this fails: a long document shows no bar that moves, or each short one pays for one more
    write to the disk.
    """
    noted: list[int] = []
    report = JobQueue.report

    async def watched(
        table: JobQueue, owner: str, steps: Sequence[Step], *, storing: bool = False
    ) -> None:
        noted.extend(step.progress.chunks for step in steps if not storing)
        await report(table, owner, steps, storing=storing)

    async def embedding_slowly() -> None:
        while True:
            await embedder.waiting.wait()
            await asyncio.sleep(2 * REPORT_EVERY_SECONDS)
            await embedder.pass_one()

    monkeypatch.setattr(JobQueue, "report", watched)
    async with opened(tmp_path) as stack:
        [short] = await finished(stack, await stack.ingestion.submit([of_text("s", "Hay.")]))
        assert (noted, short.progress.chunks) == ([], 1)
        parts = "\n\n".join(f"Part {n}. " + "grass " * 400 for n in range(JOB_BATCH + 1))
        embedder.gate.clear()
        slow = asyncio.create_task(embedding_slowly())
        [long] = await finished(stack, await stack.ingestion.submit([of_text("l", parts)]))
        slow.cancel()
        assert noted == list(range(JOB_BATCH, long.progress.chunks, JOB_BATCH)) != []


async def test_what_is_stored_needs_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents that would be stored the same are recognized before the model is loaded.

    If this fails: looking at a folder where nothing changed takes as long as loading a model.
    """
    documents = [RAGDocument(document_id="d", content=SHEEP)]

    def prepared(stack: Stack) -> Awaitable[Prepared]:
        return stack.ingestion.prepare(
            "db", documents, None, None, skip_unchanged=True, same_origin_only=True
        )

    async with opened(tmp_path) as stack:
        asked = JobRequest("db", document=documents[0])
        await finished(stack, await stack.ingestion.submit([asked]))
        refused = Unavailable("There is no model.")
        monkeypatch.setattr(Stack, "embedder_of", AsyncMock(side_effect=refused))
        assert (await prepared(stack)).unchanged == ["d"]
        documents[0] = RAGDocument(document_id="d", content=f"{SHEEP} More.")
        with pytest.raises(Unavailable):
            await prepared(stack)


async def test_the_same_again_is_the_same_job(tmp_path: Path, embedder: Watched) -> None:
    """A document that waits already is not queued twice."""
    embedder.gate.clear()
    async with opened(tmp_path) as stack:
        first = await stack.ingestion.submit([of_text("d", "Hay.")])
        again = await stack.ingestion.submit([of_text("d", "Hay.")], batch=True)
        assert [job.job_id for job in again] == [job.job_id for job in first]
        assert again[0].batch_id is not None
        embedder.gate.set()
        await finished(stack, again)


async def test_a_cancelled_job_stores_nothing(tmp_path: Path, embedder: Watched) -> None:
    """Queued or at work: it ends as cancelled, and can be retried."""
    embedder.gate.clear()
    async with opened(tmp_path, ingestion={"workers": 1}) as stack:
        jobs = await stack.ingestion.submit([of_text(n, "Hay.") for n in "ab"], batch=True)
        await until_running(stack, jobs[0])
        assert await stack.ingestion.cancel(batch_id=jobs[0].batch_id) == 2
        embedder.gate.set()
        ended = await finished(stack, jobs)
        assert {job.status for job in ended} == {JobStatus.CANCELLED}
        await asyncio.sleep(0.3)
        assert await stored(stack) == {}
        assert await stack.ingestion.retry(batch_id=jobs[0].batch_id) == 2
        await finished(stack, jobs)
        assert sorted(await stored(stack)) == ["a", "b"]


async def test_what_may_pass_is_tried_again(tmp_path: Path, embedder: Watched) -> None:
    """A model that is away for a moment fails no job; one that stays away fails it in the end.

    The reason is text that PostgreSQL can store: without NUL.

    If this fails: a restart of the model's server loses documents, or holds a worker forever.
    """
    async with opened(tmp_path, ingestion={"retry_seconds": 0.001}) as stack:
        embedder.refusals = MAX_ATTEMPTS - 1
        (job,) = await finished(stack, await stack.ingestion.submit([of_text("d", "Hay.")]))
        assert (job.status, job.error_message) == (JobStatus.COMPLETED, None)
        embedder.refusals = MAX_ATTEMPTS
        (job,) = await finished(stack, await stack.ingestion.submit([of_text("e", "Corn.")]))
        assert (job.status, job.error_code) == (JobStatus.FAILED, "server_error")
        assert "The model is away.\ufffd" in str(job.error_message)
        assert await stack.ingestion.retry(vector_db_id="db") == 1
        await finished(stack, [job])
        assert await stored(stack) == {"d": ["Hay."], "e": ["Corn."]}


async def test_a_file_that_cannot_be_read_fails_alone(tmp_path: Path) -> None:
    """Its job says what kind of failure it is; the version that was there stays, as do others."""
    async with opened(tmp_path) as stack:
        broken = await upload(stack, "%PDF-1.4 no more", "a.pdf")
        jobs = await stack.ingestion.submit(
            [JobRequest("db", file_id=broken, document_id="d"), of_text("t", "Hay.")]
        )
        ended = await finished(stack, jobs)
        assert [job.status for job in ended] == [JobStatus.FAILED, JobStatus.COMPLETED]
        assert ended[0].error_code in ("invalid_file", "unsupported_file")
        assert await stored(stack) == {"t": ["Hay."]}


async def test_refused_requests_queue_nothing(tmp_path: Path) -> None:
    """Unknown vector DBs and files, both or neither of file and text, attributes without JSON."""
    async with opened(tmp_path) as stack:
        with pytest.raises(NotFound):
            await stack.ingestion.submit([of_text("a", "b"), JobRequest("db", file_id="file-0")])
        with pytest.raises(NotFound):
            await stack.ingestion.submit([JobRequest("nowhere", file_id="file-0")])
        with pytest.raises(InvalidRequest):
            await stack.ingestion.submit([JobRequest("db")])
        bad = JobRequest("db", document=of_text("a", "b").document, attributes={"a": object()})
        with pytest.raises(InvalidRequest):
            await stack.ingestion.submit([bad])
        assert (await stack.ingestion.page())[0] == []


async def test_another_origin_is_refused_while_it_waits(tmp_path: Path, embedder: Watched) -> None:
    """Two folders with a file of one name do not replace each other's documents unseen."""
    embedder.gate.clear()
    async with opened(tmp_path) as stack:
        await stack.ingestion.submit([of_text("d", "Hay.", origin="x")])
        with pytest.raises(Conflict, match="another place"):
            await stack.ingestion.submit([of_text("d", "Corn.", origin="y")], same_origin_only=True)
        embedder.gate.set()


async def test_changes_of_attributes_wait_for_each_other(tmp_path: Path) -> None:
    """Many at once on a stored file: each is carried out, and the last one stays.

    If this fails: all but one are a 500, and what they changed is lost.
    """
    async with opened(tmp_path) as stack:
        file_id = await upload(stack, "An owl.")
        await finished(stack, await stack.ingestion.submit([JobRequest("db", file_id=file_id)]))
        change = stack.ingestion.set_attributes
        jobs = await asyncio.gather(*(change("db", file_id, {"n": n}) for n in range(5)))
        assert {job.attributes["n"] for job in jobs} <= set(range(5))
        last = await stack.ingestion.newest("db", file_id)
        index = await stack.index("db")
        [chunk] = await index.get_chunks(await index.document_chunk_ids(file_id))
        assert chunk.metadata["n"] == last.attributes["n"]


async def test_a_change_of_attributes_without_an_answer_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the write that begins it has no answer, the change fails and can be repeated.

    If this fails: the job runs until the process ends, and its file can be neither changed nor
    removed.
    """
    change = JobQueue.change_attributes

    async def lose(table: JobQueue, job: Job, owner: str, attributes: dict[str, int]) -> None:
        await change(table, job, owner, attributes)
        raise Unavailable("The connection is lost.")

    async with opened(tmp_path) as stack:
        file_id = await upload(stack, "An owl.")
        await finished(stack, await stack.ingestion.submit([JobRequest("db", file_id=file_id)]))
        with monkeypatch.context() as patch:
            patch.setattr(JobQueue, "change_attributes", lose)
            with pytest.raises(Unavailable):
                await stack.ingestion.set_attributes("db", file_id, {"n": 1})
        async with asyncio.timeout(60):
            job = await stack.ingestion.set_attributes("db", file_id, {"n": 2})
        assert (job.attributes, job.status) == ({"n": 2}, JobStatus.COMPLETED)


async def test_attributes_change_without_embedding(tmp_path: Path, embedder: Watched) -> None:
    """Filters see the new attributes, the old are gone, and no text is embedded again."""
    async with opened(tmp_path) as stack:
        file_id = await upload(stack, SHEEP)
        asked = JobRequest("db", file_id=file_id, attributes={"year": 2025, "old": True})
        await finished(stack, await stack.ingestion.submit([asked]))
        embedder.texts.clear()
        job = await stack.ingestion.set_attributes("db", file_id, {"year": 2026})
        assert (job.attributes, job.status) == ({"year": 2026}, JobStatus.COMPLETED)
        index = await stack.index("db")
        chunks = await index.get_chunks(await index.document_chunk_ids(file_id))
        assert {chunk.metadata["year"] for chunk in chunks} == {2026}
        assert not any("old" in chunk.metadata for chunk in chunks)
        assert {chunk.metadata["filename"] for chunk in chunks} == {"a.md"}
        assert embedder.texts == []


async def test_a_job_whose_end_cannot_be_noted_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full where a job ends, and where it is given back; it goes on once there is room.

    If this fails: the job is running until the process ends, and its file cannot be removed.
    """
    given_back = asyncio.Event()

    async def full(*_: object, **__: object) -> None:
        raise Unavailable("The disk is full.")

    async def still_full(*_: object) -> None:
        given_back.set()
        raise Unavailable("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(JobQueue, "complete", full)
        patch.setattr(JobQueue, "postpone", still_full)
        async with opened(tmp_path) as stack:
            jobs = await stack.ingestion.submit([of_text("d", "Hay.")])
            await given_back.wait()
            patch.undo()
            async with asyncio.timeout(20):
                [job] = await finished(stack, jobs)
            assert job.status is JobStatus.COMPLETED
            assert await stored(stack) == {"d": ["Hay."]}


@pytest.mark.parametrize("waits", [True, False])
async def test_a_file_that_is_attached_again_has_the_attributes_of_then(
    tmp_path: Path, embedder: Watched, waits: bool
) -> None:
    """Also where its job would have stored the same before the attributes were changed.

    If this fails: the call is answered with a job that stores the attributes of an earlier call.
    """
    async with opened(tmp_path, ingestion={"workers": 1}) as stack:
        file_id = await upload(stack, "An owl.")
        asked = JobRequest("db", file_id=file_id, attributes={"year": 2025})
        if waits:
            embedder.gate.clear()
            await until_running(stack, (await stack.ingestion.submit([of_text("d", "Hay.")]))[0])
            await stack.ingestion.submit([asked])
            await stack.ingestion.set_attributes("db", file_id, {"year": 2026})
        else:
            [job] = await finished(stack, await stack.ingestion.submit([asked]))
            assert await stack.ingestion._queue.change_attributes(job, "slow", {"year": 2026})
        jobs = await stack.ingestion.submit([asked])
        embedder.gate.set()
        if not waits:
            await stack.ingestion._queue.relabeled(job, "slow", {"year": 2026})
        assert [each.attributes for each in await finished(stack, jobs)] == [{"year": 2025}]
        index = await stack.index("db")
        [chunk] = await index.get_chunks(await index.document_chunk_ids(file_id))
        assert chunk.metadata["year"] == 2025


async def test_a_removed_file_leaves_nothing(tmp_path: Path, embedder: Watched) -> None:
    """Its chunks and jobs go, also while a worker is at it."""
    async with opened(tmp_path) as stack:
        file_id = await upload(stack, SHEEP)
        await finished(stack, await stack.ingestion.submit([JobRequest("db", file_id=file_id)]))
        embedder.gate.clear()
        asked = JobRequest("db", file_id=file_id, chunking=ChunkingConfig(chunk_size_in_tokens=100))
        (job,) = await stack.ingestion.submit([asked])
        await until_running(stack, job)
        await stack.ingestion.remove("db", file_id)
        embedder.gate.set()
        with pytest.raises(NotFound):
            await stack.ingestion.newest("db", file_id)
        await asyncio.sleep(0.3)
        assert await stored(stack) == {}


async def test_a_file_that_is_ingested_while_it_is_removed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that stores it between the deletion of its chunks and that of its jobs, too.

    If this fails: the chunks stay and are found, and no file is there to remove them with.
    """
    async with opened(tmp_path) as stack:
        file_id = await upload(stack, "Hay.")
        asked = JobRequest("db", file_id=file_id)
        await finished(stack, await stack.ingestion.submit([asked]))
        again: list[Job] = []

        async def ingested_meanwhile(index: EmbeddingIndex, document_id: str) -> int:
            count = await delete_document(index, document_id)
            if not again:
                again.extend(await stack.ingestion.submit([asked]))
                await finished(stack, again)
            return count

        monkeypatch.setattr(service, "delete_document", ingested_meanwhile)
        await stack.ingestion.remove("db", file_id)
        with pytest.raises(NotFound):
            await stack.ingestion.newest("db", file_id)
        assert await stored(stack) == {}


async def test_pages_and_counts(tmp_path: Path) -> None:
    """Pages follow each other both ways, by jobs and by files; counts are of the newest jobs."""
    async with opened(tmp_path) as stack:
        files = [await upload(stack, f"Text {n}.", f"{n}.txt") for n in range(5)]
        asked = [JobRequest("db", file_id=each) for each in files]
        jobs = await finished(stack, await stack.ingestion.submit(asked))
        again = await finished(stack, await stack.ingestion.submit(asked[:1]))
        page, more = await stack.ingestion.page(vector_db_id="db", limit=2, newest_only=True)
        assert ([job.file_id for job in page], more) == ([files[0], files[4]], True)
        rest, more = await stack.ingestion.page(
            vector_db_id="db", after=files[4], limit=10, newest_only=True
        )
        assert ([job.file_id for job in rest], more) == ([files[3], files[2], files[1]], False)
        back, more = await stack.ingestion.page(
            vector_db_id="db", before=files[2], limit=2, newest_only=True
        )
        assert ([job.file_id for job in back], more) == ([files[4], files[3]], True)
        first, _ = await stack.ingestion.page(vector_db_id="db", order="asc", limit=1)
        assert first == [jobs[0]]
        failed, _ = await stack.ingestion.page(vector_db_id="db", status=JobStatus.FAILED)
        assert failed == []
        assert (await stack.ingestion.newest("db", files[0])).job_id == again[0].job_id
        assert await stack.ingestion.counts(vector_db_id="db") == {JobStatus.COMPLETED: 5}
        with pytest.raises(NotFound):
            await stack.ingestion.page(after="job_0")


async def test_a_successor_does_not_inherit(tmp_path: Path) -> None:
    """Jobs are of a registration, not of its id; those of a deleted one are swept."""
    async with opened(tmp_path) as stack:
        await finished(stack, await stack.ingestion.submit([of_text("d", "Hay.")]))
        await stack.unregister("db")
        await stack.register(VectorDBRegistration(vector_db_id="db", embedding_model="hashing"))
        assert (await stack.ingestion.page(vector_db_id="db"))[0] == []
        assert not await stack.ingestion.counts(vector_db_id="db")
        assert await stack.ingestion.sweep() == 1


async def test_a_tenant_embeds_what_another_one_has_embedded(
    tmp_path: Path, embedder: Watched
) -> None:
    """Remembered embeddings are the tenant's own, in all of its vector DBs.

    If this fails: the time that an insert takes tells a tenant which passages another one holds.
    """
    async with opened(tmp_path) as stack:
        other = stack.for_principal(Principal("acme", role=Role.ADMIN))
        await other.register(VectorDBRegistration(vector_db_id="db", embedding_model="hashing"))
        await finished(stack, await stack.ingestion.submit([of_text("d", "Hay.")]))
        for expected in (["Hay."], []):
            embedder.texts.clear()
            jobs = await other.ingestion.submit([of_text(f"d{len(expected)}", "Hay.")])
            await finished(other, jobs)
            assert embedder.texts == expected


async def test_tenants_see_their_own_jobs(tmp_path: Path) -> None:
    """Another tenant's job does not exist, and its documents go into its own vector DB."""
    async with opened(tmp_path) as stack:
        other = stack.for_principal(Principal("acme", role=Role.ADMIN))
        await other.register(VectorDBRegistration(vector_db_id="db", embedding_model="hashing"))
        jobs = await other.ingestion.submit([of_text("d", "Hay.")])
        await finished(other, jobs)
        assert await stored(other) == {"d": ["Hay."]}
        assert await stored(stack) == {}
        with pytest.raises(NotFound):
            await stack.ingestion.job(jobs[0].job_id)
        assert (await stack.ingestion.page())[0] == []
        assert await stack.ingestion.cancel(job_id=jobs[0].job_id) == 0


async def test_a_version_tells_nothing_of_other_tenants(tmp_path: Path) -> None:
    """The version of a job grows with the changes of its tenant's jobs, and with no others.

    If this fails: a tenant sees how much others do by the gaps between its own versions, or misses
    a change after it has removed its newest job.
    """

    async def versions(home: Path, *, others: bool) -> list[int]:
        async with opened(home) as stack:
            vector_db = await stack.vector_db("db")
        state = State(home)
        table, seen = JobQueue(state, lambda: 1e9), list[int]()

        async def submit(tenant: str, name: str) -> Job:
            db, one = vector_db.model_copy(update={"tenant": tenant}), Principal(tenant)
            new = Submission(of_text(name, "Hay."), db, "", one)
            return (await table.add([new], None, same_origin=False))[0]

        for number in range(3):
            seen.append((await submit("acme", f"d{number}")).version)
            for each in range(5 * others):
                await submit("other", f"o{number}-{each}")
            await table.cancel(Scope("other"))
        await table.cancel(Scope("acme"))
        seen += [job.version for job in await table.reader.find(Scope("acme"))]
        await state.close()
        return seen

    alone = await versions(tmp_path / "alone", others=False)
    assert alone == sorted(set(alone[:3])) + sorted(set(alone[3:]))
    assert await versions(tmp_path / "shared", others=True) == alone
