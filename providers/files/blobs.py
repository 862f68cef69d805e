"""The bytes of files, named by their SHA-256: equal content is stored once.

Bytes are written under a temporary name, and renamed once all are stored, so a blob with its final
name is complete even after a kill. Every read checks the bytes against the name.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
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

from corral.api.errors import InvalidRequest, ProviderError, TooLarge
from corral.providers.base.disk import sync_folder

MIB = 1 << 20
PIECE_BYTES = MIB
"""Size of the pieces that are read and written."""

STALE_SECONDS = 3600
"""Time since the last write after which an upload counts as dead."""

UPLOADS = "uploads"
"""The folder of incomplete uploads."""


@dataclass(frozen=True, slots=True)
class Upload:
    """Bytes that are stored under a temporary name."""

    name: str
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

    def stored_as(self, name: str) -> Upload:
        """Return the upload, once all bytes are stored under a temporary name."""
        return Upload(name, self._bytes, self._digest.hexdigest())


class Blobs(ABC):
    """A store of blobs: a folder or a bucket. An unreachable store raises `Unavailable`."""

    async def prepare(self) -> None:
        """Prepare the blocking calls `keep` and `drop`."""

    @abstractmethod
    async def check(self) -> None:
        """Raise ProviderError if blobs cannot be read now."""

    @abstractmethod
    async def receive(self, content: AsyncIterator[bytes]) -> Upload:
        """Store incoming bytes under a temporary name; a failure leaves nothing behind.

        Raises:
            TooLarge, InvalidRequest: As `Incoming`.
            ProviderError: The bytes cannot be stored.
        """

    @abstractmethod
    def keep(self, upload: Upload) -> None:
        """Rename an upload to its final name, durably. Blocks.

        Raises:
            ProviderError: The upload cannot be stored.
        """

    @abstractmethod
    async def discard(self, upload: Upload) -> None:
        """Delete the temporary data of an upload. Never fails; the sweep deletes leftovers."""

    @abstractmethod
    def drop(self, sha256: str) -> None:
        """Delete a blob, if it exists. Blocks."""

    @abstractmethod
    async def names(self) -> set[str]:
        """Return the SHA-256 of every blob."""

    @abstractmethod
    async def drop_stale_uploads(self, now: float) -> None:
        """Delete the unfinished uploads of dead processes.

        Args:
            now: Unix seconds.
        """

    @abstractmethod
    async def read(self, sha256: str) -> AsyncGenerator[bytes, None]:
        """Open a blob, and return its bytes, checked by `verified`.

        Raises:
            FileNotFoundError: The blob does not exist.
            ProviderError: The blob cannot be read.
        """

    @abstractmethod
    def local(self, sha256: str) -> AbstractAsyncContextManager[Path]:
        """Return a context manager for a local file with a blob's verified bytes.

        Raises:
            FileNotFoundError, ProviderError: As `read`.
        """


class BlobFolder(Blobs):
    """A folder of blobs: `<aa>/<sha256>`, and `uploads/` for unfinished uploads.

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
        """Write incoming bytes to a temporary name; see the contract."""
        with _disk_errors():
            path = await asyncio.to_thread(self._new)
        try:
            with _disk_errors():
                return await self._write(path, Incoming(content, self._max_bytes))
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def keep(self, upload: Upload) -> None:
        """Rename an upload; see the contract."""
        path = self._path(upload.sha256)
        with _disk_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._upload(upload.name).replace(path)
            sync_folder(path.parent)

    async def discard(self, upload: Upload) -> None:
        """Delete an upload that has not become a blob."""
        with suppress(OSError):
            self._upload(upload.name).unlink(missing_ok=True)

    def drop(self, sha256: str) -> None:
        """Delete a blob, if it exists."""
        self._path(sha256).unlink(missing_ok=True)

    async def names(self) -> set[str]:
        """Return the SHA-256 of every blob."""
        pattern = "[0-9a-f][0-9a-f]/*"
        return await asyncio.to_thread(lambda: {path.name for path in self._folder.glob(pattern)})

    async def drop_stale_uploads(self, now: float) -> None:
        """Delete the unfinished uploads of dead processes."""
        await asyncio.to_thread(self._drop_older, now - STALE_SECONDS)

    async def read(self, sha256: str) -> AsyncGenerator[bytes, None]:
        """Open a blob; see the contract."""
        with _disk_errors("read"):
            file = await asyncio.to_thread(self._path(sha256).open, "rb")

        async def pieces() -> AsyncGenerator[bytes, None]:
            with file, _disk_errors("read"):
                while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                    yield piece

        return verified(pieces(), sha256)

    @asynccontextmanager
    async def local(self, sha256: str) -> AsyncIterator[Path]:
        """Yield the path of a blob; see the contract."""
        async for _ in await self.read(sha256):
            pass
        yield self._path(sha256)

    def _path(self, sha256: str) -> Path:
        return self._folder / sha256[:2] / sha256

    def _upload(self, name: str) -> Path:
        return self._folder / UPLOADS / name

    def _new(self) -> Path:
        folder = self._folder / UPLOADS
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder)
        os.close(handle)
        return Path(name)

    async def _write(self, path: Path, incoming: Incoming) -> Upload:
        with path.open("wb") as file:
            async for data in incoming:
                await asyncio.to_thread(file.write, data)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        return incoming.stored_as(path.name)

    def _drop_older(self, oldest: float) -> None:
        for path in (self._folder / UPLOADS).glob("*"):
            with suppress(FileNotFoundError):  # the upload has ended in the meantime
                if path.stat().st_mtime < oldest:
                    path.unlink()


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

    So a reader that knows the length notices damaged content by its missing end.

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
