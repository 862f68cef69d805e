"""The folders of providers that store their data in files."""

from __future__ import annotations

import os
from pathlib import Path

from corral.api.errors import ProviderError
from corral.api.provider import Health


def make_folder(folder: Path, provider_id: str, file: Path | None = None) -> None:
    """Create a folder, and a file in it, if they are missing.

    Raises:
        ProviderError: One cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if file is not None:
            file.touch()
    except OSError as error:
        message = f"{provider_id}: cannot write to {folder} ({error.strerror})."
        raise ProviderError(message) from error


def folder_health(folder: Path) -> Health:
    """Return OK if a folder, or its nearest existing parent, is writable."""
    while not folder.exists():
        folder = folder.parent
    if folder.is_dir() and os.access(folder, os.W_OK):
        return Health("OK")
    return Health("Error", f"{folder} cannot be written to")
