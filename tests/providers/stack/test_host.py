"""Vector DBs of inline providers belong to one machine if several share the registrations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corral.api.chunks import Chunk
from corral.api.errors import Conflict, Elsewhere, InvalidRequest, Unavailable
from corral.api.provider import Api
from corral.api.rag import RAGDocument
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import RunConfig
from corral.providers.ingestion.jobs.jobs import Job, JobRequest
from corral.providers.ingestion.storing import store
from corral.providers.stack.host import check_shared, host_id, is_shareable
from corral.providers.stack.registry import find_spec
from corral.providers.stack.stack import Stack

INLINE = {"provider_id": "here", "provider_type": "inline::sqlite"}
REMOTE = {
    "provider_id": "far",
    "provider_type": "remote::pgvector",
    "config": {"dsn": "postgresql://ann@127.0.0.1:9/db"},
}


class SharedConfig(RunConfig):
    """A configuration whose registrations are shared, as the setting says."""

    @property
    def shares_state(self) -> bool:
        """True: the tests have one registry for all machines."""
        return True


@asynccontextmanager
async def machine(
    home: Path, *providers: dict[str, Any], config: type[RunConfig] = SharedConfig
) -> AsyncIterator[Stack]:
    """Open the registry as one of the machines that share it."""
    hashing = {"provider_id": "hashing", "provider_type": "inline::hashing"}
    settings = {
        "providers": {"vector_io": list(providers or [INLINE]), "embedding": [hashing]},
        "default_embedding_model": "hashing",
    }
    stack = Stack(config.model_validate(settings), home)
    try:
        yield stack
    finally:
        await stack.close()


def move(home: Path) -> None:
    """Let the registry be read by another machine from now on."""
    (home / "host").unlink()


def registration(**settings: Any) -> VectorDBRegistration:
    """Return a request for the vector DB `notes`."""
    return VectorDBRegistration.model_validate({"vector_db_id": "notes", **settings})


async def test_a_machine_has_one_id_for_good(tmp_path: Path) -> None:
    """All processes that ask at once get the same id, and leave no other file."""
    asked = (asyncio.to_thread(host_id, tmp_path / "home") for _ in range(8))
    assert len({*await asyncio.gather(*asked)}) == 1
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["host"]


CALLS: list[Callable[[Stack], Awaitable[object]]] = [
    lambda stack: stack.index("notes"),
    lambda stack: stack.unregister("notes"),
    lambda stack: stack.register(registration(provider_id="here")),
    lambda stack: store(stack, "notes", [Chunk(chunk_id="d", content="x")]),
]


@pytest.mark.parametrize("call", CALLS)
async def test_another_machine_refuses_and_changes_nothing(
    tmp_path: Path, call: Callable[[Stack], Awaitable[object]]
) -> None:
    """It answers with a conflict that names the host and the setting, and deletes nothing.

    If this fails: it makes an empty index of its own, and answers depend on the machine.
    """
    async with machine(tmp_path) as stack:
        made = await stack.register(registration(provider_id="here"))
        assert made.host == host_id(tmp_path)
        await store(stack, "notes", [Chunk(chunk_id="c", content="x")])
    move(tmp_path)
    async with machine(tmp_path) as stack:
        with pytest.raises(Elsewhere, match=rf"host {made.host}.*providers\.vector_io") as raised:
            await call(stack)
        assert isinstance(raised.value, Conflict)
        assert await stack.vector_dbs() == [made]
    (tmp_path / "host").write_text(made.host)
    async with machine(tmp_path) as stack:
        assert await (await stack.index("notes")).count() == 1
        await stack.unregister("notes")


async def test_a_registration_without_a_provider_takes_a_remote_one(tmp_path: Path) -> None:
    """The default is the first provider that serves all machines; there may be none."""
    async with machine(tmp_path, INLINE, REMOTE) as stack:
        with pytest.raises(Unavailable, match="far"):  # nothing listens there
            await stack.register(registration())
    async with machine(tmp_path, INLINE) as stack:
        with pytest.raises(InvalidRequest, match=r"providers\.vector_io"):
            await stack.register(registration())


def test_an_engine_without_a_shared_log_is_refused() -> None:
    """A remote engine needs transactions, or a log that the machines share.

    If this fails: a machine dies in a write, and a document stays half replaced for good.
    """
    logged = find_spec(Api.VECTOR_IO, "remote::qdrant")
    assert is_shareable(logged)
    assert not is_shareable(replace(logged, write_log=False))
    assert is_shareable(replace(logged, write_log=False, provider_type="inline::qdrant"))


@pytest.mark.parametrize(
    "engine", ["chroma", "milvus", "opensearch", "pgvector", "qdrant", "weaviate"]
)
def test_remote_engines_serve_machines_that_share_a_state(engine: str) -> None:
    """Each of them has transactions, or a log that the machines share."""
    entry = {"provider_id": "far", "provider_type": f"remote::{engine}"}
    settings = {"providers": {"vector_io": [entry]}, "state": "postgres://db/corral"}
    check_shared(RunConfig.model_validate(settings))


def test_inline_and_transactional_providers_are_accepted() -> None:
    """They work if machines share the registrations."""
    settings = {"providers": {"vector_io": [INLINE, REMOTE]}, "state": "postgres://db/corral"}
    check_shared(RunConfig.model_validate(settings))


async def test_one_machine_records_no_host(tmp_path: Path) -> None:
    """Without shared registrations there is no id, and the first provider is the default."""
    async with machine(tmp_path, INLINE, REMOTE, config=RunConfig) as stack:
        made = await stack.register(registration())
    assert (made.provider_id, made.host) == ("here", "")
    assert not (tmp_path / "host").exists()


async def changed(stack: Stack, job_id: str, condition: Callable[[Job], bool]) -> Job:
    """Wait until a condition holds for a job, and return the job."""
    while True:
        job = await stack.ingestion.job(job_id)
        if condition(job):
            return job
        await asyncio.sleep(0.05)


async def test_a_job_waits_for_a_worker_of_its_machine(tmp_path: Path) -> None:
    """Another machine does later jobs and never claims it; the machine that has the data does it.

    If this fails: a document that was attached through another replica is lost, or each replica
    takes and returns it again and again.
    """
    document = RAGDocument(document_id="d", content="Sheep graze on the hill.")
    async with machine(tmp_path) as stack:
        made = await stack.register(registration(provider_id="here"))
    move(tmp_path)
    async with machine(tmp_path) as stack:
        [job] = await stack.ingestion.submit([JobRequest("notes", document=document)])
        await stack.register(registration(vector_db_id="own", provider_id="here"))
        [own] = await stack.ingestion.submit([JobRequest("own", document=document)])
        await stack.ingestion.start()
        await changed(stack, own.job_id, lambda job: job.status == "completed")
        assert await stack.ingestion.job(job.job_id) == job
    (tmp_path / "host").write_text(made.host)
    async with machine(tmp_path) as stack:
        await stack.ingestion.start()
        await changed(stack, job.job_id, lambda job: job.status == "completed")
        assert await (await stack.index("notes")).count() == 1
