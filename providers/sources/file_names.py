"""Files of a folder that .gitignore leaves out, and the patterns of options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pathspec import GitIgnoreSpec


def globs(patterns: Sequence[str]) -> GitIgnoreSpec | None:
    """Return the patterns of an option, None for none."""
    return GitIgnoreSpec.from_lines(patterns) if patterns else None


class Ignoring:
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
                ignored = spec.check_file(relative).include
                if ignored is not None:
                    return ignored
        return False
