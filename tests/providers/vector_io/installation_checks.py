"""The rule of installations, for the test of each engine that several of them can share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from corral.api.chunks import Chunk
from corral.api.errors import Conflict, NotFound
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.base.config import RunConfig
from corral.providers.ingestion.storing import store
from corral.providers.stack.orphans import ProviderOrphans, find_orphans, remove_orphans
from corral.providers.stack.stack import Stack

MINE = ("notes", "docs")
"""Ids that both installations register."""


@asynccontextmanager
async def installation(
    home: Path, provider_type: str, config: dict[str, Any]
) -> AsyncIterator[Stack]:
    """Open the data folder of one installation on an engine, and close it."""
    home.mkdir(exist_ok=True)
    engine = {"provider_id": "engine", "provider_type": provider_type, "config": config}
    hashing = {"provider_id": "hashing", "provider_type": "inline::hashing"}
    settings = {
        "providers": {
            "vector_io": [engine],
            "embedding": [{**hashing, "config": {"dimension": 16}}],
        },
        "default_embedding_model": "hashing",
    }
    stack = Stack(RunConfig.model_validate(settings), home)
    try:
        yield stack
    finally:
        await stack.close()


async def register(stack: Stack, *names: str) -> None:
    """Register vector DBs, each with one chunk that tells whose it is."""
    for name in names:
        body = {"vector_db_id": name, "embedding_model": "hashing"}
        await stack.register(VectorDBRegistration.model_validate(body))
        await store(stack, name, [Chunk(chunk_id="c", content=await content(stack, name))])


async def content(stack: Stack, name: str) -> str:
    """Return the text of the one chunk of a vector DB."""
    return f"{name} of {await stack.installation()}"


async def check_whole(stack: Stack, *names: str) -> None:
    """Raise AssertionError unless each vector DB holds its own chunk and no other."""
    for name in names:
        index = await stack.index(name)
        assert await index.count() == 1
        [chunk] = await index.get_chunks(["c"])
        assert chunk.content == await content(stack, name)


async def look(stack: Stack) -> ProviderOrphans:
    """Return what the engine holds for no registration."""
    [found] = await find_orphans(stack)
    assert found.failure == ""
    return found


def names_of(found: ProviderOrphans, whose: str) -> list[tuple[str, str]]:
    """Return the data of one installation, as `remove_orphans` takes it."""
    return [("engine", one.name) for one in found.others if one.installation == whose]


async def check_installations(home: Path, provider_type: str, config: dict[str, Any]) -> None:
    """Let two installations take turns on one engine, as two processes of a locked folder must.

    The second sees the vector DBs of the first as the first's, has ids of its own, and deletes them
    only by the first's id.

    Raises:
        AssertionError: The second loses or hides something of the first, or deletes unasked.
    """
    first, second = home / "first", home / "second"
    async with installation(first, provider_type, config) as stack:
        owner = await stack.installation()
        before = await look(stack)
        await register(stack, *MINE)
        assert [one.name for one in (await look(stack)).orphans] == []

    async with installation(second, provider_type, config) as stack:
        assert await stack.installation() != owner
        found = await look(stack)
        theirs = names_of(found, owner)
        assert (found.orphans, len(theirs)) == ([], len(MINE))
        for whose in (None, "unknown", "f" * 32):
            with pytest.raises(Conflict, match=owner):
                await remove_orphans(stack, theirs, whose)
        await register(stack, *MINE)
        await check_whole(stack, *MINE)
        await stack.unregister("docs")
        assert names_of(await look(stack), owner) == theirs

    async with installation(first, provider_type, config) as stack:
        await check_whole(stack, *MINE)
        await register(stack, "late")

    async with installation(second, provider_type, config) as stack:
        found = await look(stack)
        await remove_orphans(stack, names_of(found, owner), owner)
        assert [one.name for one in (await look(stack)).others] == [o.name for o in before.others]
        await check_whole(stack, "notes")
        await stack.unregister("notes")

    async with installation(first, provider_type, config) as stack:
        for name in (*MINE, "late"):
            with pytest.raises(NotFound):
                await (await stack.index(name)).count()
            await stack.unregister(name)


async def check_pruning_beside(home: Path, provider_type: str, config: dict[str, Any]) -> None:
    """Let an installation prune again and again while another one registers, on one server.

    Raises:
        AssertionError: The other one's vector DBs are orphans at any moment, or lose something.
    """
    names = [f"db{number}" for number in range(6)]
    async with (
        installation(home / "first", provider_type, config) as first,
        installation(home / "second", provider_type, config) as second,
    ):
        registering = asyncio.create_task(register(first, *names))
        rounds = 0
        while rounds < 3 or not registering.done():
            assert (await look(second)).orphans == []
            rounds += 1
        await registering
        await check_whole(first, *names)
        for name in names:
            await first.unregister(name)
