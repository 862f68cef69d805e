"""A write-ahead log, for engines without transactions over several requests.

The whole write is logged durably before the engine gets the first byte, and the entry is deleted
after the write has ended. A process that is killed in between leaves the entry, and the next open,
write or `settle` of the vector DB repeats it. Writes are idempotent, so a repeated half does no
harm, and a document never stays half replaced.

If a write fails, the engine undoes it, and the entry is deleted. If the engine cannot be reached,
the outcome is unknown: the entry stays, and the write is finished when the engine is back.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from typing_extensions import override

from corral.api.chunks import Chunk
from corral.api.documents import DocumentCount, DocumentPage, DocumentQuery
from corral.api.engine import Engine
from corral.api.errors import CorralError, Unavailable
from corral.api.filters import Filter
from corral.api.hits import Candidate, SearcherState, TermStatistics
from corral.api.vector_dbs import VectorDB
from corral.providers.base.disk import sync_folder
from corral.providers.vector_io.kit.names import stored_name

FOLDER = "notes"
"""Name of the folder with the logs, in the data folder."""

VERSION = 1
UNREADABLE = ValueError, KeyError
"""Errors of `Intent.from_bytes` for an entry that is malformed or has another version."""

WAIT_SECONDS = 60.0
"""Maximum time, in seconds, that a write waits for another process's write to its vector DB."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Intent:
    """A logged write: chunks to store and documents to replace, or a deletion.

    Attributes:
        chunks: Chunks to store.
        embeddings: Shape (len(chunks), dimension).
        replaced: Ids of documents to replace; their other chunks are deleted.
        deleted: Ids of chunks to delete; None if chunks are stored.
    """

    chunks: Sequence[Chunk]
    embeddings: NDArray[np.float32]
    replaced: frozenset[str]
    deleted: Sequence[str] | None = None

    def to_bytes(self) -> bytes:
        """Return the entry: a line of JSON, a line for each chunk, and the embeddings."""
        head = {
            "version": VERSION,
            "chunks": len(self.chunks),
            "dimension": self.embeddings.shape[1],
            "replaced": sorted(self.replaced),
            "deleted": None if self.deleted is None else list(self.deleted),
        }
        lines = [json.dumps(head), *(c.model_dump_json(exclude={"embedding"}) for c in self.chunks)]
        numbers = self.embeddings.astype("<f4").tobytes()
        return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass") + numbers

    @classmethod
    def from_bytes(cls, entry: bytes) -> Intent:
        """Return the write in an entry.

        Raises:
            ValueError, KeyError: The entry is malformed or has another version.
        """
        head_line, _, rest = entry.partition(b"\n")
        head = json.loads(head_line)
        if head["version"] != VERSION:
            raise ValueError("another version")
        *lines, numbers = rest.split(b"\n", head["chunks"])
        rows = np.frombuffer(numbers, "<f4").reshape(head["chunks"], head["dimension"])
        chunks = [Chunk.model_validate_json(line) for line in lines]
        return cls(chunks, rows.astype(np.float32), frozenset(head["replaced"]), head["deleted"])


class WriteLog(ABC):
    """The log of one vector DB, with at most one entry."""

    @abstractmethod
    def locked(self) -> AbstractAsyncContextManager[None]:
        """Exclude all other writers to the vector DB, in any process.

        Raises:
            Unavailable: Another process is still writing after `WAIT_SECONDS`, or has taken over
                the lock because this process was frozen. In the latter case, the outcome of the
                write is unknown.
        """

    @abstractmethod
    async def pending(self) -> Intent | None:
        """Return the unfinished write, if any. Needs the lock."""

    @abstractmethod
    async def log(self, intent: Intent) -> None:
        """Store an entry durably. Needs the lock."""

    @abstractmethod
    async def clear(self) -> None:
        """Delete the entry. Needs the lock."""

    @abstractmethod
    async def drop(self) -> None:
        """Delete the entry of a vector DB that is being deleted. Does not need the lock."""


WriteLogs: TypeAlias = Callable[[VectorDB], WriteLog]
"""Returns the log of a vector DB."""


