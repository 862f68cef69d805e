"""Files that reach the disk whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that gets its name at the end, in one step.

    A process that is killed while it writes, or two that race, leave a whole file or the old one.
    Until then it is `<name>.*.tmp`, which an exception deletes.

    Args:
        path: Where to, in a folder that exists.

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
    """Bring a folder's entries to the disk, where the system can open a folder."""
    with suppress(PermissionError):  # Windows
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
