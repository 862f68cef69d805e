"""Stored responses and conversations: their chains, their owners, their time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from corral.api.errors import Conflict, NotFound
from corral.api.principal import Principal
from corral.providers.conversations.table import LOCK_SECONDS, ConversationTable
from corral.providers.state.state import State

ANN = Principal("farm", "ann", key_id="k1")
DAY = 86_400.0


class Clock:
    """A clock that is set by hand."""

    now = 1_000_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The clock of the table."""
    return Clock()


@pytest.fixture
async def table(tmp_path: Path, clock: Clock, state_url: str) -> AsyncIterator[ConversationTable]:
    """An empty table, in each database."""
    state = State(tmp_path, state_url)
    yield ConversationTable(state, clock)
    await state.close()


def item(name: str) -> dict[str, Any]:
    """Return an item."""
    return {"id": name, "type": "message", "content": name}


def response(name: str, clock: Clock, previous: str | None = None) -> dict[str, Any]:
    """Return a response with one item."""
    return {
        "id": name,
        "created_at": int(clock()),
        "previous_response_id": previous,
        "output": [item(f"{name}-out")],
    }


async def test_a_chain_has_all_items_in_order(table: ConversationTable, clock: Clock) -> None:
    """The context of a response is input and output of each, the oldest first.

    If this fails: a model reads the turns of a conversation in another order.
    """
    mine = table.of(ANN)
    for name, previous in (("r1", None), ("r2", "r1"), ("r3", "r2"), ("side", "r1")):
        await mine.save(response(name, clock, previous), [item(f"{name}-in")])
    names = [each["id"] for each in await mine.context("r3")]
    assert names == ["r1-in", "r1-out", "r2-in", "r2-out", "r3-in", "r3-out"]
    assert [each["id"] for each in await mine.context("side")][2:] == ["side-in", "side-out"]
    assert (await mine.response("r2"))["output"] == [item("r2-out")]
    assert await mine.inputs("r2") == [item("r2-in")]
    await mine.delete_response("r1")
    for name in ("r1", "r3"):
        with pytest.raises(NotFound):
            await mine.context(name)


@pytest.mark.parametrize(
    "other",
    [
        Principal("farm", "ann", key_id="k2"),
        Principal("farm", "bob"),
        Principal("farm"),
        Principal("zoo", "ann", key_id="k1"),
        Principal("", "ann", key_id="k1"),
    ],
)
async def test_what_is_of_another_caller_does_not_exist(
    table: ConversationTable, clock: Clock, other: Principal
) -> None:
    """Neither reading nor writing reaches the rows of another key, user or tenant."""
    mine, theirs = table.of(ANN), table.of(other)
    await mine.save(response("r1", clock), [item("in")])
    made = await mine.create({}, [item("a")])
    name = made.conversation_id
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: theirs.response("r1"),
        lambda: theirs.inputs("r1"),
        lambda: theirs.context("r1"),
        lambda: theirs.item("in"),
        lambda: theirs.delete_response("r1"),
        lambda: theirs.get(name),
        lambda: theirs.items(name),
        lambda: theirs.add(name, [item("b")]),
        lambda: theirs.update(name, {"x": "y"}),
        lambda: theirs.remove(name, "a"),
        lambda: theirs.lock(name, "a"),
        lambda: theirs.delete(name),
        lambda: theirs.save(response("r2", clock), [], name),
    ]
    for call in calls:
        with pytest.raises(NotFound):
            await call()
    await theirs.save(response("r3", clock, "r1"), [])
    with pytest.raises(NotFound):
        await theirs.context("r3")
    assert await mine.items(name) == [item("a")]
    assert (await mine.get(name)).metadata == {}
    assert await mine.item("in") == item("in")


async def test_what_fails_changes_nothing(table: ConversationTable, clock: Clock) -> None:
    """A response of a conversation that was deleted in between is not stored either."""
    mine = table.of(ANN)
    made = await mine.create({}, [])
    await mine.delete(made.conversation_id)
    with pytest.raises(NotFound):
        await mine.save(response("r1", clock), [item("in")], made.conversation_id)
    with pytest.raises(NotFound):
        await mine.response("r1")


async def test_time_takes_what_is_not_used(table: ConversationTable, clock: Clock) -> None:
    """After the retention responses go, and conversations that have not changed for as long."""
    mine = table.of(ANN)
    await mine.save(response("old", clock), [item("in")])
    quiet, busy = await mine.create({}, [item("a")]), await mine.create({}, [])
    clock.now += 5 * DAY
    await mine.add(busy.conversation_id, [item("b")])
    await mine.save(response("new", clock), [])
    await table.expire(4 * DAY)
    for call in (mine.response("old"), mine.item("in"), mine.get(quiet.conversation_id)):
        with pytest.raises(NotFound):
            await call
    assert (await mine.response("new"))["id"] == "new"
    assert await mine.items(busy.conversation_id) == [item("b")]


async def test_a_lock_ends_with_its_answer_or_its_time(
    table: ConversationTable, clock: Clock
) -> None:
    """Saving and unlocking free a conversation; if the process was killed, time does."""
    mine = table.of(ANN)
    name = (await mine.create({}, [])).conversation_id
    await mine.lock(name, None)
    with pytest.raises(Conflict):
        await mine.lock(name, None)
    await mine.save(response("r1", clock), [item("in")], name, is_stored=False)
    with pytest.raises(Conflict):
        await mine.lock(name, None)  # read before the answer was added
    await mine.lock(name, "r1-out")
    await mine.unlock(name)
    await mine.lock(name, "r1-out")
    clock.now += LOCK_SECONDS + 1
    await mine.lock(name, "r1-out")
    assert [each["id"] for each in await mine.items(name)] == ["in", "r1-out"]
