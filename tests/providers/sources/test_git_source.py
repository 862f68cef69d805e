"""A git repository as a source: branches, folders, and what a hostile repository may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corral.api.errors import InvalidRequest, Unavailable
from corral.api.source import Source
from corral.providers.sources.registry import build_source

from .places import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Make a repository with two branches."""
    made = Repository(tmp_path)
    made.put("docs/a.md", "# A")
    made.put("src/b.py", "b = 1")
    made.git("checkout", "--quiet", "-b", "next")
    made.put("docs/c.md", "# C")
    made.git("checkout", "--quiet", "main")
    return made


def source(repository: Repository, home: Path, **settings: Any) -> Source:
    """Return the source of a repository."""
    return build_source({**repository.settings, **settings}, "sync", home)


async def keys(source: Source) -> list[str]:
    """Return the keys of a source."""
    return sorted(item.key for item in (await source.listing()).items)


async def test_a_branch_and_a_folder(repository: Repository, tmp_path: Path) -> None:
    """A branch and a folder choose the files; without them, all of the repository's own branch."""
    assert await keys(source(repository, tmp_path)) == ["docs/a.md", "src/b.py"]
    assert await keys(source(repository, tmp_path, folder="docs")) == ["a.md"]
    assert await keys(source(repository, tmp_path, branch="next", folder="docs/")) == [
        "a.md",
        "c.md",
    ]
    assert await keys(source(repository, tmp_path, include=["*.py"])) == ["src/b.py"]
    for wrong in ({"branch": "nowhere"}, {"folder": "nowhere"}):
        with pytest.raises(Unavailable, match="failed"):
            await keys(source(repository, tmp_path, **wrong))


async def test_links_and_secrets_are_not_followed(repository: Repository, tmp_path: Path) -> None:
    """A link is no document, wherever it leads; keys and hidden files are skipped; LFS is refused.

    If this fails: a repository can read files of the server.
    """
    (tmp_path / "outside.txt").write_text("secret")
    (repository.root / "link.txt").symlink_to(tmp_path / "outside.txt")
    repository.put("id_rsa", "key")
    repository.put(".github/workflow.yml", "x: 1")
    repository.put("big.bin.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    made = source(repository, tmp_path)
    listing = await made.listing()
    assert sorted(item.key for item in listing.items) == ["big.bin.txt", "docs/a.md", "src/b.py"]
    assert {key for key, _ in listing.skipped} == {"id_rsa", ".github/workflow.yml"}
    [pointer] = [item for item in listing.items if item.key == "big.bin.txt"]
    with pytest.raises(InvalidRequest, match="Git LFS"):
        await made.read(pointer, None)
