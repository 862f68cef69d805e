"""Unpack the documents in containers: attachments of mails and files of archives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from corral.api.errors import InvalidRequest
from corral.providers.base.document_limits import DocumentLimits
from corral.providers.ingestion.read import compression
from corral.providers.ingestion.read.detecting import CONTAINERS, MAIL, MSG, ZIP, detected, type_of
from corral.providers.ingestion.read.excluded import excluded
from corral.providers.ingestion.read.formats import mail, outlook, zipped
from corral.providers.ingestion.read.formats.archive import MAX_UNPACKED_BYTES

MAX_DEPTH = 3
"""Maximum nesting of containers: an archive in a mail in an archive is opened, but no deeper."""

_FILES: dict[str, Callable[[bytes, DocumentLimits], Iterable[tuple[str, bytes | str]]]] = {
    MAIL: lambda data, _: mail.attachments(data),
    MSG: lambda data, _: outlook.attachments(data),
    ZIP: zipped.files,
}


@dataclass(frozen=True, slots=True)
class Part:
    """A document in a container.

    Attributes:
        name: Its path below the container, such as `order.eml/delivery.txt`.
        file: Name of the unpacked file in the folder; "" if it was not unpacked.
        reason: The reason why it was not unpacked; "" if it was.
    """

    name: str
    file: str = ""
    reason: str = ""


def unpack(
    data: bytes, mime_type: str, charset: str | None, limits: DocumentLimits, folder: Path
) -> list[Part]:
    """Unpack a container, and the containers in it, into a folder; return the parts.

    Args:
        data: The container, possibly compressed.
        mime_type: The type that the sender declares; "" if unknown.
        charset: The charset that the sender declares, or None.
        limits: Limit of the number of documents.
        folder: An empty folder.

    Raises:
        InvalidRequest: The container is broken, or holds more documents or bytes than allowed.
        MissingDependency: The package that reads this type is not installed.
    """
    data = compression.unpacked(data)
    named = "" if mime_type in compression.MIME_TYPES else mime_type
    unpacking = _Unpacking(limits, folder)
    unpacking.open(data, detected(data, named, charset), "", 1)
    return unpacking.parts


class _Unpacking:
    def __init__(self, limits: DocumentLimits, folder: Path) -> None:
        self.parts: list[Part] = []
        self._limits, self._folder = limits, folder
        self._room = MAX_UNPACKED_BYTES

    def open(self, data: bytes, kind: str, above: str, depth: int) -> None:
        """Add the documents of a container; their paths begin with `above`."""
        for name, content in _FILES[kind](data, self._limits):
            if len(self.parts) >= self._limits.max_parts:
                raise self._limits.exceeded("files", "max_parts")
            reason = excluded(name.rpartition("/")[2]) or (
                content if isinstance(content, str) else ""
            )
            if reason or isinstance(content, str):
                self.parts.append(Part(above + name, reason=reason))
            else:
                self._add(above + name, content, depth)

    def _add(self, name: str, content: bytes, depth: int) -> None:
        self._room -= len(content)
        if self._room < 0:
            raise InvalidRequest(
                f"The files in it have more than {MAX_UNPACKED_BYTES} bytes.",
                hint="Send them one by one, or in smaller archives.",
                field="content",
            )
        try:
            whole = compression.unpacked(content, self._room)
            kind = detected(whole, type_of(name) or "")
        except InvalidRequest:
            whole, kind = content, ""  # Reading it later reports the error.
        if kind in CONTAINERS and depth == MAX_DEPTH:
            self.parts.append(Part(name, reason=f"deeper than {MAX_DEPTH} containers"))
            return
        file = str(len(self.parts))
        (self._folder / file).write_bytes(content)
        self.parts.append(Part(name, file))
        if kind in CONTAINERS:
            try:
                self.open(whole, kind, f"{name}/", depth + 1)
            except InvalidRequest as error:
                if self._room < 0 or len(self.parts) >= self._limits.max_parts:
                    raise
                self.parts[int(file)] = Part(name, reason=error.message)
