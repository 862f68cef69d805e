"""The folders of providers that store their data in files."""

from __future__ import annotations

import os
from pathlib import Path

from corral.api.provider import Health


def folder_health(folder: Path) -> Health:
    """Return OK if a folder, or its nearest existing parent, is writable."""
    while not folder.exists():
        folder = folder.parent
    if folder.is_dir() and os.access(folder, os.W_OK):
        return Health("OK")
    return Health("Error", f"{folder} cannot be written to")
