"""Copying in steps: it can be taken up after a break, and catches up with a source that changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.errors import Conflict, NotFound, Unavailable
from corral.api.vector_dbs import VectorDBRegistration
from corral.providers.copying.copy import CopyReport, copy_batch, copy_vector_db, verify_copy
from corral.providers.stack import copy_steps
from corral.providers.stack.copy_steps import CopyStep, batch_size, copy_step
from corral.providers.stack.stack import Stack

from ..vector_io.engines import engine_of
from .copy_stack import DIMENSION, RECORD, assert_equal, filled, run, stored


async def steps_of_a_copy(stack: Stack, limit: int) -> list[CopyStep]:
    """Copy `source` to `target` in steps, and return them."""
    steps: list[CopyStep] = []
    while not steps or not steps[-1].done:
        after = steps[-1].last_id if steps else ""
        where = ("source", "target")
        steps.append(
            await copy_batch(stack, *where, provider_id="memory", after=after, limit=limit)
        )
    return steps


async def test_steps_are_as_large_as_asked(tmp_path: Path) -> None:
    """Each says how far it is, the last one is short; their sum is the whole."""

    async def work(stack: Stack) -> None:
        await filled(stack)
        steps = await steps_of_a_copy(stack, 15)
        assert [step.seen for step in steps] == [15, 15, 10]
        assert [step.done for step in steps] == [False, False, True]
        assert {step.total for step in steps} == {40}

    await run(tmp_path, work)


def test_the_size_of_a_step_is_bounded() -> None:
    """A fiftieth of all, 500 to 10,000, so that there are 50 steps up to half a million."""
    assert [batch_size(n) for n in (0, 30_000, 500_000, 10**8)] == [500, 600, 10_000, 10_000]


async def listed(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, vector_db_id: str = "source"
) -> list[str]:
    """Return a list that will hold `after` of each time that the source lists its ids."""
    source = engine_of(await stack.index(vector_db_id))
    list_ids, asked = source.chunk_ids, list[str]()

    async def counted(after: str, limit: int) -> Sequence[str]:
        asked.append(after)
        ids: Sequence[str] = await list_ids(after, limit)
        return ids

    monkeypatch.setattr(source, "chunk_ids", counted)
    return asked


async def test_ids_are_not_listed_for_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source lists its ids once for all steps of a copy, and once for its verification.

    If this fails: engines that cannot order ids read all of them for every step.
    """

    async def work(stack: Stack) -> None:
        await filled(stack)
        asked = await listed(stack, monkeypatch)
        assert len(await steps_of_a_copy(stack, 3)) == 14
        assert len(asked) == 1
        await verify_copy(stack, "source", "target")
        assert len(asked) == 2
        await copy_vector_db(stack, "source", "target")
        assert len(asked) == 4  # a new copy does not trust an old list

    await run(tmp_path, work)


async def test_long_lists_of_ids_come_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the ids are more than one list holds, steps are as large as ever and miss nothing."""

    async def work(stack: Stack) -> None:
        await filled(stack)
        asked = await listed(stack, monkeypatch)
        await stack.register(
            VectorDBRegistration(
                vector_db_id="target", embedding_model="hashing", provider_id="memory"
            )
        )
        source, target = await stack.index("source"), await stack.index("target")
        steps: list[CopyStep] = []
        while not steps or not steps[-1].done:
            after = steps[-1].last_id if steps else ""
            steps.append(await copy_step(source, target, after, 5, max_ids=12))
        assert [step.seen for step in steps] == [5] * 8 + [0]
        assert asked == ["", *(steps[n].last_id for n in (1, 3, 5))]
        assert_equal(await stored(stack, "target"), await stored(stack, "source"))

    await run(tmp_path, work)


async def test_no_more_than_four_lists_of_ids_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies that were begun and left hold memory for four sources at most, a finished one none."""
    # A list that another test left is collected at any time, so it must not be counted.
    monkeypatch.setattr(copy_steps, "_lists", WeakKeyDictionary())

    async def work(stack: Stack) -> None:
        await filled(stack)
        for n in range(6):
            here = "source" if n == 0 else f"copy {n - 1}"
            await copy_vector_db(stack, here, f"copy {n}", provider_id="memory")
            assert not copy_steps._lists
        for n in range(6):
            await copy_batch(stack, f"copy {n}", "source", limit=5)
        assert len(copy_steps._lists) == 4
        assert set(copy_steps._lists) == {await stack.index(f"copy {n}") for n in range(2, 6)}

    await run(tmp_path, work)


