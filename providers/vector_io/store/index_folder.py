"""A folder beside a chunk file, for an engine that stores its index in its own files."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from corral.providers.base.disk import whole_file

ROWS_FILE = "rows.npy"


class IndexFolder:
    """The folder of an index, used by one process at a time.

    `current.json` names the subfolder in use. It is written after the index, so a killed process
    never leaves an incomplete index in use.

    Args:
        settings: As JSON. An index built with other settings is not used.

    Attributes:
        path: As given.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self._mark = path / "current.json"
        self._settings = dict(settings)
        self._owner = FileLock(path / "owner.lock", thread_local=False)
        self._taking = threading.Lock()

    def take(self) -> bool:
        """Return True if this process owns the folder; try to lock it first."""
        with self._taking:
            if self._owner.is_locked:
                return True
            try:
                self.path.mkdir(exist_ok=True)
                self._owner.acquire(timeout=0)  # the lock ends with the process
            except (Timeout, OSError):  # another process owns it, or it is not writable
                return False
        self.sweep()
        return True

    def release(self) -> None:
        """Let another process use the folder."""
        with self._taking:
            self._owner.release()

    def current(self) -> Path | None:
        """Return the subfolder in use; None if there is none with these settings."""
        try:
            mark = json.loads(self._mark.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        name = mark.pop("folder", None)
        return self.path / name if mark == self._settings and name else None

    def new_place(self) -> Path:
        """Return the path of a new subfolder for another index."""
        return self.path / f"index-{uuid.uuid4().hex[:12]}"

    def switch(self, place: Path) -> None:
        """Record durably that the index in a subfolder is in use."""
        with whole_file(self._mark) as file:
            file.write(json.dumps({**self._settings, "folder": place.name}).encode())

    def forget(self) -> None:
        """Record that there is no index."""
        self._mark.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Delete the subfolders that are not in use."""
        if not self._owner.is_locked:
            return
        current = self.current()
        for place in self.path.glob("index-*"):
            if place != current:
                shutil.rmtree(place, ignore_errors=True)

    def delete(self) -> None:
        """Delete the folder."""
        self.release()
        shutil.rmtree(self.path, ignore_errors=True)


def save_covered_rows(
    place: Path, rows: NDArray[np.int64], squared_norms: NDArray[np.float64]
) -> None:
    """Store the rows of the chunk file that an index covers, and the norms of their embeddings."""
    with whole_file(place / ROWS_FILE) as file:
        np.save(file, np.stack([rows, squared_norms.view(np.int64)]))


def covered_rows(place: Path) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the rows and squared norms that `save_covered_rows` stored.

    Raises:
        OSError, ValueError: The file is absent or damaged.
    """
    rows, squared_norms = np.load(place / ROWS_FILE, allow_pickle=False)
    return rows, squared_norms.view(np.float64)
