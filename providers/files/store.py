"""Uploaded files: a table of names over content-addressed blobs."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Literal
from uuid import uuid4

import apsw

from corral.api.errors import CorralError, InvalidRequest, NotFound, ProviderError
from corral.api.principal import Principal
from corral.api.wire import strip_nul
from corral.providers.base.config import FileSettings
from corral.providers.base.cursor import Places
from corral.providers.base.database import Database, Schema
from corral.providers.files.blobs import MIB, BlobFolder, Blobs, Upload
from corral.providers.files.bucket import Bucket

MAX_FILENAME_LENGTH = 255
MAX_PAGE = 10_000

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS files"
    " (number INTEGER PRIMARY KEY AUTOINCREMENT, file_id TEXT NOT NULL UNIQUE,"
    " filename TEXT NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT NULL, purpose TEXT NOT NULL,"
    " created_at INTEGER NOT NULL, expires_at INTEGER, tenant TEXT NOT NULL,"
    " owner TEXT NOT NULL, charset TEXT NOT NULL) STRICT",
    "CREATE INDEX IF NOT EXISTS files_by_content ON files (sha256)",
    "CREATE INDEX IF NOT EXISTS files_by_expiry ON files (expires_at) WHERE expires_at NOT NULL",
)
TABLES = Schema(SCHEMA)
REMEDY = (
    "Restore it from a backup, or move it and the folder blobs away and upload the files again."
)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An uploaded file.

    Attributes:
        file_id: "file-" and 24 hex digits.
        filename: As its sender gave it; never used as a path.
        bytes: Its size.
        sha256: Of its content, 64 hex digits.
        purpose: What its sender wants it for, such as "assistants".
        created_at: Unix seconds.
        expires_at: Unix seconds, from which on it is gone; None: never.
        tenant: Whose it is; "" is the default tenant.
        owner: The user who uploaded it.
        charset: Of its text, as its sender named it; "" if not.
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


_COLUMNS = ", ".join(field.name for field in fields(StoredFile))
_VISIBLE = "ifnull(tenant = ?, 1) AND ifnull(owner = ?, 1)"
"""What a principal sees; null stands for any."""


class FileStore:
    """Files of one data folder, shared safely by tasks and processes; see `FileStore.open`.

    Args:
        table: The names of the files.
        blobs: The bytes of the files.
        places: Positions of the ends of earlier pages.
        clock: Returns the time in Unix seconds.
        principal: Only files that this principal may see; None: all files.
    """

    def __init__(
        self,
        table: Database,
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
        settings: FileSettings,
        installation: Callable[[], Awaitable[str]],
        *,
        clock: Callable[[], float] = time.time,
    ) -> FileStore:
        """Return all files of a data folder.

        The table is `files.db`, the bytes are in `blobs/` or in object storage; the first call
        creates both. A blob is deleted with the last file of its content.

        Args:
            settings: Maximum size of a file, and where the bytes are.
            installation: Returns the id of the installation.
            clock: Returns the time in Unix seconds.

        Raises:
            MissingDependency, ConfigError: As `Bucket`.
        """
        table = Database(home / "files.db", TABLES, remedy=REMEDY)
        if settings.url is None:
            blobs: Blobs = BlobFolder(home / "blobs", int(settings.max_mib * MIB))
        else:
            blobs = Bucket(settings, installation)
        return cls(table, blobs, Places(), clock)

    def of(self, principal: Principal) -> FileStore:
        """Return the files of a principal: its user's uploads, or for an admin its tenant's.

        Other files do not exist for it, because a file has all parts of a document, also parts that
        the principal may not read.
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
        """Store a file durably, and return what was stored.

        Args:
            content: Its bytes, in pieces of any size; read as they are written.
            filename: 1 to 255 characters.
            purpose: What it is for.
            expires_after_seconds: How long it is kept, >= 1; None: until it is deleted.
            tenant: Whose it is; in the files of a principal, always its own.
            charset: Of its text; "" for what its bytes say.

        Raises:
            TooLarge: It has more than `max_bytes`; nothing was stored, as with the others.
            InvalidRequest: It is empty, or its name is empty or too long.
            ProviderError: It cannot be written.
        """
        name = _checked(filename)
        upload = await self._blobs.receive(content)
        now = int(self._clock())
        expires = None if expires_after_seconds is None else now + expires_after_seconds
        file_id = f"file-{uuid4().hex[:24]}"
        who = self._principal or Principal(tenant)
        whose = (who.tenant, who.user, charset)
        file = StoredFile(file_id, name, upload.bytes, upload.sha256, purpose, now, expires, *whose)
        try:
            await self._table.write(lambda table: self._insert(table, file, upload))
        finally:
            await self._blobs.discard(upload)
        return file

    async def get(self, file_id: str) -> StoredFile:
        """Return a file.

        Raises:
            NotFound: There is none of that id, or it has expired.
        """
        query = f"SELECT {_COLUMNS} FROM files WHERE file_id = ? AND {_VISIBLE}"  # noqa: S608 - ours
        rows = await self._table.read(query, file_id, *self._visible())
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
        """Return files in the order of their upload, and whether more follow.

        Args:
            purpose: Only those of this purpose.
            after: Only those that follow this file.
            limit: Most files of the page, 1 to 10,000.
            order: "desc" has the newest first.
            tenant: Only those of this tenant; None: of all.

        Raises:
            InvalidRequest: There is no file `after`.
        """
        newest_first = order == "desc"
        conditions: dict[str, apsw.SQLiteValue] = {"ifnull(expires_at > ?, 1)": int(self._clock())}
        if purpose is not None:
            conditions["purpose = ?"] = purpose
        if tenant is not None:
            conditions["tenant = ?"] = tenant
        if after is not None:
            number = await self._number(after, tenant)
            conditions[f"number {'<' if newest_first else '>'} ?"] = number
        query = (
            f"SELECT {_COLUMNS}, number FROM files"  # noqa: S608 - our own columns
            f" WHERE {' AND '.join([*conditions, _VISIBLE])}"
            f" ORDER BY number {'DESC' if newest_first else 'ASC'} LIMIT ?"
        )
        rows = await self._table.read(query, *conditions.values(), *self._visible(), limit + 1)
        found = [StoredFile(*row[:-1]) for row in rows[:limit]]
        if found:
            self._places.keep((*self._visible(), tenant, found[-1].file_id), rows[:limit][-1][-1])
        return found, len(rows) > limit

    async def delete(self, file_id: str) -> None:
        """Delete a file, and its bytes where no other file has the same.

        Raises:
            NotFound: There is none of that id, or it has expired.
        """
        file = await self.get(file_id)
        if not await self._delete([file]):
            raise NotFound(f"There is no file {file_id!r}.", field="file_id")

    async def read(self, file: StoredFile) -> AsyncGenerator[bytes, None]:
        """Open a file, and return its bytes in pieces; the end of a damaged one is missing.

        Raises:
            NotFound: It was deleted in the meantime.
            ProviderError: Its bytes are gone or cannot be read now; later, while they are
                iterated, if they are damaged.
        """
        try:
            return await self._blobs.read(file.sha256)
        except FileNotFoundError:
            raise await self._lost(file) from None

    @asynccontextmanager
    async def local(self, file: StoredFile) -> AsyncIterator[Path]:
        """Yield the path of a file of this machine with a file's bytes, for reading.

        Raises:
            NotFound, ProviderError: As `read`; also if the bytes are damaged.
        """
        async with AsyncExitStack() as opened:
            try:
                path = await opened.enter_async_context(self._blobs.local(file.sha256))
            except FileNotFoundError:
                raise await self._lost(file) from None
            yield path

    async def check(self) -> None:
        """Raise CorralError if the table or the bytes of files cannot be read now."""
        await self.page(limit=1)
        await self._blobs.check()

    async def expire(self) -> int:
        """Delete what has expired, and what killed processes have left; return how many files."""
        query = f"SELECT {_COLUMNS} FROM files WHERE expires_at <= ?"  # noqa: S608 - our own columns
        rows = await self._table.read(query, int(self._clock()))
        count = await self._delete([StoredFile(*row) for row in rows])
        await self._blobs.drop_stale_uploads(self._clock())
        await self._drop_unnamed(await self._unnamed())
        return count

    async def close(self) -> None:
        """Close the table after the running calls."""
        await self._table.close()

    # --- inside ------------------------------------------------------------------------------

    def _visible(self) -> tuple[str | None, str | None]:
        """Return what `_VISIBLE` is bound to."""
        who = self._principal
        return (None, None) if who is None else (who.tenant, None if who.reads_all else who.user)

    def _insert(self, table: apsw.Connection, file: StoredFile, upload: Upload) -> None:
        """Name the blob within the transaction: who deletes blobs holds the same lock."""
        marks = ", ".join("?" * len(fields(StoredFile)))
        self._blobs.keep(upload)
        table.execute(f"INSERT INTO files ({_COLUMNS}) VALUES ({marks})", astuple(file))  # noqa: S608

    async def _delete(self, files: Collection[StoredFile]) -> int:
        """Delete files that are there, then their blobs; return how many files were deleted.

        In two transactions: a process that is killed between them leaves a blob that no file names,
        for `expire` to find, and never a file without its bytes.
        """

        def delete(table: apsw.Connection) -> int:
            before = table.total_changes()
            table.executemany("DELETE FROM files WHERE file_id = ?", [(f.file_id,) for f in files])
            return table.total_changes() - before

        await self._blobs.prepare()
        count = await self._table.write(delete) if files else 0
        await self._drop_unnamed({file.sha256 for file in files})
        return count

    async def _unnamed(self) -> set[str]:
        """Return the blobs that no file named when this looked."""
        blobs = await self._blobs.names()
        if not blobs:
            return blobs
        return blobs - {name for (name,) in await self._table.read("SELECT sha256 FROM files")}

    async def _drop_unnamed(self, blobs: Collection[str]) -> None:
        """Delete those of some blobs that no file names."""

        def drop(table: apsw.Connection) -> None:
            for blob in blobs:
                query = "SELECT 1 FROM files WHERE sha256 = ?"
                if not table.execute(query, (blob,)).fetchone():
                    self._blobs.drop(blob)

        if blobs:
            await self._table.write(drop)

    async def _lost(self, file: StoredFile) -> CorralError:
        """Return the error for a file without bytes, unless it was deleted."""
        await self.get(file.file_id)
        return ProviderError(
            f"The content of {file.file_id} is gone from the storage of files.",
            hint="Restore the blobs from a backup, or upload the file again.",
        )

    async def _number(self, file_id: str, tenant: str | None) -> int:
        """Return where a file stands, or stood when it was the end of a page."""
        visible = f"ifnull(tenant = ?, 1) AND {_VISIBLE}"
        query = f"SELECT number FROM files WHERE file_id = ? AND {visible}"  # noqa: S608 - ours
        rows = await self._table.read(query, file_id, tenant, *self._visible())
        number = rows[0][0] if rows else self._places.find((*self._visible(), tenant, file_id))
        if number is None:
            raise InvalidRequest(
                f"There is no file {file_id!r} to continue after.",
                hint="Use the last id of the previous page.",
                field="after",
            )
        return int(number)

    def _is_over(self, file: StoredFile) -> bool:
        return file.expires_at is not None and file.expires_at <= self._clock()


def _checked(filename: str) -> str:
    name = str(strip_nul(filename))
    if not 1 <= len(name) <= MAX_FILENAME_LENGTH:
        raise InvalidRequest(
            f"A file name has 1 to {MAX_FILENAME_LENGTH} characters (got {len(name)}).",
            field="file",
        )
    return name
