"""Walk the files of a folder, for `corral ingest` and for the folder source."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from corral.providers.ingestion.read.excluded import excluded
from corral.providers.sources.file_names import Ignoring, globs


@dataclass(frozen=True, slots=True)
class Selection:
    """The files to take.

    Attributes:
        include: Globs as in .gitignore, such as `docs/**/*.md`; empty for all files.
        exclude: Globs of files to leave out.
        hidden: True to include files and folders with names that begin with a dot.
        no_ignore: True to include files that .gitignore excludes.
        as_text: Name patterns of files to read as plain text, whatever their suffix or content.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    no_ignore: bool = False
    as_text: tuple[str, ...] = ()

    def is_text(self, name: str) -> bool:
        """Return True if `as_text` matches a name, so the file is read as plain text."""
        return any(fnmatch(name, pattern) for pattern in self.as_text)


class NameRules:
    """Selects paths by their names alone."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._include, self._exclude = globs(selection.include), globs(selection.exclude)

    def includes(self, path: str) -> bool:
        """Return True if `include` matches a file; the path is in POSIX form."""
        return self._include is None or self._include.match_file(path)

    def refuses(self, path: str, *, folder: bool = False) -> str | None:
        """Return the reason to skip a path; None to include it.

        Only the last part of the path is checked for a dot; check each folder above it separately.
        """
        name = PurePosixPath(path).name
        if name == ".git":
            return "hidden"
        if name.startswith(".") and not self._selection.hidden:
            return "hidden; --hidden takes it"
        if self._exclude and self._exclude.match_file(path + "/" * folder):
            return "excluded"
        kind = None if folder or self._selection.is_text(name) else excluded(name)
        return f"{kind}; --as-text NAME takes it" if kind else None

    def refuses_below(self, path: str) -> str | None:
        """Return the reason to skip a file or a folder above it; None to take the file."""
        parts = PurePosixPath(path).parts
        for end in range(1, len(parts)):
            if reason := self.refuses("/".join(parts[:end]), folder=True):
                return reason
        return self.refuses(path)


def walk(
    folder: Path,
    selection: Selection,
    skipped: Callable[[str, str], None],
    unreadable: Callable[[str, str], None],
) -> Iterator[tuple[Path, str]]:
    """Yield the selected files of a folder, each with its path relative to the folder.

    Links to folders and links that lead out of the folder are skipped.

    Args:
        skipped: Called with the path of each file or folder to skip, and the reason.
        unreadable: Called with the path of a folder that cannot be read, and the reason.
    """

    def failed(error: OSError) -> None:
        unreadable(str(error.filename), error.strerror or type(error).__name__)

    choice = _Choice(folder, selection)
    for place, subfolders, names in os.walk(folder, onerror=failed):
        here = Path(place)
        choice.enter(here)
        for name in list(subfolders):
            if reason := choice.refuses(here / name, folder=True):
                subfolders.remove(name)
                skipped((here / name).as_posix() + "/", reason)
        for name in filter(lambda name: choice.includes(here / name), names):
            document_id = (here / name).relative_to(folder).as_posix()
            if reason := choice.refuses(here / name):
                skipped((here / name).as_posix(), reason)
            elif not _is_text(document_id):
                skipped((here / name).as_posix(), "its name is not UTF-8; rename it")
            else:
                yield here / name, document_id


def _is_text(name: str) -> bool:
    """Return False if a name has bytes that are not UTF-8, as the file system allows."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Choice:
    """Selects paths of one folder by their names, links, and .gitignore files."""

    def __init__(self, folder: Path, selection: Selection) -> None:
        self._folder, self._root = folder, Path(os.path.realpath(folder))
        self._names = NameRules(selection)
        self._ignoring = None if selection.no_ignore else Ignoring(self._root)

    def enter(self, folder: Path) -> None:
        """Read the .gitignore of a subfolder."""
        if self._ignoring:
            self._ignoring.enter(self._inside(folder))

    def includes(self, path: Path) -> bool:
        """Return True if `include` matches a file."""
        return self._names.includes(path.relative_to(self._folder).as_posix())

    def refuses(self, path: Path, *, folder: bool = False) -> str | None:
        """Return the reason to skip a path; None to include it."""
        relative = path.relative_to(self._folder).as_posix()
        reason = self._names.refuses(relative, folder=folder)
        if reason and reason.startswith("hidden"):
            return reason
        inside = Path(os.path.realpath(path)).is_relative_to(self._root)
        if path.is_symlink() and (folder or not inside):
            return "link to a folder" if folder else "link out of the folder"
        if reason == "excluded":
            return reason
        if self._ignoring and self._ignoring.ignores(self._inside(path), folder=folder):
            return "ignored by .gitignore; --no-ignore takes it"
        return reason

    def _inside(self, path: Path) -> Path:
        """Return a path with the links in its parent folders resolved."""
        return self._root / path.relative_to(self._folder)
