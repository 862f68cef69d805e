"""Jobs: documents that are stored whole, once, in order, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, patch

import apsw
import pytest

from corral.api.errors import Conflict, InvalidRequest, NotFound, Unavailable
from corral.api.principal import Principal, Role
from corral.api.rag import URL, RAGDocument
from corral.api.vector_dbs import ChunkingConfig, SearchMode, VectorDBRegistration
from corral.providers.database import Database
from corral.providers.embedding.hashing.embedder import HashingEmbedder
from corral.providers.ingestion import work
from corral.providers.ingestion.job_queue import TOGETHER_BYTES
from corral.providers.ingestion.job_rows import Scope, Submission
from corral.providers.ingestion.job_table import JobTable
from corral.providers.ingestion.jobs import Job, JobRequest, JobStatus, Progress, Step
from corral.providers.ingestion.owned_jobs import MAX_ATTEMPTS, NoLongerOurs
from corral.providers.ingestion.owners import Owner
from corral.providers.ingestion.pipeline import CHUNKS_AT_ONCE
from corral.providers.ingestion.service import Prepared
from corral.providers.stack import Stack

from .jobs_stack import Watched, finished, of_text, opened, stored, upload

SHEEP = "# Sheep\n\n" + "A sheep eats grass behind the fence. " * 200


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Return the embedder that all stacks use."""
    watched = Watched()
    monkeypatch.setattr(HashingEmbedder, "embed_documents", watched.method())
    return watched


async def until_running(stack: Stack, job: Job) -> None:
    """Wait until a worker has a job."""
    while (await stack.ingestion.job(job.job_id)).status is JobStatus.QUEUED:  # noqa: ASYNC110 - in a table
        await asyncio.sleep(0.01)


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job notes its progress between parts of a document; behind the last one it only stores it.

    If this fails: a long document shows no bar that moves, or each short one pays for one more
    write to the disk.
    """
    monkeypatch.setattr(work, "REPORT_EVERY_SECONDS", -1.0)  # with every part
    noted: list[int] = []
    report = JobTable.report

    async def watched(
        table: JobTable, job: Job, owner: str, progress: Progress, **how: bool
    ) -> None:
        noted.append(progress.chunks)
        await report(table, job, owner, progress, **how)

    monkeypatch.setattr(JobTable, "report", watched)
    async with opened(tmp_path) as stack:
        [short] = await finished(stack, await stack.ingestion.submit([of_text("s", "Hay.")]))
        assert (noted, short.progress.chunks) == ([], 1)
        parts = "\n\n".join(f"Part {n}. " + "grass " * 400 for n in range(CHUNKS_AT_ONCE + 1))
        [long] = await finished(stack, await stack.ingestion.submit([of_text("l", parts)]))
        assert noted == list(range(CHUNKS_AT_ONCE, long.progress.chunks, CHUNKS_AT_ONCE)) != []


async def test_what_is_acknowledged_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submission and the end of a job are on the disk when they return; notes on the way are not.

    If this fails: a loss of power forgets what was acknowledged, or each document waits for the
    disk once more to no use.
    """
    full, seen = 2, set()  # as SQLite numbers them

    def watch(name: str) -> None:
        method = getattr(JobTable, name)

        def watched(self: JobTable, table: apsw.Connection, *given: Any, **more: Any) -> Any:
            change = next((str(each) for each in given if "storing" in str(each)), "")
            waits = table.pragma("synchronous") == full
            seen.add((name, "storing = 1" in change, waits))
            return method(self, table, *given, **more)

        monkeypatch.setattr(JobTable, name, watched)

    for name in ("_insert", "_update_own"):
        watch(name)
    async with opened(tmp_path) as stack:
        asked = [of_text("a", "Hay."), of_text("b", "Grass.")]
        await finished(stack, await stack.ingestion.submit(asked))
    assert seen == {
        ("_insert", False, True),
        ("_update_own", True, False),
        ("_update_own", False, True),
    }


