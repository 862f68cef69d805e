"""The patterns of .gitignore files and of the options `include` and `exclude`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pathspec import GitIgnoreSpec


def globs(patterns: Sequence[str]) -> GitIgnoreSpec | None:
    """Return the compiled patterns of an option; None if there are none."""
    return GitIgnoreSpec.from_lines(patterns) if patterns else None


class Ignoring:
    """The .gitignore files of a folder, its subfolders, and the repository that contains it.

    Args:
        root: The folder; its path has no links.
    """

    def __init__(self, root: Path) -> None:
        self._specs: dict[Path, GitIgnoreSpec] = {}
        for folder in [root, *root.parents]:
            self.enter(folder)
            if (folder / ".git").exists():
                return
        # The folder is not in a repository, so .gitignore files above it do not apply.
        self._specs = {root: self._specs[root]} if root in self._specs else {}

    def enter(self, folder: Path) -> None:
        """Read the .gitignore of a folder, if it has one."""
        file = folder / ".gitignore"
        if folder not in self._specs and file.is_file():
            lines = file.read_text("utf-8", "replace").splitlines()
            self._specs[folder] = GitIgnoreSpec.from_lines(lines)

    def ignores(self, path: Path, *, folder: bool = False) -> bool:
        """Return True if git ignores a path; the nearest .gitignore with a match decides."""
        for above in path.parents:
            spec = self._specs.get(above)
            if spec is not None:
                relative = path.relative_to(above).as_posix() + ("/" if folder else "")
                ignored = spec.check_file(relative).include
                if ignored is not None:
                    return ignored
        return False
