"""The queue of jobs: which is done next, and with which others, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest
from sqlalchemy import delete

from corral.api.errors import Unavailable
from corral.api.principal import Principal, Role
from corral.api.rag import URL, RAGDocument
from corral.api.vector_dbs import ChunkingConfig, SearchMode
from corral.providers.base.owner import Owner
from corral.providers.ingestion.jobs.jobs import (
    Job,
    JobRequest,
    JobStatus,
    Progress,
    Step,
    Submission,
)
from corral.providers.ingestion.jobs.queue import JobQueue, NoLongerOurs
from corral.providers.ingestion.jobs.reader import TOGETHER_BYTES, Scope
from corral.providers.state.leases import LEASE_SECONDS, Leases
from corral.providers.state.state import Area, State
from corral.providers.state.tables import JOBS

from .jobs_stack import Watched, finished, of_text, opened, stored, until_running


async def test_what_is_acknowledged_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submission and the end of a job are on the disk when they return; notes on the way are not.

    If this fails: a loss of power forgets what was acknowledged, or each document waits for the
    disk once more to no use.
    """
    seen: set[tuple[str, bool]] = set()
    write = Area.write

    async def watched(area: Area, work: Any, *, durable: bool = True) -> Any:
        seen.add((work.__qualname__, durable))
        return await write(area, work, durable=durable)

    monkeypatch.setattr(Area, "write", watched)
    async with opened(tmp_path) as stack:
        asked = [of_text("a", "Hay."), of_text("b", "Grass.")]
        await finished(stack, await stack.ingestion.submit(asked))
    assert {(name.split(".")[1], durable) for name, durable in seen if "JobQueue" in name} == {
        ("add", True),
        ("claim", True),
        ("report", False),
        ("complete", True),
        ("release", True),
    }


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
async def test_an_older_version_is_never_stored_after_a_newer(
    tmp_path: Path, end: str, state_url: str
) -> None:
    """A job whose owner ends while it stores is not done again once a newer version waits.

    If this fails: the newer version is stored first, and the older one then takes its place.
    """
    async with opened(tmp_path / "stack") as stack:
        vector_db = await stack.vector_db("db")
    state = State(tmp_path, state_url)
    table, one = JobQueue(state, lambda: 1e9), Principal("", role=Role.ADMIN)

    async def submit(text: str) -> Job:
        new = Submission(of_text("t", text), vector_db, "", one)
        return (await table.add([new], None, same_origin=False))[0]

    await submit("old")
    old = await table.claim("owner")
    assert old is not None
    await table.report("owner", [Step(old, Progress(chunks=3), headway=True)], storing=True)
    assert (await table.reader.get(Scope(job_id=old.job_id), "job")).progress.chunks == 3
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
    await table.complete("other", [Step(claimed, claimed.progress)])
    assert await table.claim("other") is None
    assert (await table.reader.get(Scope(job_id=old.job_id), "job")).status is JobStatus.CANCELLED
    await state.close()


async def test_a_job_that_is_removed_at_once_was_submitted_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state_url: str
) -> None:
    """Jobs are returned as their own write made them, whatever another process does next.

    If this fails: to delete a document while it is submitted is answered with 500.
    """
    async with opened(tmp_path / "stack") as stack:
        vector_db = await stack.vector_db("db")
    state = State(tmp_path, state_url)
    table, one = JobQueue(state, lambda: 1e9), Principal("", role=Role.ADMIN)
    write = Area.write

    async def raced(area: Area, *arguments: Any, **options: Any) -> Any:
        done = await write(area, *arguments, **options)
        await write(area, lambda connection: connection.execute(delete(JOBS)))
        return done

    monkeypatch.setattr(Area, "write", raced)
    news = [Submission(of_text(name, name), vector_db, "", one) for name in "ab"]
    found = await table.add(news, None, same_origin=False)
    assert [(job.document_id, job.status) for job in found] == [
        ("a", JobStatus.QUEUED),
        ("b", JobStatus.QUEUED),
    ]
    await state.close()


async def test_the_next_jobs_are_claimed_with_the_end_of_one(
    tmp_path: Path, state_url: str
) -> None:
    """Who has stored a document gets the next jobs in the same write; who lost its job gets none.

    If this fails: each document waits for the disk once more, or a job is claimed by somebody who
    does not know of it, and stands still until that process ends.
    """
    async with opened(tmp_path / "stack") as stack:
        vector_db = await stack.vector_db("db")
    state = State(tmp_path, state_url)
    table, one = JobQueue(state, lambda: 1e9), Principal("", role=Role.ADMIN)
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
    counts = await table.reader.counts(Scope())
    assert counts == {JobStatus.COMPLETED: 1, JobStatus.QUEUED: 2}
    await state.close()


