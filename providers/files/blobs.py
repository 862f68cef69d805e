"""Bytes on disk, named by their SHA-256: equal content is stored once.

Bytes go to a temporary name, reach the disk, and only then get their own: a blob that has its name
is whole, whatever was killed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from corral.api.errors import InvalidRequest, ProviderError, TooLarge
from corral.providers.base.disk import sync_folder

MIB = 1 << 20
WRITE_AT_ONCE = MIB
"""Bytes that are gathered before a thread writes them."""

STALE_SECONDS = 3600
"""Age of the last write after which an upload is taken for dead."""

_UPLOADS = "uploads"


@dataclass(frozen=True, slots=True)
class Upload:
    """Bytes that are on disk under a temporary name."""

    path: Path
    bytes: int
    sha256: str


class Blobs:
    """A folder of blobs: `<aa>/<sha256>`, and `uploads/` for what is still arriving.

    Args:
        folder: Made with the first blob.
        max_bytes: Largest blob.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def path(self, sha256: str) -> Path:
        """Return where a blob is, or would be."""
        return self._folder / sha256[:2] / sha256

    async def receive(self, content: AsyncIterator[bytes]) -> Upload:
        """Write bytes to a temporary name as they arrive; nothing is left where that fails.

        Raises:
            TooLarge: There are more than `max_bytes`; the rest is not read.
            InvalidRequest: There are none.
            ProviderError: They cannot be written.
        """
        with _disk_errors():
            path = await asyncio.to_thread(self._new)
        try:
            with _disk_errors():
                return await self._write(path, content)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def keep(self, upload: Upload) -> None:
        """Give an upload its own name, on the disk when this returns.

        Raises:
            ProviderError: The disk refuses it.
        """
        path = self.path(upload.sha256)
        with _disk_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            upload.path.replace(path)
            sync_folder(path.parent)

    def drop(self, sha256: str) -> None:
        """Delete a blob, if it is there."""
        self.path(sha256).unlink(missing_ok=True)

    def names(self) -> Iterator[str]:
        """Yield the SHA-256 of every blob."""
        for path in self._folder.glob("[0-9a-f][0-9a-f]/*"):
            yield path.name

    def drop_stale_uploads(self) -> None:
        """Delete what dead processes have left of their uploads."""
        oldest = time.time() - STALE_SECONDS
        for path in (self._folder / _UPLOADS).glob("*"):
            with suppress(FileNotFoundError):  # its upload has ended meanwhile
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def _new(self) -> Path:
        folder = self._folder / _UPLOADS
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder)
        os.close(handle)
        return Path(name)

    async def _write(self, path: Path, content: AsyncIterator[bytes]) -> Upload:
        digest, size = hashlib.sha256(), 0
        with path.open("wb") as file:

            def write(data: bytes) -> None:
                digest.update(data)
                file.write(data)

            async for data in _gathered(content):
                size += len(data)
                if size > self._max_bytes:
                    raise TooLarge(
                        f"The file is larger than {self._max_bytes / MIB:.4g} MiB.",
                        hint="Split it; the operator's setting is files.max_mib.",
                        field="file",
                    )
                await asyncio.to_thread(write, data)
            if not size:
                raise InvalidRequest("The file is empty.", field="file")
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        return Upload(path, size, digest.hexdigest())


async def _gathered(content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the same bytes in pieces of at least `WRITE_AT_ONCE`, but for the last one."""
    held = bytearray()
    async for piece in content:
        held += piece
        if len(held) >= WRITE_AT_ONCE:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


@contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ProviderError(f"The file cannot be stored: {error.strerror}.") from error
