"""The id of an installation: made once, kept by a copy, and written into what it makes."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.providers.state.state import State

from .test_tenants import opened, registration


async def test_an_installation_has_one_id_for_good(tmp_path: Path, state_url: str) -> None:
    """All that open a new state at once read the same id, later ones and copies too.

    If this fails: an installation takes its own vector DBs for another's.
    """
    made = [State(tmp_path / "a", state_url) for _ in range(8)]
    await asyncio.gather(*(asyncio.to_thread(state.open) for state in made))
    [installation] = {await state.installation() for state in made}
    for state in made:
        await state.close()
    assert uuid.UUID(installation).hex == installation
    assert uuid.UUID(installation).version == 4
    assert State(tmp_path / "a", state_url).recorded_installation() == installation


@pytest.mark.sqlite_state("its file is copied with the folder")
async def test_a_copy_of_a_data_folder_is_the_same_installation(tmp_path: Path) -> None:
    """A copied folder keeps its id; another folder has another, and an empty folder none."""
    async with opened(tmp_path / "a") as one:
        installation = await one[""].installation()
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    assert State(tmp_path / "copy").recorded_installation() == installation
    assert State(tmp_path / "none").recorded_installation() == ""
    async with opened(tmp_path / "a") as one, opened(tmp_path / "b") as other:
        assert await one[""].installation() == installation
        assert await other[""].installation() != installation


async def test_what_another_process_creates_is_no_orphan(tmp_path: Path) -> None:
    """While one process fills a new vector DB, another of the same data folder sees no orphan.

    If this fails: `corral dbs prune`, or another worker of a server, deletes a vector DB that is
    being imported.
    """
    filling, go_on = asyncio.Event(), asyncio.Event()

    async def fill(index: EmbeddingIndex) -> None:
        await index.add_chunks([Chunk(content="x", chunk_id="c")], [[1.0] * 16])
        filling.set()
        await go_on.wait()

    async with AsyncExitStack() as stacks:
        one, other = [(await stacks.enter_async_context(opened(tmp_path)))[""] for _ in range(2)]
        registering = asyncio.create_task(one.register(registration(), fill=fill))
        await filling.wait()
        assert await other.orphans("engine") == await one.orphans("engine") == []
        go_on.set()
        await registering
        assert await other.orphans("engine") == []
        assert await (await other.index("docs")).count() == 1