async def test_what_is_stored_needs_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents that would be stored the same are recognized before the model is loaded.

    If this fails: looking at a folder where nothing changed takes as long as loading a model.
    """
    documents = [RAGDocument(document_id="d", content=SHEEP)]

    def prepared(stack: Stack) -> Awaitable[Prepared]:
        options = {"skip_unchanged": True, "same_origin_only": True}
        return stack.ingestion.prepare("db", documents, None, None, **options)

    async with opened(tmp_path) as stack:
        asked = JobRequest("db", document=documents[0])
        await finished(stack, await stack.ingestion.submit([asked]))
        refused = Unavailable("There is no model.")
        monkeypatch.setattr(stack, "embedder_of", AsyncMock(side_effect=refused))
        assert (await prepared(stack)).unchanged == ["d"]
        documents[0] = RAGDocument(document_id="d", content=f"{SHEEP} More.")
        with pytest.raises(Unavailable):
            await prepared(stack)


async def test_the_newest_version_wins(tmp_path: Path, embedder: Watched) -> None:
    """Of several versions submitted one after the other the last is stored, alone.

    If this fails: two workers store an old version after a new one.
    """
    embedder.gate.clear()
    async with opened(tmp_path, ingestion={"workers": 4}) as stack:
        jobs = []
        for number in range(5):
            jobs += await stack.ingestion.submit([of_text("d", f"Version {number}.")])
        embedder.gate.set()
        ended = await finished(stack, jobs)
        assert [job.status for job in ended[:-1]] == [JobStatus.CANCELLED] * 4
        assert ended[-1].status is JobStatus.COMPLETED
        assert await stored(stack) == {"d": ["Version 4."]}


@pytest.mark.parametrize("end", ["killed", "stopped", "failed"])
async def test_an_older_version_is_never_stored_after_a_newer(tmp_path: Path, end: str) -> None:
    """A job whose owner ends while it stores is not done again once a newer version waits.

    If this fails: the newer version is stored first, and the older one then takes its place.
    """
    async with opened(tmp_path / "stack") as stack:
        vector_db = await stack.vector_db("db")
    table, one = JobTable(tmp_path, lambda: 1e9), Principal("", role=Role.ADMIN)

    async def submit(text: str) -> Job:
        new = Submission(of_text("t", text), vector_db, "", one)
        return (await table.add([new], None, same_origin=False))[0]

    old = await submit("old")
    assert await table.claim("owner") is not None
    await table.storing("owner", [Step(old, Progress(chunks=3), headway=True)])
    assert (await table.get(Scope(job_id=old.job_id), "job")).progress.chunks == 3
    new = await submit("new")
    assert await table.claim("other") is None  # while the old one is being stored
    match end:
        case "killed":
            assert await table.take_over("owner") == 1
        case "stopped":
            assert await table.release("owner") == 1
        case _:
            await table.postpone(old, "owner", "away", 0)
    claimed = await table.claim("other")
    assert claimed is not None
    assert claimed.job_id == new.job_id
    await table.complete("other", [Step(new, claimed.progress)])
    assert await table.claim("other") is None
    assert (await table.get(Scope(job_id=old.job_id), "job")).status is JobStatus.CANCELLED
    await table.close()


async def test_a_job_that_is_removed_at_once_was_submitted_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs are returned as their own write made them, whatever another process does next.

    If this fails: to delete a document while it is submitted is answered with 500.
    """
    async with opened(tmp_path / "stack") as stack:
        vector_db = await stack.vector_db("db")
    table, one = JobTable(tmp_path, lambda: 1e9), Principal("", role=Role.ADMIN)
    write = Database.write

    async def raced(file: Database, *arguments: Any, **options: Any) -> Any:
        done = await write(file, *arguments, **options)
        await write(file, lambda connection: connection.execute("DELETE FROM jobs"))
        return done

    monkeypatch.setattr(Database, "write", raced)
    news = [Submission(of_text(name, name), vector_db, "", one) for name in "ab"]
    found = await table.add(news, None, same_origin=False)
    assert [(job.document_id, job.status) for job in found] == [
        ("a", JobStatus.QUEUED),
        ("b", JobStatus.QUEUED),
    ]
    await table.close()


async def test_the_next_jobs_are_claimed_with_the_end_of_one(tmp_path: Path) -> None:
    """Who has stored a document gets the next jobs in the same write; who lost its job gets none.

    If this fails: each document waits for the disk once more, or a job is claimed by somebody who
    does not know of it, and stands still until that process ends.
    """
    async with opened(tmp_path / "stack") as stack:
        vector_db = await stack.vector_db("db")
    table, one = JobTable(tmp_path, lambda: 1e9), Principal("", role=Role.ADMIN)
    news = [Submission(of_text(name, name), vector_db, "", one) for name in "abc"]
    jobs = await table.add(news, None, same_origin=False)
    first = await table.claim("owner")
    assert first is not None
    following = await table.complete("owner", [Step(first, Progress())], claim_next=True)
    assert [job.job_id for job in following] == [job.job_id for job in jobs[1:]]
    assert {job.status for job in following} == {JobStatus.RUNNING}
    assert await table.take_over("owner") == 2
    for each in following:
        with pytest.raises(NoLongerOurs):
            await table.complete("owner", [Step(each, Progress())], claim_next=True)
    counts = await table.counts(Scope())
    assert counts == {JobStatus.COMPLETED: 1, JobStatus.QUEUED: 2}
    await table.close()


