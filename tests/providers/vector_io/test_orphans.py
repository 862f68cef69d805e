"""Data that no registration holds is found in every engine of this process, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from corral.api.provider import VectorIOProvider
from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.kit.names import stored_name, strays

from .inline_backends import MAKERS, vector_db
from .installation_checks import check_installations
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


async def nothing(_: str) -> None:
    """Delete nothing."""


async def test_names_of_another_form_are_never_strays() -> None:
    """The prefix and 40 hex digits, or an installation and a hash; else it is someone else's."""
    old, digits = "corral-" + "a" * 40, "b" * 40
    new = f"corral-{'c' * 32}_{'z' * 14}"
    others = [digits, "corral-" + "a" * 39, "corral-" + "g" * 40, f"x{old}", f"{old}x", "corral-"]
    others += [new[:-1], f"{new}x", new.replace("_", "-"), new.replace("z", "8"), new.upper()]
    held = vector_db()

    async def found(*vector_dbs: VectorDB) -> list[tuple[str, str]]:
        names = [new, old, *others]
        answer = registered(*vector_dbs)
        orphans = await strays(names, answer, nothing, lambda _: old, "corral-")
        return [(orphan.name, orphan.installation) for orphan in orphans]

    assert await found() == [(old, ""), (new, "c" * 32)]
    assert await found(held) == [(new, "c" * 32)]


def test_names_fit_into_every_engine() -> None:
    """A name is at most 54 characters with PostgreSQL's prefix, and no other installation's.

    If this fails: PostgreSQL cuts the names of two tables to the same 63 characters.
    """
    mine, other = (vector_db(installation=digit * 32) for digit in "ab")
    assert len({stored_name(vector_db()), stored_name(mine), stored_name(other)}) == 3
    assert len(stored_name(mine, "corral_") + "_new_hnsw") <= 63
    with pytest.raises(ValidationError):
        vector_db(installation="../" * 8)


@pytest.mark.parametrize("backend", PERSISTENT)
async def test_two_installations_share_a_folder(tmp_path: Path, backend: str) -> None:
    """What one made is listed with its id for the other, and deleted only by that id.

    If this fails: `corral dbs prune` of one installation deletes the vector DBs of another.
    """
    config = {"folder": str(tmp_path / "shared")}
    await check_installations(tmp_path, f"inline::{backend}", config)
