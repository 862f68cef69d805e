"""Data that no registration holds is found in every engine of this process, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.api.provider import VectorIOProvider
from corral.providers.vector_io._shared.names import strays

from .inline_backends import MAKERS, vector_db
from .orphan_checks import check_orphans, named, registered

PERSISTENT = sorted(set(MAKERS) - {"memory"})


@pytest.mark.parametrize("backend", PERSISTENT)
async def test_an_orphan_is_found_and_removed(tmp_path: Path, backend: str) -> None:
    """What was made and never registered has a name, and goes on request; the rest stays.

    If this fails: a process that is killed between making and registering leaves data for ever.
    """

    provider = MAKERS[backend](tmp_path)
    assert await provider.orphans(registered()) == []
    await check_orphans(provider)
    await provider.close()


def leave_something_in(home: Path) -> list[Path]:
    """Put files and a folder beside the provider's own, and return where."""
    folders = [folder for folder in home.glob("*/*") if folder.is_dir()]
    for folder in folders:
        (folder / "notes.db").write_text("theirs")
        (folder / "corral-notes.db").write_text("theirs")
        (folder / "theirs").mkdir()
    return folders


@pytest.mark.parametrize("backend", PERSISTENT)
async def test_what_is_not_corrals_is_left_alone(tmp_path: Path, backend: str) -> None:
    """Files and folders of someone else beside Corral's are no orphans."""

    async def scenario(provider: VectorIOProvider) -> None:
        index = await provider.open_index(named("one"), create=True)
        await index.close()
        theirs = leave_something_in(tmp_path)
        [orphan] = await provider.orphans(registered())
        await orphan.drop()
        assert all((folder / "notes.db").read_text() == "theirs" for folder in theirs)
        assert all((folder / "theirs").is_dir() for folder in theirs)
        await provider.close()

    await scenario(MAKERS[backend](tmp_path))


async def test_names_of_another_form_are_never_strays() -> None:
    """The prefix and 40 hex digits, whole: anything else is someone else's."""
    mine, digits = "corral-" + "a" * 40, "b" * 40
    others = [digits, "corral-" + "a" * 39, "corral-" + "g" * 40, f"x{mine}", f"{mine}x", "corral-"]
    assert await strays([mine, *others], registered(), str, "corral-") == [mine]
    held = vector_db()
    assert await strays([mine], registered(held), lambda _: mine, "corral-") == []
