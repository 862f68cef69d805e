"""Detect dead processes: the OS releases the lock of a process when it exits.

An OS lock needs neither a clock nor heartbeats. A sleeping or slow process never counts as dead,
and the work of a killed process can be taken over at once.
"""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from filelock import FileLock, Timeout


class Owner:
    """This process as the owner of jobs or counters, identified by a lock.

    Args:
        folder: Folder of the locks; created with the first lock.
        name: Name of the owner; None for a new unique name.
    """

    def __init__(self, folder: Path, name: str | None = None) -> None:
        self._folder = folder
        self.name = name or uuid4().hex
        self._lock = self._lock_of(self.name)

    def enter(self) -> None:
        """Acquire the lock. Blocks for a moment."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock.acquire()

    def leave(self) -> None:
        """Release the lock. Blocks for a moment."""
        self._lock.release()
        self._path(self.name).unlink(missing_ok=True)

    def others(self) -> list[str]:
        """Return the names of the other owners with a lock file, living or dead."""
        return [path.stem for path in self._folder.glob("*.lock") if path.stem != self.name]

    def is_dead(self, other: str) -> bool:
        """Return True if another owner's process has ended. Blocks for a moment."""
        if other == self.name:
            return False
        if not self._path(other).exists():
            return True
        lock = self._lock_of(other)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return False
        lock.release()
        return True

    def is_here(self, other: str) -> bool:
        """Return True if another owner runs, or ran, on this machine."""
        return self._path(other).exists()

    def forget(self, other: str) -> None:
        """Delete the lock file of a dead owner."""
        self._path(other).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"

    def _lock_of(self, name: str) -> FileLock:
        return FileLock(self._path(name), thread_local=False)
