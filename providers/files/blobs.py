"""The bytes of files, as blobs: the content of one upload, named by its SHA-256 and a random id.

Bytes are written under a temporary name and become a blob when all are stored, so a blob is always
complete, even if a process is killed. No two uploads have the same name, so a late deletion never
affects the blob of another upload.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from corral.api.errors import InvalidRequest, ProviderError, TooLarge
from corral.providers.base.disk import sync_folder

MIB = 1 << 20
PIECE_BYTES = MIB
"""Size of the pieces that are read and written."""

STALE_SECONDS = 3600
"""Age of the last write, in seconds, after which an upload, or a blob without a file, counts as
abandoned."""
SHA256_LENGTH = 64
ID_LENGTH = 12
"""Length of the random end of a blob's name."""

UPLOADS = "uploads"
"""The folder of incomplete uploads."""


@dataclass(frozen=True, slots=True)
class Upload:
    """The bytes of one upload, stored as a blob."""

    blob: str
    bytes: int
    sha256: str


class Incoming:
    """The bytes of an incoming file, in pieces of `PIECE_BYTES`, counted and hashed.

    Args:
        content: The bytes, in pieces of any size.
        max_bytes: Maximum size of the file.
    """

    def __init__(self, content: AsyncIterator[bytes], max_bytes: int) -> None:
        self._content, self._max_bytes = content, max_bytes
        self._digest, self._bytes = hashlib.sha256(), 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the bytes.

        Raises:
            TooLarge: The file exceeds `max_bytes`; the rest is not read.
            InvalidRequest: The file is empty.
        """
        async for data in _gathered(self._content):
            self._bytes += len(data)
            if self._bytes > self._max_bytes:
                raise TooLarge(
                    f"The file is larger than {self._max_bytes / MIB:.4g} MiB.",
                    hint="Split it; the operator's setting is files.max_mib.",
                    field="file",
                )
            await asyncio.to_thread(self._digest.update, data)
            yield data
        if not self._bytes:
            raise InvalidRequest("The file is empty.", field="file")

    def upload(self, name: str) -> Upload:
        """Return the upload; call this once all bytes are stored under a temporary name."""
        sha256 = self._digest.hexdigest()
        return Upload(f"{sha256}-{name}", self._bytes, sha256)


class Blobs(ABC):
    """A store of blobs: a folder or a bucket. An unreachable store raises `Unavailable`."""

    @abstractmethod
    async def check(self) -> None:
        """Raise ProviderError if blobs cannot be read now."""

    @abstractmethod
    async def receive(self, content: AsyncIterator[bytes]) -> Upload:
        """Store bytes durably as a new blob, as they arrive; if that fails, nothing is left.

        Raises:
            TooLarge, InvalidRequest: See `Incoming`.
            ProviderError: The bytes cannot be stored.
        """

    @abstractmethod
    async def delete(self, blob: str) -> None:
        """Delete a blob, if it exists.

        Raises:
            ProviderError: It cannot be deleted now.
        """

    @abstractmethod
    async def names(self, before: float) -> set[str]:
        """Return the names of the blobs that were stored before a time, in Unix seconds."""

    @abstractmethod
    async def drop_stale_uploads(self, before: float) -> None:
        """Delete the incomplete uploads that dead processes left before a time, in Unix seconds."""

    @abstractmethod
    async def read(self, blob: str) -> AsyncGenerator[bytes, None]:
        """Open a blob and return its bytes, which `verified` compares with the SHA-256.

        Raises:
            FileNotFoundError: The blob does not exist.
            ProviderError: The blob cannot be read.
        """

    @abstractmethod
    def local(self, blob: str) -> AbstractAsyncContextManager[Path]:
        """Return a context that yields the path of a local file with a blob's verified bytes.

        Raises:
            FileNotFoundError, ProviderError: See `read`.
        """


class BlobFolder(Blobs):
    """A folder of blobs: `<aa>/<name>`, and `uploads/` for incomplete uploads.

    Args:
        folder: Created with the first blob.
        max_bytes: Maximum size of a blob.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    async def check(self) -> None:
        """Do nothing: the folder is created with the first blob."""

    async def receive(self, content: AsyncIterator[bytes]) -> Upload:
        """Write bytes to a temporary name as they arrive; see the contract."""
        name = uuid4().hex[:ID_LENGTH]
        path = self._folder / UPLOADS / name
        with _disk_errors():
            try:
                return await self._write(name, path, Incoming(content, self._max_bytes))
            finally:
                path.unlink(missing_ok=True)

    async def delete(self, blob: str) -> None:
        """Delete a blob, if it exists."""
        with _disk_errors("deleted"):
            await asyncio.to_thread(self._path(blob).unlink, missing_ok=True)

    async def names(self, before: float) -> set[str]:
        """Return the names of the blobs that were stored before a time."""
        paths = await asyncio.to_thread(self._older, "[0-9a-f][0-9a-f]", before)
        return {path.name for path in paths}

    async def drop_stale_uploads(self, before: float) -> None:
        """Delete the incomplete uploads of dead processes."""
        for path in await asyncio.to_thread(self._older, UPLOADS, before):
            path.unlink(missing_ok=True)

    async def read(self, blob: str) -> AsyncGenerator[bytes, None]:
        """Open a blob; see the contract."""
        with _disk_errors("read"):
            file = await asyncio.to_thread(self._path(blob).open, "rb")

        async def pieces() -> AsyncGenerator[bytes, None]:
            with file, _disk_errors("read"):
                while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                    yield piece

        return verified(pieces(), blob[:SHA256_LENGTH])

    @asynccontextmanager
    async def local(self, blob: str) -> AsyncIterator[Path]:
        """Yield the path of a blob; see the contract."""
        async for _ in await self.read(blob):
            pass
        yield self._path(blob)

    def _path(self, blob: str) -> Path:
        return self._folder / blob[:2] / blob

    async def _write(self, name: str, path: Path, incoming: Incoming) -> Upload:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            async for data in incoming:
                await asyncio.to_thread(file.write, data)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        upload = incoming.upload(name)
        await asyncio.to_thread(self._keep, path, self._path(upload.blob))
        return upload

    def _keep(self, path: Path, blob: Path) -> None:
        blob.parent.mkdir(parents=True, exist_ok=True)
        path.replace(blob)
        sync_folder(blob.parent)

    def _older(self, folder: str, before: float) -> list[Path]:
        """Return the files of a folder that were written before a time."""
        older = []
        for path in self._folder.glob(f"{folder}/*"):
            with suppress(FileNotFoundError):  # It was deleted, or its upload has ended.
                if path.stat().st_mtime < before:
                    older.append(path)
        return older


async def _gathered(content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the same bytes in pieces of at least `PIECE_BYTES`, except the last."""
    held = bytearray()
    async for piece in content:
        held += piece
        if len(held) >= PIECE_BYTES:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


async def verified(pieces: AsyncGenerator[bytes, None], sha256: str) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a blob; yield the last piece only if the SHA-256 is right.

    A reader that knows the length thus notices damaged content: its end is missing.

    Raises:
        ProviderError: The stored bytes are damaged.
    """
    digest, last = hashlib.sha256(), b""
    async with aclosing(pieces):
        async for piece in pieces:
            await asyncio.to_thread(digest.update, piece)
            if last:
                yield last
            last = piece
    if digest.hexdigest() != sha256:
        raise ProviderError(
            "The stored content of the file is damaged: its checksum differs.",
            hint="Restore the blob from a backup, or upload the file again.",
        )
    if last:
        yield last


@contextmanager
def _disk_errors(verb: str = "stored") -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ProviderError(f"The file cannot be {verb}: {error.strerror}.") from error