async def test_a_frozen_worker_writes_nothing(tmp_path: Path, state_url: str) -> None:
    """A worker that was frozen while its job was taken over cannot write, even as its owner again.

    If this fails: a machine that wakes up stores or ends a job that another has done since.
    """
    async with opened(tmp_path / "stack") as stack:
        vector_db = await stack.vector_db("db")
    state = State(tmp_path, state_url)
    table, one = JobQueue(state, lambda: 1e9), Principal("", role=Role.ADMIN)
    await table.add([Submission(of_text("a", "a"), vector_db, "", one)], None, same_origin=False)
    frozen = await table.claim("owner")
    assert frozen is not None
    assert await table.take_over("owner") == 1
    again = await table.claim("owner")
    assert again is not None
    for work in (
        lambda: table.report("owner", [Step(frozen, Progress())], storing=True),
        lambda: table.complete("owner", [Step(frozen, Progress())]),
        lambda: table.fail(frozen, "owner", "server_error", "late"),
        lambda: table.postpone(frozen, "owner", "late", 0),
    ):
        with pytest.raises(NoLongerOurs):
            await work()
    await table.complete("owner", [Step(again, Progress())])
    await state.close()


@pytest.mark.parametrize("lost", ["claim", "complete"])
async def test_a_claim_that_never_arrives_is_repeated(
    tmp_path: Path, embedder: Watched, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Jobs that a worker claimed in a write without an answer are done, by this worker too.

    If this fails: a connection that breaks after the commit leaves jobs that run until the process
    ends, because it is alive and does not know that it has them.
    """
    write, left = getattr(JobQueue, lost), [Unavailable("The connection is lost.")]

    async def lose_one(*given: Any, **more: Any) -> Any:
        answer = await write(*given, **more)
        if answer and left:
            raise left.pop()
        return answer

    monkeypatch.setattr(JobQueue, lost, lose_one)
    embedder.gate.clear()
    async with opened(tmp_path, ingestion={"workers": 1}) as stack:
        jobs = await stack.ingestion.submit([of_text("a", "Hay.")])
        await until_running(stack, jobs[0])
        jobs += await stack.ingestion.submit([of_text("b", "Grass."), of_text("c", "Corn.")])
        embedder.gate.set()
        async with asyncio.timeout(60):
            ended = await finished(stack, jobs)
        assert not left
        assert {job.status for job in ended} == {JobStatus.COMPLETED}
        assert await stored(stack) == {"a": ["Hay."], "b": ["Grass."], "c": ["Corn."]}


async def test_a_lease_expires_by_the_clock_of_the_observer(tmp_path: Path, state_url: str) -> None:
    """A worker without a beat for the length of a lease is dead, whatever its clock says.

    If this fails: two machines with different clocks take each other's work, or none does.
    """
    now = [0.0]
    state = State(tmp_path, state_url)
    worker, observer = Leases(state, lambda: 1e6), Leases(state, lambda: now[0])
    assert not worker.is_current("w")
    await worker.renew("w")
    assert worker.is_current("w")
    assert await observer.expired({"w", "unknown"}) == set()
    now[0] = LEASE_SECONDS - 1
    await worker.renew("w")
    assert await observer.expired({"w", "unknown"}) == set()
    now[0] = LEASE_SECONDS
    assert await observer.expired({"w", "unknown"}) == {"unknown"}
    now[0] = 2 * LEASE_SECONDS - 1
    assert await observer.expired({"w"}) == {"w"}
    await observer.end("w")
    await state.close()


async def test_what_is_done_together(tmp_path: Path, state_url: str) -> None:
    """Short texts for one vector DB by one principal, in one size, are; all others are alone.

    If this fails: a document is stored with the rights, the sizes or in the vector DB of another,
    waits behind a long one or a slow address, or fails with one that ends its process.
    """
    async with opened(tmp_path / "stack") as stack:
        db = await stack.vector_db("db")
    state = State(tmp_path, state_url)
    table = JobQueue(state, lambda: 1e9)
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
    for owner in ("dead", "gone"):  # a and b
        assert await table.claim(owner) is not None
        assert await table.take_over(owner) == 1
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
    await state.close()


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
