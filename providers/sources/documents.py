"""Files as documents: the metadata stored with their text, and the reasons to skip some."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from corral.api.errors import InvalidRequest
from corral.providers.ingestion.read.detecting import TITLED, type_of


def file_metadata(path: str, mime_type: str) -> dict[str, Any]:
    """Return the metadata of a file: its source, and a title if its format has none.

    Args:
        path: The path relative to the source's folder, so that the machine's layout stays private.
    """
    metadata = {"source": path}
    if mime_type not in TITLED:
        name = PurePosixPath(path)
        metadata["title"] = name.stem if type_of(name.name) else name.name
    return metadata


def skip_reason(error: InvalidRequest) -> str:
    """Return the kind of a file that cannot be read, such as "a picture"."""
    reason = error.message.removeprefix("The file is ").rstrip(".")
    return f"{reason[0].lower()}{reason[1:]}"