async def test_a_copy_that_broke_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was copied stays; started again, in a new process too, only the rest is written."""

    async def breaks(stack: Stack) -> None:
        await filled(stack)
        await copy_batch(stack, "source", "target", provider_id="chroma", limit=10)
        index = await stack.index("target")
        assert isinstance(index, EngineIndex)
        target = index.engine
        write, writes = target.add, 0

        async def fail(*arguments: Any) -> None:
            nonlocal writes
            writes += 1
            if writes == 2:
                raise Unavailable("the backend is away")
            await write(*arguments)

        monkeypatch.setattr(target, "add", fail)
        with pytest.raises(Unavailable):
            await copy_vector_db(stack, "source", "target", batch=10)

    await run(tmp_path, breaks)

    async def again(stack: Stack) -> None:
        assert await (await stack.index("target")).count() == 20
        report: CopyReport = await copy_vector_db(stack, "source", "target", batch=15)
        assert (report.seen, report.copied) == (40, 20)
        assert_equal(await stored(stack, "target"), await stored(stack, "source"))
        report = await copy_vector_db(stack, "source", "target")
        assert (report.seen, report.copied) == (40, 0)

    await run(tmp_path, again)


async def test_a_copy_can_begin_after_an_id(tmp_path: Path) -> None:
    """With the last id of a step the next one begins, and nothing before it is looked at."""

    async def work(stack: Stack) -> None:
        await filled(stack)
        first = await copy_batch(stack, "source", "target", provider_id="memory", limit=25)
        rest = await copy_batch(stack, "source", "target", after=first.last_id, limit=25)
        assert (first.copied, rest.seen, rest.copied) == (25, 15, 15)

    await run(tmp_path, work)


async def test_a_target_that_was_deleted_is_not_made_again_in_between(tmp_path: Path) -> None:
    """Only the first step registers: the rest alone would be no copy."""

    async def work(stack: Stack) -> None:
        await filled(stack)
        first = await copy_batch(stack, "source", "target", provider_id="memory", limit=25)
        await stack.unregister("target")
        with pytest.raises(NotFound, match="target"):
            await copy_batch(stack, "source", "target", after=first.last_id)

    await run(tmp_path, work)


async def test_a_source_that_is_written_to_is_noticed_and_can_be_caught_up(tmp_path: Path) -> None:
    """Behind the copy, an added chunk is missing and a changed one old, until it is run again."""

    async def work(stack: Stack) -> None:
        await filled(stack)
        source = await stack.index("source")
        first = await copy_batch(stack, "source", "target", provider_id="memory", limit=25)
        row = [[1.0] * DIMENSION] * 2
        ahead, behind = Chunk(chunk_id="zz", content="new"), Chunk(chunk_id="B", content="new")
        await source.add_chunks([ahead, behind], row)
        await copy_batch(stack, "source", "target", after=first.last_id)
        with pytest.raises(Conflict, match=r"has 42 chunks.* 41\..*lacks 1 chunks.*'B'") as raised:
            await verify_copy(stack, "source", "target")
        assert "copy again" in raised.value.hint
        changed = Chunk(chunk_id="A", content="other words", metadata={"n": 2})
        await source.add_chunks([changed], row[:1])
        report = await copy_vector_db(stack, "source", "target")
        assert report.copied == 2
        assert_equal(await stored(stack, "target"), await stored(stack, "source"))

    await run(tmp_path, work)


async def test_an_exchange_ahead_is_noticed_and_can_be_caught_up(tmp_path: Path) -> None:
    """A chunk in the place of a deleted one does not change their number: the verification tells.

    What was deleted ahead of the copy is not copied, though its id was on the list.
    """

    async def work(stack: Stack) -> None:
        await filled(stack)
        source = await stack.index("source")
        first = await copy_batch(stack, "source", "target", provider_id="memory", limit=25)
        await source.delete_chunks(["c0039"])
        await source.add_chunks([Chunk(chunk_id="zz", content="new")], [[1.0] * DIMENSION])
        step = await copy_batch(stack, "source", "target", after=first.last_id, limit=25)
        assert step.done
        with pytest.raises(Conflict, match=r"The target lacks 1 chunks, the first 'zz'"):
            await verify_copy(stack, "source", "target")
        assert (await copy_vector_db(stack, "source", "target")).copied == 1
        assert_equal(await stored(stack, "target"), await stored(stack, "source"))

    await run(tmp_path, work)


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"document_id": "d1", "odd": 1.0}},
        {"metadata": {"document_id": "d1", "odd": True}},
        {"metadata": {}},
        {"content": "something else"},
        {"chunk_metadata": RECORD},
    ],
    ids=["float", "boolean", "no metadata", "text", "record"],
)
async def test_what_differs_is_written_again(tmp_path: Path, change: dict[str, Any]) -> None:
    """A chunk that is another in the target is put right, by its text as by its metadata's kinds.

    If this fails: 1, 1.0 and true are taken for equal.
    """

    async def work(stack: Stack) -> None:
        await filled(stack)
        await copy_vector_db(stack, "source", "target", provider_id="memory")
        target = await stack.index("target")
        [old] = await target.get_chunks(["c0009"], include_embeddings=True)
        await target.add_chunks([old.model_copy(update=change)])
        assert (await copy_vector_db(stack, "source", "target")).copied == 1
        assert_equal(await stored(stack, "target"), await stored(stack, "source"))

    await run(tmp_path, work)