async def test_what_is_done_together(tmp_path: Path) -> None:
    """Short texts for one vector DB by one principal, in one size, are; all others are alone.

    If this fails: a document is stored with the rights, the sizes or in the vector DB of another,
    waits behind a long one or a slow address, or fails with one that ends its process.
    """
    async with opened(tmp_path / "stack") as stack:
        db = await stack.vector_db("db")
    table = JobTable(tmp_path, lambda: 1e9)
    one, other = (Principal("", user, role=Role.ADMIN) for user in ("one", "other"))
    elsewhere = db.model_copy(update={"identifier": "elsewhere"})
    sizes = ChunkingConfig(chunk_size_in_tokens=9, overlap_in_tokens=0)
    address = RAGDocument(document_id="k", content=URL(uri="https://example.org/a.md"))
    half = "x" * (TOGETHER_BYTES // 2 - 200)
    news = [
        *(Submission(of_text(name, half), db, "", one) for name in "abc"),
        *(Submission(of_text(name, "Hay."), db, "", other) for name in "de"),
        *(Submission(of_text(name, "Hay."), elsewhere, "", other) for name in "fg"),
        Submission(replace(of_text("h", "Hay."), chunking=sizes), elsewhere, "", other),
        Submission(JobRequest("db", file_id="file-i"), elsewhere, "", other),
        Submission(of_text("j", half * 4), elsewhere, "", other),
        Submission(JobRequest("db", document=address), elsewhere, "", other),
        *(Submission(of_text(name, "Hay."), elsewhere, "", other) for name in "lm"),
    ]
    await table.add(news, None, same_origin=False)
    assert [await table.claim("dead"), await table.claim("dead")] != [None, None]  # a and b
    assert await table.take_over("dead") == 2
    done, now = [], [await table.claim("owner")]
    while now:
        jobs = [job for job in now if job]
        done.append("".join(job.document_id[-1] for job in jobs))
        steps = [Step(job, job.progress) for job in jobs]
        now = [*await table.complete("owner", steps, claim_next=True)]
    assert done == ["c", "de", "fg", "h", "i", "j", "k", "lm", "a", "b"]
    news = [Submission(of_text(name, half), db, "", one) for name in "nopq"]
    await table.add(news, None, same_origin=False)
    first = await table.claim("owner")
    assert first is not None
    following = await table.complete("owner", [Step(first, Progress())], claim_next=True)
    assert [job.document_id for job in following] == ["o", "p"]
    await table.close()


async def test_short_texts_are_embedded_and_stored_together(
    tmp_path: Path, embedder: Watched
) -> None:
    """Each still has chunks, a progress and a size of its own, whatever it came with.

    If this fails: a folder of short documents goes in at a part of the model's speed, or what is
    told of one document is that of several.
    """
    embedder.gate.clear()
    async with opened(tmp_path, ingestion={"workers": 1}) as stack:
        index = await stack.index("db")
        calls = AsyncMock(wraps=index.add_chunks)
        texts = {
            "a": "Hay.",
            "b": "# Grass\n\nGreen.",
            "c": "Straw.",
            "d": "Corn. " * 299 + "Corn.",
            "e": "Oats.",
        }
        with patch.object(type(index), "add_chunks", calls):
            asked = [of_text(name, text) for name, text in texts.items()]
            jobs = await stack.ingestion.submit(asked)
            await until_running(stack, jobs[0])
            embedder.gate.set()
            ended = await finished(stack, jobs)
        assert [sorted(call.kwargs["replace_documents"]) for call in calls.await_args_list] == [
            ["a"],
            ["b", "c", "d", "e"],
        ]
        found = await stored(stack)
        assert {name: len(found.get(name, [])) for name in texts} == {
            job.document_id: job.progress.chunks for job in ended
        }
        assert found["b"] == ["# Grass\n\nGreen."]
        model = await stack.embedder_of(index.vector_db)
        for name in "ace":
            nearest = await index.query(
                await model.embed_query(texts[name]), k=1, mode=SearchMode.VECTOR
            )
            assert nearest.hits[0].chunk.document_id == name
            assert nearest.hits[0].score == pytest.approx(1)
        assert [job.progress.characters_total for job in ended] == [*map(len, texts.values())]
        sizes = [
            len("".join(found.get(name, []))) + len(found.get(name, [])) * 64 for name in texts
        ]
        assert [job.usage_bytes for job in ended] == sizes


async def test_a_job_that_is_cancelled_leaves_the_others(tmp_path: Path, embedder: Watched) -> None:
    """What is embedded together with a job that was cancelled meanwhile is stored without it.

    If this fails: a cancelled document is stored, or takes others with it.
    """
    embedder.gate.clear()
    async with opened(tmp_path, ingestion={"workers": 1}) as stack:
        jobs = await stack.ingestion.submit([of_text(name, f"{name}.") for name in "abcd"])
        await until_running(stack, jobs[0])
        await embedder.pass_one()
        await until_running(stack, jobs[2])
        assert await stack.ingestion.cancel(job_id=jobs[2].job_id) == 1
        embedder.gate.set()
        ended = await finished(stack, jobs)
        assert [job.status for job in ended] == [
            JobStatus.COMPLETED,
            JobStatus.COMPLETED,
            JobStatus.CANCELLED,
            JobStatus.COMPLETED,
        ]
        assert sorted(await stored(stack)) == ["a", "b", "d"]


async def test_a_text_that_fails_harms_no_other(tmp_path: Path, embedder: Watched) -> None:
    """Those that are embedded together with one that cannot be stored are; its job says why not.

    If this fails: one bad document fails all that were sent with it, or is lost without a word.
    """
    embedder.poison = "poison"
    async with opened(tmp_path, ingestion={"workers": 1}) as stack:
        texts = ["Hay.", "Grass.", "A poison.", "Corn.", "Oats."]
        jobs = await stack.ingestion.submit([of_text(text, text) for text in texts])
        ended = await finished(stack, jobs)
        failed = [job for job in ended if job.status is not JobStatus.COMPLETED]
        assert [(job.document_id, job.error_code) for job in failed] == [
            ("A poison.", "server_error")
        ]
        assert sorted(await stored(stack)) == ["Corn.", "Grass.", "Hay.", "Oats."]


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


async def test_what_may_pass_is_tried_again(
    tmp_path: Path, embedder: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is away for a moment fails no job; one that stays away fails it in the end.

    If this fails: a restart of the model's server loses documents, or holds a worker forever.
    """
    monkeypatch.setattr("corral.providers.ingestion.work.FIRST_PAUSE_SECONDS", 0.001)
    async with opened(tmp_path) as stack:
        embedder.refusals = MAX_ATTEMPTS - 1
        (job,) = await finished(stack, await stack.ingestion.submit([of_text("d", "Hay.")]))
        assert (job.status, job.error_message) == (JobStatus.COMPLETED, None)
        embedder.refusals = MAX_ATTEMPTS
        (job,) = await finished(stack, await stack.ingestion.submit([of_text("e", "Corn.")]))
        assert (job.status, job.error_code) == (JobStatus.FAILED, "server_error")
        assert "The model is away." in str(job.error_message)
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
        table, seen = JobTable(home, lambda: 1e9), list[int]()

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
        seen += [job.version for job in await table.find(Scope("acme"))]
        await table.close()
        return seen

    alone = await versions(tmp_path / "alone", others=False)
    assert alone == sorted(set(alone[:3])) + sorted(set(alone[3:]))
    assert await versions(tmp_path / "shared", others=True) == alone


async def test_a_stop_gives_the_work_back(tmp_path: Path, embedder: Watched) -> None:
    """What a process had begun when it was closed is queued, and the next one does it.

    If this fails: a restart of the server leaves jobs that run forever.
    """
    embedder.gate.clear()
    async with opened(tmp_path) as stack:
        (job,) = await stack.ingestion.submit([of_text("d", "Hay.")])
        await until_running(stack, job)
    embedder.gate.set()
    async with opened(tmp_path) as stack:
        await stack.ingestion.start()
        (ended,) = await finished(stack, [job])
        assert (ended.status, ended.attempts) == (JobStatus.COMPLETED, 1)
        assert await stored(stack) == {"d": ["Hay."]}
    assert list((tmp_path / "workers").iterdir()) == []


def test_a_lock_tells_the_living_from_the_dead(tmp_path: Path) -> None:
    """An owner that has not ended is never taken for dead."""
    one, other = Owner(tmp_path), Owner(tmp_path)
    one.enter()
    assert not other.is_dead(one.name)
    one.leave()
    assert other.is_dead(one.name)
