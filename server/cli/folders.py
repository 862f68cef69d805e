"""Which files of a folder are meant: hidden ones, links, globs and what git ignores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

Note = Callable[[str, str], object]
"""Called with the path of what is passed over, and why."""

IGNORED = "ignored by .gitignore"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which files of a folder go in.

    Attributes:
        include: Globs as in .gitignore, such as `docs/**/*.md`; empty takes all files.
        exclude: Globs of what stays out.
        hidden: Whether files and folders whose names begin with a dot are taken.
        ignored: Whether what .gitignore names is taken.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    ignored: bool = False


DEFAULT_SELECTION = Selection()


def walk(
    folder: Path, selection: Selection, skipped: Note, failed: Note
) -> Iterator[tuple[Path, str]]:
    """Yield the files of a folder that are meant, each with its path relative to the folder.

    Links to folders, and links that lead out of the folder, are passed over.
    """

    def unreadable(error: OSError) -> None:
        failed(str(error.filename), f"cannot be read: {error.strerror}")

    choice = _Choice(folder, selection)
    for place, subfolders, names in os.walk(folder, onerror=unreadable):
        here = Path(place)
        choice.enter(here)
        for name in list(subfolders):
            if reason := choice.refuses(here / name, folder=True):
                subfolders.remove(name)
                skipped((here / name).as_posix() + "/", reason)
        for name in filter(lambda name: choice.includes(here / name), names):
            if reason := choice.refuses(here / name):
                skipped((here / name).as_posix(), reason)
            else:
                yield here / name, (here / name).relative_to(folder).as_posix()


class _Choice:
    """Decides about the paths of one folder.

    Args:
        folder: The folder.
        selection: What of it is meant.
    """

    def __init__(self, folder: Path, selection: Selection) -> None:
        self._folder, self._root = folder, Path(os.path.realpath(folder))
        self._hidden = selection.hidden
        self._include, self._exclude = _globs(selection.include), _globs(selection.exclude)
        self._ignoring = None if selection.ignored else _Ignoring(self._root)

    def enter(self, folder: Path) -> None:
        """Read what a subfolder says."""
        if self._ignoring:
            self._ignoring.enter(self._inside(folder))

    def includes(self, path: Path) -> bool:
        """Return True if a file was asked for."""
        relative = path.relative_to(self._folder).as_posix()
        return self._include is None or self._include.match_file(relative)

    def refuses(self, path: Path, *, folder: bool = False) -> str | None:
        """Return why a path is passed over, None where it is not."""
        if path.name == ".git" or (path.name.startswith(".") and not self._hidden):
            return "hidden"
        if path.is_symlink() and folder:
            return "link to a folder"
        if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(self._root):
            return "link out of the folder"
        relative = path.relative_to(self._folder).as_posix() + "/" * folder
        if self._exclude and self._exclude.match_file(relative):
            return "excluded"
        ignored = self._ignoring and self._ignoring.ignores(self._inside(path), folder=folder)
        return IGNORED if ignored else None

    def _inside(self, path: Path) -> Path:
        """Return a path without links above it."""
        return self._root / path.relative_to(self._folder)


def _globs(patterns: Sequence[str]) -> GitIgnoreSpec | None:
    return GitIgnoreSpec.from_lines(patterns) if patterns else None


class _Ignoring:
    """The .gitignore files of a folder, of its subfolders, and of the repository that it is in.

    Args:
        root: The folder, without links in its path.
    """

    def __init__(self, root: Path) -> None:
        self._specs: dict[Path, GitIgnoreSpec] = {}
        for folder in [root, *root.parents]:
            self.enter(folder)
            if (folder / ".git").exists():
                return
        # In no repository: what lies above the folder says nothing about it.
        self._specs = {root: self._specs[root]} if root in self._specs else {}

    def enter(self, folder: Path) -> None:
        """Read the .gitignore of a folder, if it has one."""
        file = folder / ".gitignore"
        if folder not in self._specs and file.is_file():
            lines = file.read_text("utf-8", "replace").splitlines()
            self._specs[folder] = GitIgnoreSpec.from_lines(lines)

    def ignores(self, path: Path, *, folder: bool = False) -> bool:
        """Return True if git ignores a path; the .gitignore nearest to it decides."""
        for above in path.parents:
            spec = self._specs.get(above)
            if spec is not None:
                relative = path.relative_to(above).as_posix() + ("/" if folder else "")
                said = spec.check_file(relative).include
                if said is not None:
                    return said
        return False
