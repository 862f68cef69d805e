"""Uploaded files: a table of names over blobs.

Files with equal content share the newest blob of that content. No transaction waits for the storage
of the blobs: an upload becomes a blob before a file names it, and a blob is deleted after the
transaction that deletes its last file. A process that is killed in between leaves a blob without a
file. The sweep deletes it after `STALE_SECONDS`, and an upload that old can no longer become a
file.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Literal
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, delete, insert, or_, select, true, update

from corral.api.errors import InvalidRequest, NotFound, ProviderError, Unavailable
from corral.api.principal import Principal
from corral.api.wire import strip_nul
from corral.providers.base.cursor import Places
from corral.providers.base.file_config import FileSettings
from corral.providers.files.blobs import MIB, STALE_SECONDS, BlobFolder, Blobs
from corral.providers.files.bucket import Bucket
from corral.providers.state.state import Area, State
from corral.providers.state.tables import FILES

MAX_FILENAME_LENGTH = 255
MAX_PAGE = 10_000
MAX_ADDING_SECONDS = STALE_SECONDS / 2
"""Maximum time from the last bytes of an upload to its file; clocks may differ by as much."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An uploaded file.

    Attributes:
        file_id: "file-" and 24 hex digits.
        filename: The name from the upload; never used as a path.
        bytes: Size in bytes.
        sha256: Digest of the content, 64 hex digits.
        purpose: Purpose from the upload, such as "assistants".
        created_at: Unix seconds.
        expires_at: Time of expiry in Unix seconds; None if the file does not expire.
        tenant: The owning tenant; "" is the default tenant.
        owner: The user who uploaded it.
        charset: Charset of its text, as declared by its sender; "" if it was not.
        blob: Name of the blob with its content; a new upload of the same content changes it.
    """

    file_id: str
    filename: str
    bytes: int
    sha256: str
    purpose: str
    created_at: int
    expires_at: int | None
    tenant: str
    owner: str = ""
    charset: str = ""
    blob: str = field(default="", compare=False)


_FILES = FILES.c
_FIELDS = [field.name for field in fields(StoredFile)]
_COLUMNS = [_FILES[name] for name in _FIELDS]


class FileStore:
    """Files of one data folder, shared safely by tasks and processes; see `FileStore.open`.

    Args:
        table: The names of the files.
        blobs: The bytes of the files.
        places: Positions of the ends of earlier pages.
        clock: Returns the time in Unix seconds.
        principal: Only files that this principal may see; None for all files.
    """

    def __init__(
        self,
        table: Area,
        blobs: Blobs,
        places: Places[int],
        clock: Callable[[], float],
        principal: Principal | None = None,
    ) -> None:
        self._table, self._blobs, self._places = table, blobs, places
        self._clock = clock
        self._principal = principal

    @classmethod
    def open(
        cls,
        home: Path,
        state: State,
        settings: FileSettings,
        *,
        clock: Callable[[], float] = time.time,
    ) -> FileStore:
        """Return all files of a data folder.

        The bytes are in `blobs/`, which the first call creates, or in object storage. A blob is
        deleted with the last file that has its content.

        Args:
            home: The data folder.
            state: The tables.
            settings: Maximum size of a file, and the location of the bytes.
            clock: Returns the time in Unix seconds.

        Raises:
            MissingDependency, ConfigError: As for `Bucket`.
        """
        if settings.url is None:
            blobs: Blobs = BlobFolder(home / "blobs", int(settings.max_mib * MIB))
        else:
            blobs = Bucket(settings, state.installation)
        return cls(state.area("files"), blobs, Places(), clock)

    def of(self, principal: Principal) -> FileStore:
        """Return the files of a principal: its user's uploads, or for an admin its tenant's.

        Other files are hidden, because a file has all parts of a document, including parts that the
        principal may not read.
        """
        return FileStore(self._table, self._blobs, self._places, self._clock, principal)

    async def add(
        self,
        content: AsyncIterator[bytes],
        *,
        filename: str,
        purpose: str,
        expires_after_seconds: int | None = None,
        tenant: str = "",
        charset: str = "",
    ) -> StoredFile:
        """Store a file durably, and return its record.

        Args:
            content: Bytes in pieces of any size, read during the write.
            filename: 1 to 255 characters.
            purpose: Purpose of the file.
            expires_after_seconds: Lifetime in seconds, >= 1; None to keep it until it is deleted.
            tenant: The owning tenant; ignored in the files of a principal, which belong to its
                tenant.
            charset: Charset of a text; "" to detect it.

        Raises:
            TooLarge: The file exceeds `max_bytes`; nothing was stored.
            InvalidRequest: The file is empty, or its name is empty or too long.
            ProviderError: The file cannot be written.
        """
        name = _checked(filename)
        arrived = self._clock()

        async def timed() -> AsyncIterator[bytes]:
            nonlocal arrived
            async for piece in content:
                arrived = self._clock()
                yield piece

        upload = await self._blobs.receive(timed())
        now = int(self._clock())
        expires = None if expires_after_seconds is None else now + expires_after_seconds
        file_id = f"file-{uuid4().hex[:24]}"
        who = self._principal or Principal(tenant)
        whose = (who.tenant, who.user, charset, upload.blob)
        file = StoredFile(file_id, name, upload.bytes, upload.sha256, purpose, now, expires, *whose)
        await self._drop(await self._table.write(lambda table: self._insert(table, file, arrived)))
        return file

    async def get(self, file_id: str) -> StoredFile:
        """Return a file.

        Raises:
            NotFound: The file does not exist or has expired.
        """
        query = select(*_COLUMNS).where(_FILES.file_id == file_id, self._visible)
        rows = await self._table.read(query)
        file = StoredFile(*rows[0]) if rows else None
        if file is None or self._is_over(file):
            raise NotFound(f"There is no file {file_id!r}.", field="file_id")
        return file

    async def page(
        self,
        *,
        purpose: str | None = None,
        after: str | None = None,
        limit: int = MAX_PAGE,
        order: Literal["asc", "desc"] = "desc",
        tenant: str | None = None,
    ) -> tuple[list[StoredFile], bool]:
        """Return files in the order of their upload, and True if more follow.

        Args:
            purpose: Only files with this purpose.
            after: Only files after this one.
            limit: Maximum files in the page, 1 to 10,000.
            order: "desc" for newest first, "asc" for oldest first.
            tenant: Only files of this tenant; None for all tenants.

        Raises:
            InvalidRequest: The file `after` does not exist.
        """
        newest_first = order == "desc"
        alive = or_(_FILES.expires_at.is_(None), _FILES.expires_at > int(self._clock()))
        query = select(*_COLUMNS, _FILES.number).where(alive, self._visible)
        if purpose is not None:
            query = query.where(_FILES.purpose == purpose)
        if tenant is not None:
            query = query.where(_FILES.tenant == tenant)
        if after is not None:
            number = await self._number(after, tenant)
            query = query.where(_FILES.number < number if newest_first else _FILES.number > number)
        place = _FILES.number.desc() if newest_first else _FILES.number
        rows = await self._table.read(query.order_by(place).limit(limit + 1))
        found = [StoredFile(*row[:-1]) for row in rows[:limit]]
        if found:
            self._places.keep((*self._whose, tenant, found[-1].file_id), rows[:limit][-1].number)
        return found, len(rows) > limit

    async def delete(self, file_id: str) -> None:
        """Delete a file, and its bytes if no other file has the same.

        If the storage of the bytes is unavailable, the sweep deletes them later.

        Raises:
            NotFound: The file does not exist or has expired.
        """
        file = await self.get(file_id)
        if not await self._delete([file]):
            raise NotFound(f"There is no file {file_id!r}.", field="file_id")

    async def read(self, file: StoredFile) -> AsyncGenerator[bytes, None]:
        """Open a file, and return its bytes in pieces; the end of a damaged file is missing.

        Raises:
            NotFound: The file was deleted in the meantime.
            ProviderError: The bytes are missing or cannot be read; damage is raised during
                iteration.
        """
        while True:
            try:
                return await self._blobs.read(file.blob)
            except FileNotFoundError:
                file = await self._moved(file)

    @asynccontextmanager
    async def local(self, file: StoredFile) -> AsyncIterator[Path]:
        """Yield the path of a local copy of a file, for reading.

        Raises:
            NotFound, ProviderError: As for `read`; also if the bytes are damaged.
        """
        async with AsyncExitStack() as opened:
            path = None
            while path is None:
                try:
                    path = await opened.enter_async_context(self._blobs.local(file.blob))
                except FileNotFoundError:
                    file = await self._moved(file)
            yield path

    async def check(self) -> None:
        """Raise CorralError if the table or the bytes of files cannot be read now."""
        await self.page(limit=1)
        await self._blobs.check()

    async def expire(self) -> int:
        """Delete expired files and leftovers of killed processes; return the number of files."""
        query = select(*_COLUMNS).where(_FILES.expires_at <= int(self._clock()))
        rows = await self._table.read(query)
        count = await self._delete([StoredFile(*row) for row in rows])
        before = self._clock() - STALE_SECONDS
        await self._blobs.drop_stale_uploads(before)
        stale = await self._blobs.names(before)
        if stale:
            stale -= {row.blob for row in await self._table.read(select(_FILES.blob))}
        if stale:
            # In a transaction, so that no upload of a frozen process can name one of them in
            # between.
            await self._drop(await self._table.write(lambda table: _unnamed(table, stale)))
        return count

    # --- inside ------------------------------------------------------------------------------

    @property
    def _whose(self) -> tuple[str | None, str | None]:
        """The tenant and the owner of the files that the principal may see; None for any."""
        who = self._principal
        return (None, None) if who is None else (who.tenant, None if who.reads_all else who.user)

    @property
    def _visible(self) -> ColumnElement[bool]:
        """SQL condition for the principal's visible files."""
        tenant, owner = self._whose
        of_tenant = true() if tenant is None else _FILES.tenant == tenant
        return of_tenant if owner is None else of_tenant & (_FILES.owner == owner)

    def _insert(self, table: Connection, file: StoredFile, arrived: float) -> list[str]:
        """Insert a file; return the older blobs of equal content, which no file names any more."""
        if self._clock() > arrived + MAX_ADDING_SECONDS:
            raise Unavailable("The upload took too long to be stored.", hint="Send it again.")
        same = _FILES.sha256 == file.sha256
        replaced = list(table.scalars(select(_FILES.blob).where(same).distinct()))
        table.execute(update(FILES).where(same).values(blob=file.blob))
        table.execute(insert(FILES), asdict(file))
        return replaced

    async def _delete(self, files: Collection[StoredFile]) -> int:
        """Delete files, then their blobs; return the number of deleted files."""
        if not files:
            return 0
        removed = delete(FILES).where(_FILES.file_id.in_([file.file_id for file in files]))

        def remove(table: Connection) -> tuple[int, list[str]]:
            blobs = list(table.scalars(removed.returning(_FILES.blob)))
            return len(blobs), _unnamed(table, set(blobs))

        count, blobs = await self._table.write(remove)
        await self._drop(blobs)
        return count

    async def _drop(self, blobs: Iterable[str]) -> None:
        """Delete blobs that no file names; leave them to the sweep if that fails."""
        try:
            for blob in blobs:
                await self._blobs.delete(blob)
        except ProviderError as error:
            _LOG.warning("The sweep will delete blobs without a file: %s", error)

    async def _moved(self, file: StoredFile) -> StoredFile:
        """Read a file again if its blob was replaced.

        Raises:
            NotFound: The file was deleted.
            ProviderError: Its blob is missing.
        """
        now = await self.get(file.file_id)
        if now.blob != file.blob:
            return now
        raise ProviderError(
            f"The content of {file.file_id} is gone from the storage of files.",
            hint="Restore the blobs from a backup, or upload the file again.",
        )

    async def _number(self, file_id: str, tenant: str | None) -> int:
        """Return the position of a file to continue after; a cached one if the file is gone."""
        query = select(_FILES.number).where(_FILES.file_id == file_id, self._visible)
        if tenant is not None:
            query = query.where(_FILES.tenant == tenant)
        rows = await self._table.read(query)
        number = rows[0].number if rows else self._places.find((*self._whose, tenant, file_id))
        if number is None:
            raise InvalidRequest(
                f"There is no file {file_id!r} to continue after.",
                hint="Use the last id of the previous page.",
                field="after",
            )
        return int(number)

    def _is_over(self, file: StoredFile) -> bool:
        return file.expires_at is not None and file.expires_at <= self._clock()


def _unnamed(table: Connection, blobs: Collection[str]) -> list[str]:
    """Return the blobs that no file names, within a transaction."""
    return [
        blob
        for blob in blobs
        if table.execute(select(_FILES.number).where(_FILES.blob == blob).limit(1)).first() is None
    ]


def _checked(filename: str) -> str:
    name = str(strip_nul(filename))
    if not 1 <= len(name) <= MAX_FILENAME_LENGTH:
        raise InvalidRequest(
            f"A file name has 1 to {MAX_FILENAME_LENGTH} characters (got {len(name)}).",
            field="file",
        )
    return name
