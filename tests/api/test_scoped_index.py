"""A scoped index cannot be widened, dropped or closed; its writes are observed."""

from __future__ import annotations

import pytest

from corral.api.chunks import Chunk
from corral.api.engine_index import EngineIndex
from corral.api.errors import Forbidden, NotFound
from corral.api.principal import UNRESTRICTED, Principal, Role
from corral.api.writes import Write

from .scripted_engine import ScriptedEngine, candidates

ANN = Principal(user="ann", role=Role.WRITER)
BOB = Principal(user="bob", role=Role.READER)


def scoped(engine: ScriptedEngine) -> tuple[EngineIndex, EngineIndex]:
    """Return an index, and a view of it for a writer."""
    whole = EngineIndex(engine)
    return whole, whole.scoped_to(ANN)


@pytest.mark.parametrize("other", [BOB, UNRESTRICTED, Principal(role=Role.ADMIN)])
def test_a_scoped_index_is_not_scoped_again(other: Principal) -> None:
    """A view cannot become one for another principal, or for an admin.

    If this fails: code that gets one user's index can read as another user.
    """
    _, view = scoped(ScriptedEngine())
    with pytest.raises(Forbidden):
        view.scoped_to(other)


async def test_a_scoped_index_drops_and_closes_nothing() -> None:
    """Dropping needs an admin; closing and opening again are left to the owner.

    If this fails: a user of one request deletes the vector DB, or closes it under other requests.
    """
    engine = ScriptedEngine(candidates(a=1.0))
    whole, view = scoped(engine)
    with pytest.raises(Forbidden, match="role admin"):
        await view.delete()
    await view.close()
    assert await whole.count() == 1
    assert engine.asked("drop") == []
    await whole.close()
    view.reopen()
    with pytest.raises(NotFound):
        await whole.count()
    whole.reopen()
    assert [chunk.chunk_id for chunk in await view.get_chunks(["a"])] == ["a"]


class Remembering:
    """An observer that remembers writes, and hides that an index is gone if it is told to."""

    def __init__(self, *, hides: bool = False) -> None:
        self.writes: list[tuple[Write, NotFound | None]] = []
        self.hides = hides

    async def wrote(self, write: Write, lost: NotFound | None) -> None:
        self.writes.append((write, lost))
        if lost is not None and not self.hides:
            raise lost


async def test_an_observer_hears_of_writes_through_every_view() -> None:
    """Each kind of write, of the index and of its views, comes with its writer.

    If this fails: a rebuild misses writes, and they are gone when the new index takes over.
    """
    observer = Remembering()
    index = EngineIndex(ScriptedEngine()).observed_by(observer)
    chunk = Chunk(chunk_id="a", content="a", embedding=[1, 0], metadata={"document_id": "d"})
    await index.scoped_to(ANN).add_chunks([chunk])
    await index.set_acl(["a"], ["user:ann"])
    await index.change_document("d", lambda stored: stored)
    await index.delete_chunks(["a", "a"])
    assert [write.principal.user for write, _ in observer.writes] == ["ann", "", "", ""]
    assert [write.loose_ids for write, _ in observer.writes] == [["a"], ["a"], [], ["a"]]
    assert {lost for _, lost in observer.writes} == {None}


async def test_an_observer_decides_on_a_write_to_a_deleted_index() -> None:
    """It may raise the error, or have written elsewhere; without an observer the error is raised.

    If this fails: a write that comes while a rebuild exchanges the index is refused or lost.
    """
    engine = ScriptedEngine()
    index = EngineIndex(engine)
    raising, hiding = (index.observed_by(Remembering(hides=hides)) for hides in (False, True))
    await index.delete()
    for view in (index, raising):
        with pytest.raises(NotFound):
            await view.set_acl(["a"], None)
    assert await hiding.set_acl(["a"], None) == 0
    await hiding.delete_chunks(["a"])
    assert engine.asked("delete") == []
