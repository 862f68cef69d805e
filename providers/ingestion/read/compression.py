"""Unpack one layer of gzip, bzip2, xz or Zstandard compression, up to a maximum size."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
from collections.abc import Callable
from typing import IO, Any

from corral.api.errors import InvalidRequest
from corral.providers.ingestion.read.formats.archive import MAX_UNPACKED_BYTES
from corral.providers.ingestion.read.formats.common import package, reading

SUFFIXES = (".gz", ".bz2", ".xz", ".zst")

MIME_TYPES = frozenset(
    f"application/{name}"
    for name in ("gzip", "x-gzip", "x-bzip2", "x-bzip", "x-xz", "zstd", "x-zstd")
)


def _zstd(file: IO[bytes]) -> Any:
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    return package(name, "backports.zstd", "Zstandard").ZstdFile(file)


_OPENERS: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": _zstd,
}


def is_compressed(data: bytes) -> bool:
    """Return True if a file begins like one of these formats."""
    return data.startswith(tuple(_OPENERS))


def unpacked(data: bytes, limit: int = MAX_UNPACKED_BYTES) -> bytes:
    """Return the content of a compressed file; other files are returned unchanged.

    Raises:
        InvalidRequest: The file is damaged, or larger than `limit` bytes once unpacked.
        MissingDependency: backports.zstd is required but not installed.
    """
    if not is_compressed(data):
        return data
    content = beginning(io.BytesIO(data), limit + 1)
    if len(content) > limit:
        raise InvalidRequest(
            f"The compressed file unpacks to more than {limit} bytes.",
            hint="Split it, or send the part that matters.",
            field="content",
        )
    return content


def beginning(file: IO[bytes], size: int) -> bytes:
    """Return the first `size` bytes of a compressed file's content.

    Raises:
        InvalidRequest: The file is damaged.
    """
    head = file.read(8)
    file.seek(0)
    open_it = next(each for magic, each in _OPENERS.items() if head.startswith(magic))

    def read() -> bytes:
        with open_it(file) as content:
            return bytes(content.read(size))

    return reading("compressed", read)
