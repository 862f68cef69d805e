"""The bytes of files in object storage: S3 and compatible services, GCS or Azure."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from corral.api.errors import (
    ConfigError,
    CorralError,
    MissingDependency,
    ProviderError,
    Unavailable,
)
from corral.providers.base.file_config import FileSettings
from corral.providers.files.blobs import (
    MIB,
    PIECE_BYTES,
    STALE_SECONDS,
    UPLOADS,
    Blobs,
    Incoming,
    Upload,
    verified,
)

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

COMMAND = "pip install 'corral-rag[object-storage]'"
PART_BYTES = 8 * MIB
"""Size of one part of an upload. S3 accepts 10,000 parts."""
PART_CONCURRENCY = 2
"""Parts of an upload that are sent concurrently, and held in memory."""
RETRIES = 2
FIRST_PAUSE_SECONDS = 0.2


class Bucket(Blobs):
    """Blobs in object storage: `<prefix>/<installation>/<aa>/<sha256>`, and `uploads/` beside them.

    Every installation has its own folder, so several can share a bucket and a prefix.

    Args:
        settings: Settings with a `url`.
        installation: Returns the id of the installation.

    Raises:
        MissingDependency: obstore is not installed.
        ConfigError: The URL or an option is invalid.
    """

    def __init__(self, settings: FileSettings, installation: Callable[[], Awaitable[str]]) -> None:
        self._max_bytes = int(settings.max_mib * MIB)
        self._seconds = settings.timeout_seconds
        self._installation = installation
        self._root = ""
        self._store = _open_store(settings)

    async def prepare(self) -> None:
        """Read the id of the installation, once."""
        if not self._root:
            self._root = await self._installation()

    async def check(self) -> None:
        """Request a blob that does not exist, to check the service."""
        import obstore  # noqa: PLC0415 - an extra

        await self.prepare()
        with _translated(), suppress(FileNotFoundError):
            await obstore.head_async(self._store, self._path("0" * 64))

    async def receive(self, content: AsyncIterator[bytes]) -> Upload:
        """Send incoming bytes in parts; see the contract."""
        import obstore  # noqa: PLC0415 - an extra

        await self.prepare()
        name, incoming = uuid4().hex, Incoming(content, self._max_bytes)
        with _translated(writing=True):
            # If the context ends with an error, the sent parts are deleted.
            async with obstore.open_writer_async(
                self._store,
                self._upload(name),
                buffer_size=PART_BYTES,
                max_concurrency=PART_CONCURRENCY,
            ) as writer:
                async for data in incoming:
                    await writer.write(data)
            upload = incoming.stored_as(name)
            await obstore.copy_async(self._store, self._upload(name), self._path(upload.sha256))
        return upload

    def keep(self, upload: Upload) -> None:
        """Ensure that the blob exists; see the contract.

        `receive` has already copied it, outside any lock. If the last file with the same content
        was deleted since, it is copied again.
        """
        import obstore  # noqa: PLC0415 - an extra

        path = self._path(upload.sha256)
        with _translated(writing=True):
            try:
                obstore.head(self._store, path)
            except FileNotFoundError:
                obstore.copy(self._store, self._upload(upload.name), path)

    async def discard(self, upload: Upload) -> None:
        """Delete an upload."""
        import obstore  # noqa: PLC0415 - an extra

        with suppress(CorralError), _translated(), suppress(FileNotFoundError):
            await obstore.delete_async(self._store, self._upload(upload.name))

    def drop(self, sha256: str) -> None:
        """Delete a blob, if it exists."""
        import obstore  # noqa: PLC0415 - an extra

        with _translated(), suppress(FileNotFoundError):
            obstore.delete(self._store, self._path(sha256))

    async def names(self) -> set[str]:
        """Return the SHA-256 of every blob."""
        uploads = self._upload("")
        return {name async for path, name, _ in self._objects("") if not path.startswith(uploads)}

    async def drop_stale_uploads(self, now: float) -> None:
        """Delete the unfinished uploads of dead processes."""
        import obstore  # noqa: PLC0415 - an extra

        oldest = datetime.fromtimestamp(now - STALE_SECONDS, UTC)
        stale = [p async for p, _, written in self._objects(UPLOADS) if written < oldest]
        if stale:
            with _translated(), suppress(FileNotFoundError):
                await obstore.delete_async(self._store, stale)

    async def read(self, sha256: str) -> AsyncGenerator[bytes, None]:
        """Open a blob; see the contract."""
        import obstore  # noqa: PLC0415 - an extra

        await self.prepare()
        with _translated():
            answer = await obstore.get_async(self._store, self._path(sha256))

        async def pieces() -> AsyncGenerator[bytes, None]:
            with _translated():
                async for piece in answer.stream(min_chunk_size=PIECE_BYTES):
                    yield bytes(piece)

        return verified(pieces(), sha256)

    @asynccontextmanager
    async def local(self, sha256: str) -> AsyncIterator[Path]:
        """Yield the path of a copy that is deleted at the end; see the contract."""
        content = await self.read(sha256)
        with tempfile.NamedTemporaryFile(prefix="corral-") as copy:
            async for piece in content:
                await asyncio.to_thread(copy.write, piece)
            copy.flush()
            yield Path(copy.name)

    async def _objects(self, folder: str) -> AsyncIterator[tuple[str, str, datetime]]:
        """Yield path, name and time of the objects of a folder."""
        import obstore  # noqa: PLC0415 - an extra

        await self.prepare()
        prefix = f"{self._root}/{folder}" if folder else self._root
        with _translated():
            async for some in obstore.list(self._store, prefix):
                for one in some:
                    yield one["path"], one["path"].rpartition("/")[2], one["last_modified"]

    def _path(self, sha256: str) -> str:
        return f"{self._root}/{sha256[:2]}/{sha256}"

    def _upload(self, name: str) -> str:
        return f"{self._root}/{UPLOADS}/{name}"


def _open_store(settings: FileSettings) -> ObjectStore:
    """Return the store of a URL; it connects at the first request."""
    try:
        from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra
        from obstore.store import from_url  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingDependency("files.url", "obstore", COMMAND) from None
    options: Any = {name: value.get_secret_value() for name, value in settings.options.items()}
    if settings.endpoint is not None:
        options["endpoint"] = settings.endpoint
    patience = timedelta(seconds=settings.timeout_seconds)
    requests: ClientConfig = {
        "allow_http": (settings.endpoint or "").startswith("http://"),
        "connect_timeout": patience,
        "read_timeout": patience,
        "timeout": timedelta(hours=1),  # timeout for a whole blob, however large
    }
    pauses: RetryConfig = {
        "max_retries": RETRIES,
        "retry_timeout": patience,
        "backoff": {
            "init_backoff": timedelta(seconds=FIRST_PAUSE_SECONDS),
            "max_backoff": patience,
            "base": 2,
        },
    }
    try:
        store: ObjectStore = from_url(
            str(settings.url), config=options, client_options=requests, retry_config=pauses
        )
    # the first line of the error quotes a key, never a value
    except (BaseError, ValueError) as error:
        raise ConfigError(
            f"files.url: the object storage cannot be configured ({type(error).__name__}).",
            hint="Check files.url and the names in files.options.",
            field="files",
        ) from None
    return store


@contextmanager
def _translated(*, writing: bool = False) -> Iterator[None]:
    """Translate obstore's errors, without their texts, which quote addresses and responses.

    Args:
        writing: True for a write, in which a missing object means a missing bucket.
    """
    from obstore import exceptions  # noqa: PLC0415 - an extra

    try:
        yield
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise ProviderError(
            "The object storage of files refuses access.",
            hint="Check the credentials, and their rights on the bucket of files.url.",
        ) from error
    except FileNotFoundError as error:
        if not writing:
            raise
        raise ProviderError(
            "The object storage of files has no such bucket.", hint="Create it: files.url names it."
        ) from error
    except (exceptions.BaseError, OSError) as error:
        raise Unavailable(
            "The object storage of files cannot be reached.",
            hint="Is it running, and are files.url and files.endpoint right?",
        ) from error
