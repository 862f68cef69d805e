"""Vector DBs that are being created: listed while their process lives, on any machine."""

from __future__ import annotations

from pathlib import Path

from corral.api.vector_dbs import VectorDB
from corral.providers.stack.making import FORGET_SECONDS, Making
from corral.providers.state.state import State

NOTES = VectorDB(
    identifier="notes",
    provider_id="sqlite",
    provider_resource_id="notes",
    embedding_model="hashing",
    embedding_dimension=8,
    created_at=1.0,
)


async def names(making: Making) -> list[str]:
    """Return the identifiers of the vector DBs that are being created."""
    return [each.identifier for each in await making.all()]


async def test_what_is_being_created_is_listed_everywhere(tmp_path: Path, state_url: str) -> None:
    """A vector DB is listed on every machine while it is created, and not after, or if it fails.

    If this fails: `corral dbs prune` on another machine deletes what an import has stored so far.
    """
    state = State(tmp_path, state_url)
    here, elsewhere = (Making(state, tmp_path / place) for place in ("here", "elsewhere"))
    async with here.of(NOTES):
        assert await names(here) == await names(elsewhere) == ["notes"]
    assert await names(here) == await names(elsewhere) == []
    assert list((tmp_path / "here").iterdir()) == []
    await state.close()


async def test_what_a_dead_process_was_creating_is_forgotten(
    tmp_path: Path, state_url: str
) -> None:
    """On its own machine at once, since its lock is free; on others when no renewal has come.

    If this fails: the data of a killed import stays for ever.
    """
    now = [1000.0]
    state = State(tmp_path, state_url)
    here, elsewhere = (
        Making(state, tmp_path / place, lambda: now[0]) for place in ("here", "elsewhere")
    )
    async with here.of(NOTES):
        assert await names(elsewhere) == ["notes"]
        now[0] += FORGET_SECONDS + 1
        assert await names(here) == ["notes"]
        assert await names(elsewhere) == []
    async with here.of(NOTES):
        (lock,) = (tmp_path / "here").glob("*.lock")
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        (tmp_path / "elsewhere" / lock.name).touch()  # a lock that no process holds
        assert await names(elsewhere) == []
    await state.close()
