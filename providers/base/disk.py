"""Atomic file writes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing, and rename it to `path` atomically at the end.

    A killed process, or two processes that race, leave either a complete new file or the old file.
    Until the rename the file is `<name>.*.tmp`, which is deleted on an exception.

    Args:
        path: The target file; its folder must exist.

    Raises:
        OSError: The folder cannot be written to, or the disk is full.
    """
    handle, name = tempfile.mkstemp(".tmp", f"{path.name}.", path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to the disk, if the system can open a folder."""
    with suppress(PermissionError):  # Windows
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
