"""Read ZIP archives of documents: the names of the files, and their contents up to a limit."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator

from corral.api.errors import InvalidRequest
from corral.api.invisible import clean_text
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.ingestion.read.formats.archive import MAX_UNPACKED_BYTES
from corral.providers.ingestion.read.formats.common import Readable, reading

MAX_NAME_LENGTH = 200
MAX_RATIO = 200
"""Maximum ratio of unpacked to packed size, for files of more than 1 MiB.

Tables reach a tenth of it, ZIP bombs five times as much."""
_SMALL = 1 << 20
_ENCRYPTED = 1


def read(data: bytes, limits: DocumentLimits) -> Readable:
    """Return the names of the files in an archive, as a list.

    Raises:
        InvalidRequest: The file is broken, empty, or has more files than `max_parts`.
    """
    names = reading("ZIP", lambda: [name for name, _ in _entries(data, limits)])
    return Readable(["\n".join(f"- {name}" for name in names)], parts=tuple(names))


def files(data: bytes, limits: DocumentLimits) -> Iterator[tuple[str, bytes | str]]:
    """Yield the files of an archive: each name, with the content or the reason for skipping it.

    Raises:
        InvalidRequest: See `read`.
    """
    with reading("ZIP", lambda: zipfile.ZipFile(io.BytesIO(data))) as archive:
        for name, entry in reading("ZIP", lambda: _entries(data, limits)):
            yield name, _content(archive, entry)


def _entries(data: bytes, limits: DocumentLimits) -> list[tuple[str, zipfile.ZipInfo]]:
    """Return the files of an archive under unique, relative names."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = [each for each in archive.infolist() if each.file_size and not _is_hidden(each)]
    if len(entries) > limits.max_parts:
        raise limits.exceeded("files", "max_parts")
    if not entries:
        raise InvalidRequest("The archive holds no files.", field="content")
    named: dict[str, zipfile.ZipInfo] = {}
    for number, entry in enumerate(entries, 1):
        name = _safe(entry.filename) or f"file {number}"
        named[f"{number} {name}" if name in named else name] = entry
    return list(named.items())


def _is_hidden(entry: zipfile.ZipInfo) -> bool:
    steps = entry.filename.split("/")
    return entry.is_dir() or any(
        step.startswith("__MACOSX") or (step.startswith(".") and step.strip(".")) for step in steps
    )


def _safe(name: str) -> str:
    """Return a relative path without "..", of at most `MAX_NAME_LENGTH` characters."""
    steps = " ".join(clean_text(name).split()).replace("\\", "/").split("/")
    path = "/".join(step for step in steps if step.strip(". ") and not step.endswith(":"))
    return path[-MAX_NAME_LENGTH:].lstrip("/")


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes | str:
    if entry.flag_bits & _ENCRYPTED:
        return "locked with a password"
    if entry.file_size > MAX_UNPACKED_BYTES:
        return "too large"
    if entry.file_size > max(_SMALL, entry.compress_size * MAX_RATIO):
        return "it unpacks to far more than its size"
    try:
        with archive.open(entry) as file:
            return file.read(entry.file_size + 1)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - a broken entry raises anything
        return "damaged"