class FileWriteLog(WriteLog):
    """A log in a folder. Its lock spans all processes that use the folder.

    Args:
        folder: Folder of the entries; created with the first entry.
    """

    def __init__(self, folder: Path, vector_db: VectorDB) -> None:
        name = stored_name(vector_db)
        self._folder = folder
        self._path = folder / f"{name}.note"
        self._tasks = asyncio.Lock()
        self._processes = FileLock(folder / f"{name}.lock", thread_local=False)

    @classmethod
    def of_home(cls, home: Path) -> WriteLogs:
        """Return the logs in a data folder."""
        return partial(cls, home / FOLDER)

    @override
    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        async with self._tasks:
            try:
                await asyncio.to_thread(self._acquire)
            except Timeout:
                raise Unavailable(
                    "Another process writes to this vector DB.", hint="Try again."
                ) from None
            try:
                yield
            finally:
                await asyncio.shield(asyncio.to_thread(self._processes.release))

    def _acquire(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._processes.acquire(timeout=WAIT_SECONDS)

    @override
    async def pending(self) -> Intent | None:
        return await asyncio.to_thread(self._read)

    def _read(self) -> Intent | None:
        try:
            return Intent.from_bytes(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except UNREADABLE as error:
            log.error("A note of a write cannot be read and is put aside: %s", type(error).__name__)
            self._path.replace(self._path.with_suffix(".unread"))
            return None

    @override
    async def log(self, intent: Intent) -> None:
        await asyncio.to_thread(self._write, intent)

    def _write(self, intent: Intent) -> None:
        temporary = self._path.with_suffix(".new")
        with temporary.open("wb") as file:
            file.write(intent.to_bytes())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        sync_folder(self._folder)

    @override
    async def clear(self) -> None:
        await asyncio.to_thread(self._path.unlink, missing_ok=True)

    @override
    async def drop(self) -> None:
        await self.clear()


class WriteAheadEngine(Engine):
    """Logs each write before the engine carries it out.

    The engine's `add` and `delete` must be repeatable with the same arguments, and must undo
    themselves if they fail with an error that is not retryable.

    Args:
        engine: The engine that stores and searches.
        log: The log of its vector DB.
    """

    def __init__(self, engine: Engine, log: WriteLog) -> None:
        super().__init__(engine.vector_db)
        self.has_term_statistics = engine.has_term_statistics
        self.engine = engine
        self.log = log

    @classmethod
    async def open(cls, engine: Engine, logs: WriteLogs) -> WriteAheadEngine:
        """Return an engine with its log, after finishing an unfinished write.

        Raises:
            ProviderError: The engine cannot be reached; it is closed.
        """
        opened = cls(engine, logs(engine.vector_db))
        try:
            async with opened.log.locked():
                await opened._finish()
        except BaseException:
            await engine.close()
            raise
        return opened

    @override
    def reconfigure(self, vector_db: VectorDB) -> None:
        super().reconfigure(vector_db)
        self.engine.reconfigure(vector_db)

    # --- logged ------------------------------------------------------------------------------

    @override
    async def add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        await self._logged(Intent(chunks, embeddings, replace_documents))

    @override
    async def delete(self, chunk_ids: Sequence[str]) -> None:
        none = np.empty((0, self.vector_db.embedding_dimension), np.float32)
        await self._logged(Intent([], none, frozenset(), list(chunk_ids)))

    @override
    async def drop(self) -> None:
        await self.engine.drop()
        await self.log.drop()

    async def _logged(self, intent: Intent) -> None:
        async with self.log.locked():
            await self._finish()
            await self.log.log(intent)
            try:
                await self._carry_out(intent)
            except CorralError as error:
                # The engine has undone the write. After other errors it may have happened.
                if not error.retryable:
                    await self.log.clear()
                raise
            await self.log.clear()

    async def _finish(self) -> None:
        """Carry out an unfinished write, under the lock."""
        pending = await self.log.pending()
        if pending is None:
            return
        try:
            await self._carry_out(pending)
        except CorralError as error:
            if error.retryable:
                raise
            log.error("A write that was cut off cannot be finished: %s", type(error).__name__)
        await self.log.clear()

    async def _carry_out(self, intent: Intent) -> None:
        if intent.deleted is None:
            await self.engine.add(intent.chunks, intent.embeddings, intent.replaced)
        else:
            await self.engine.delete(intent.deleted)

    # --- passed on ---------------------------------------------------------------------------

    @override
    async def search_vector(
        self, embedding: NDArray[np.float32], k: int, filters: Filter | None
    ) -> Sequence[Candidate]:
        return await self.engine.search_vector(embedding, k, filters)

    @override
    async def search_keyword(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        return await self.engine.search_keyword(query_string, k, filters, by)

    @override
    async def search_hybrid(
        self, embedding: NDArray[np.float32], query_string: str, k: int, filters: Filter | None
    ) -> tuple[Sequence[Candidate], Sequence[Candidate]]:
        return await self.engine.search_hybrid(embedding, query_string, k, filters)

    @override
    async def search_fuzzy(
        self, query_string: str, k: int, filters: Filter | None, by: TermStatistics | None = None
    ) -> Sequence[Candidate]:
        return await self.engine.search_fuzzy(query_string, k, filters, by)

    @override
    async def term_statistics(self, query_string: str, fuzzy: bool) -> TermStatistics:
        return await self.engine.term_statistics(query_string, fuzzy)

    @override
    async def get(self, chunk_ids: Sequence[str], include_embeddings: bool) -> Sequence[Chunk]:
        return await self.engine.get(chunk_ids, include_embeddings)

    @override
    async def count(self) -> int:
        return await self.engine.count()

    @override
    async def chunk_ids(self, after: str, limit: int) -> Sequence[str]:
        return await self.engine.chunk_ids(after, limit)

    @override
    async def documents(self, after: str, limit: int) -> Sequence[DocumentCount]:
        return await self.engine.documents(after, limit)

    @override
    async def document_chunk_ids(self, document_id: str) -> Sequence[str]:
        return await self.engine.document_chunk_ids(document_id)

    @override
    async def count_passing(self, filters: Filter) -> int:
        return await self.engine.count_passing(filters)

    @override
    async def chunk_ids_passing(self, after: str, limit: int, filters: Filter) -> Sequence[str]:
        return await self.engine.chunk_ids_passing(after, limit, filters)

    @override
    async def documents_passing(
        self, after: str, limit: int, filters: Filter | None
    ) -> Sequence[DocumentCount]:
        return await self.engine.documents_passing(after, limit, filters)

    @override
    async def document_page(self, query: DocumentQuery, filters: Filter | None) -> DocumentPage:
        return await self.engine.document_page(query, filters)

    @override
    async def searcher_state(self) -> SearcherState | None:
        return await self.engine.searcher_state()

    @override
    async def settle(self) -> None:
        async with self.log.locked():
            await self._finish()
        await self.engine.settle()

    @override
    async def close(self) -> None:
        await self.engine.close()
