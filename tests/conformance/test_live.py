"""The suite on a live provider: scratch names, restarts by a second instance, nothing left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from toy_engine import CAPABILITIES, ToyEngine

from corral.api.engine_index import EngineIndex
from corral.api.errors import NotFound
from corral.api.provider import Health, VectorIOProvider
from corral.api.testing.indexes import Indexes
from corral.api.testing.live import LiveConformance
from corral.api.vector_dbs import VectorDB


class ToyProvider(VectorIOProvider):
    """Opens toy indexes in a folder, and notes what is asked of it."""

    def __init__(self, folder: Path, notes: list[str]) -> None:
        super().__init__("toy")
        self._folder, self._notes = folder, notes
        notes.append("started")

    async def open_index(self, vector_db: VectorDB, *, create: bool = False) -> EngineIndex:
        """Make or open the index."""
        index = EngineIndex(ToyEngine(vector_db, self._folder))
        if not create and await index.count() == 0:
            raise NotFound("gone")
        self._notes.append("made" if create else "opened")
        return index

    async def health(self) -> Health:
        """Return that it can serve."""
        return Health("OK")

    async def close(self) -> None:
        """Note it."""
        self._notes.append("closed")


class Live(LiveConformance):
    """Not collected: its name does not begin with Test."""

    capabilities = CAPABILITIES
    folder: Path
    notes: list[str]

    def provider(self) -> VectorIOProvider:
        """Return a new provider on the folder of the test."""
        return ToyProvider(self.folder, self.notes)


@pytest.fixture
def live(tmp_path: Path) -> Live:
    """A suite on the toy provider."""
    suite = Live()
    suite.folder, suite.notes = tmp_path, []
    return suite


def test_a_restart_asks_a_second_instance(live: Live, tmp_path: Path) -> None:
    """The first one is closed; the second opens what is stored, and makes only what was dropped."""
    with asyncio.Runner() as runner:
        indexes = Indexes(live, tmp_path, runner)
        index = indexes.open()
        index.add_texts({"a": "zebra"})
        index = indexes.restart(index)
        assert live.notes == ["started", "made", "closed", "started", "opened"]
        assert index.count() == 1
        indexes.drop(index)
        live.notes.clear()
        assert indexes.recreate(index).count() == 0
        assert live.notes == ["closed", "started", "made"]
        indexes.drop_all()
    assert live.notes[-1] == "closed"


def test_names_are_nobody_elses(live: Live, tmp_path: Path) -> None:
    """Every id begins at random and keeps its own end; two tests share no name.

    If this fails: a provider that confuses ids could drop what its users have stored.
    """
    other = Live()
    with asyncio.Runner() as runner:
        names = ["db", "DB", "../db", "x" * 255]
        indexes = Indexes(live, tmp_path, runner)
        opened = [indexes.open(name).vector_db for name in names]
        again = [other.registration(one.model_copy(update={"identifier": n})).identifier
                 for one, n in zip(opened, names, strict=True)]  # fmt: skip
        indexes.drop_all()
    for one, name in list(zip(opened, names, strict=True))[:3]:
        assert one.identifier.startswith("conformance-")
        assert one.identifier.endswith(f"-{name}")
        assert one.provider_resource_id == one.identifier
        assert one.identifier not in again
    assert opened[3].identifier == names[3]
    assert len({one.created_at for one in opened}) == 1
    assert opened[0].created_at != 1.0


def test_everything_is_removed_though_a_removal_fails(live: Live, tmp_path: Path) -> None:
    """Where one index cannot be deleted, the others are, and the failure is reported."""
    with asyncio.Runner() as runner:
        indexes = Indexes(live, tmp_path, runner)
        handles = [indexes.open(name) for name in ("one", "two", "three")]
        for handle in handles:
            handle.add_texts({"a": "zebra"})

        async def fail() -> None:
            raise OSError("disk")

        handles[1].index.delete = fail  # type: ignore[method-assign]
        with pytest.raises(OSError, match="disk"):
            indexes.drop_all()
        left = [ToyEngine(handle.vector_db, tmp_path).count() for handle in handles]
        assert [runner.run(count) for count in left] == [0, 1, 0]
    assert live.notes[-1] == "closed"
