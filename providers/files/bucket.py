"""The bytes of files in object storage: S3 and compatible services, GCS or Azure."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
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
    ID_LENGTH,
    MIB,
    PIECE_BYTES,
    SHA256_LENGTH,
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
"""Number of parts of an upload that are sent concurrently and held in memory."""
RETRIES = 2
FIRST_PAUSE_SECONDS = 0.2


class Bucket(Blobs):
    """Blobs in object storage: `<prefix>/<installation>/<aa>/<name>`, and `uploads/` beside them.

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

    async def check(self) -> None:
        """Request a blob that does not exist, to check the service."""
        import obstore  # noqa: PLC0415 - an extra

        path = await self._path("0" * 64)
        with _translated(), suppress(FileNotFoundError):
            await obstore.head_async(self._store, path)

    async def receive(self, content: AsyncIterator[bytes]) -> Upload:
        """Send incoming bytes in parts; see the contract."""
        import obstore  # noqa: PLC0415 - an extra

        name, incoming = uuid4().hex[:ID_LENGTH], Incoming(content, self._max_bytes)
        path = f"{await self._folder()}/{UPLOADS}/{name}"
        with _translated(writing=True):
            # If the context ends with an error, the sent parts are deleted.
            async with obstore.open_writer_async(
                self._store,
                path,
                buffer_size=PART_BYTES,
                max_concurrency=PART_CONCURRENCY,
            ) as writer:
                async for data in incoming:
                    await writer.write(data)
            upload = incoming.upload(name)
            try:
                await obstore.copy_async(self._store, path, await self._path(upload.blob))
            finally:
                with suppress(CorralError):  # The sweep deletes it later.
                    await self._delete(path)
        return upload

    async def delete(self, blob: str) -> None:
        """Delete a blob, if it exists."""
        await self._delete(await self._path(blob))

    async def names(self, before: float) -> set[str]:
        """Return the names of the blobs that were stored before a time."""
        paths = [path.split("/")[-2:] for path in await self._older("", before)]
        return {name for folder, name in paths if folder != UPLOADS}

    async def drop_stale_uploads(self, before: float) -> None:
        """Delete the incomplete uploads of dead processes."""
        stale = await self._older(f"/{UPLOADS}", before)
        if stale:
            await self._delete(stale)

    async def read(self, blob: str) -> AsyncGenerator[bytes, None]:
        """Open a blob; see the contract."""
        import obstore  # noqa: PLC0415 - an extra

        path = await self._path(blob)
        with _translated():
            answer = await obstore.get_async(self._store, path)

        async def pieces() -> AsyncGenerator[bytes, None]:
            with _translated():
                async for piece in answer.stream(min_chunk_size=PIECE_BYTES):
                    yield bytes(piece)

        return verified(pieces(), blob[:SHA256_LENGTH])

    @asynccontextmanager
    async def local(self, blob: str) -> AsyncIterator[Path]:
        """Yield the path of a copy that is deleted at the end; see the contract."""
        content = await self.read(blob)
        with tempfile.NamedTemporaryFile(prefix="corral-") as copy:
            async for piece in content:
                await asyncio.to_thread(copy.write, piece)
            copy.flush()
            yield Path(copy.name)

    async def _delete(self, paths: str | list[str]) -> None:
        import obstore  # noqa: PLC0415 - an extra

        with _translated(), suppress(FileNotFoundError):
            await obstore.delete_async(self._store, paths)

    async def _older(self, folder: str, before: float) -> list[str]:
        """Return the paths of the objects in a folder that were stored before a time."""
        import obstore  # noqa: PLC0415 - an extra

        prefix, older = f"{await self._folder()}{folder}", []
        with _translated():
            async for some in obstore.list(self._store, prefix):
                older += [one["path"] for one in some if one["last_modified"].timestamp() < before]
        return older

    async def _folder(self) -> str:
        """Return the folder of the installation."""
        self._root = self._root or await self._installation()
        return self._root

    async def _path(self, blob: str) -> str:
        return f"{await self._folder()}/{blob[:2]}/{blob}"


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
        "timeout": timedelta(hours=1),  # Timeout for a whole blob, however large.
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
    # The first line of the error quotes a key, never a value.
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
