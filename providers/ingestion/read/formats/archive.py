"""Read files that are ZIP archives of XML, with a size limit and as a stream."""

from __future__ import annotations

import io
import posixpath
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from xml.parsers import expat

from corral.api.errors import InvalidRequest
from corral.providers.ingestion.read.formats.common import locked

MAX_UNPACKED_BYTES = 256 * 1024 * 1024
"""Maximum size of an archive once unpacked: 1 MB of zipped zeros unpacks to 1 GB."""

_PIECE = 1 << 16
_ENCRYPTED = 1


@contextmanager
def opened(data: bytes, kind: str) -> Iterator[zipfile.ZipFile]:
    """Open an archive.

    Raises:
        InvalidRequest: The archive is larger than 256 MiB once unpacked, or needs a password.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        unpacked = sum(entry.file_size for entry in entries)
        if unpacked > MAX_UNPACKED_BYTES:
            raise InvalidRequest(
                f"The {kind} file unpacks to {unpacked} bytes.",
                hint=f"At most {MAX_UNPACKED_BYTES} are read; split it.",
                field="content",
            )
        if any(entry.flag_bits & _ENCRYPTED for entry in entries):
            raise locked(kind)
        yield archive


def parse_xml(
    archive: zipfile.ZipFile,
    part: str,
    start: Callable[[str, dict[str, str]], None],
    end: Callable[[str], None] | None = None,
    data: Callable[[str], None] | None = None,
) -> None:
    """Parse an XML part of an archive as a stream, calling `start`, `end` and `data`.

    Names are local, without their namespaces. If two attributes differ only by namespace, such as
    `id` and `r:id`, the one with a namespace wins. Nothing is stored, so even a million empty
    elements take no memory.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = lambda name, attributes: start(
        _local(name),
        _without_namespaces(attributes),
    )
    parser.EndElementHandler = None if end is None else lambda name: end(_local(name))
    parser.CharacterDataHandler = data
    parser.StartDoctypeDeclHandler = _no_doctype
    with archive.open(part) as file:
        for piece in iter(lambda: file.read(_PIECE), b""):
            parser.Parse(piece)
    parser.Parse(b"", True)


def relations(archive: zipfile.ZipFile, part: str) -> dict[str, tuple[str, str]]:
    """Return the relationships of a part by id: the last word of the type, and the target's name.

    Args:
        archive: The file.
        part: Name of the part; "" for the whole file.
    """
    found: dict[str, tuple[str, str]] = {}
    folder, base = posixpath.split(part)

    def start(name: str, attributes: dict[str, str]) -> None:
        if name == "Relationship" and attributes.get("TargetMode") != "External":
            target = posixpath.normpath(posixpath.join("/", folder, attributes["Target"]))
            kind = attributes["Type"].rpartition("/")[2]
            found[attributes["Id"]] = (kind, target.lstrip("/"))

    name = posixpath.join(folder, "_rels", f"{base}.rels")
    if name in archive.namelist():
        parse_xml(archive, name, start)
    return found


def pictures_of(archive: zipfile.ZipFile, part: str) -> dict[str, bytes]:
    """Return the pictures that a part refers to, by relationship id."""
    inside = archive.namelist()
    return {
        key: archive.read(name)
        for key, (kind, name) in relations(archive, part).items()
        if kind == "image" and name in inside
    }


def main_part(archive: zipfile.ZipFile) -> str:
    """Return the name of the main part of an Office file."""
    return next(name for kind, name in relations(archive, "").values() if kind == "officeDocument")


def _no_doctype(*declared: object) -> None:
    raise ValueError("an Office file declares no document type")


def _without_namespaces(attributes: dict[str, str]) -> dict[str, str]:
    if not any(map(_has_namespace, attributes)):
        return attributes
    return {_local(key): attributes[key] for key in sorted(attributes, key=_has_namespace)}


def _has_namespace(name: str) -> bool:
    return " " in name


def _local(name: str) -> str:
    return name.rpartition(" ")[2]
