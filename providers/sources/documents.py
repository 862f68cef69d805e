"""Files as documents: what is stored beside their text."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from corral.providers.ingestion.read.detecting import TITLED, type_of


def file_metadata(path: str, mime_type: str) -> dict[str, Any]:
    """Return the metadata of a file: its source and, if its format has none, a title.

    Args:
        path: Relative to the folder, so that the folders of a machine stay private.
    """
    metadata = {"source": path}
    if mime_type not in TITLED:
        name = PurePosixPath(path)
        metadata["title"] = name.stem if type_of(name.name) else name.name
    return metadata
