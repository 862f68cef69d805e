"""Write-ahead notes, for engines without transactions over several requests.

Before the first byte goes to the engine, the whole write is noted on disk, and the note is deleted
when the write has ended. A process that is killed in between leaves its note, and whoever opens or
writes to the vector DB next carries it out once more: writes are idempotent, so that what had been
done of it does no harm. So a document never stays half replaced.

A write that fails is undone by the engine's own code, and its note goes. Where the engine cannot be
reached the outcome is open: the note stays, and the write is finished when the engine is back.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import CorralError, Unavailable
from corral.api.vector_dbs import VectorDB
from corral.providers.base.disk import sync_folder
from corral.providers.vector_io.kit.names import stored_name

VERSION = 1
WAIT_SECONDS = 60.0
"""How long a write waits for that of another process to the same vector DB."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Intent:
    """A write as it is noted: chunks with their embeddings and what they replace, or a deletion.

    Attributes:
        chunks: To be stored.
        embeddings: Theirs, shape (len(chunks), dimension).
        replaced: Documents whose other chunks are removed.
        deleted: Ids of chunks to be deleted; None where the rest counts.
    """

    chunks: Sequence[Chunk]
    embeddings: NDArray[np.float32]
    replaced: frozenset[str]
    deleted: Sequence[str] | None = None

    def to_bytes(self) -> bytes:
        """Return the note: a line that says what follows, a line for each chunk, the numbers."""
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
    def from_bytes(cls, note: bytes) -> Intent:
        """Return what was noted.

        Raises:
            ValueError: It is no note of this version.
        """
        head_line, _, rest = note.partition(b"\n")
        head = json.loads(head_line)
        if head["version"] != VERSION:
            raise ValueError("another version")
        *lines, numbers = rest.split(b"\n", head["chunks"])
        rows = np.frombuffer(numbers, "<f4").reshape(head["chunks"], head["dimension"])
        chunks = [Chunk.model_validate_json(line) for line in lines]
        return cls(chunks, rows.astype(np.float32), frozenset(head["replaced"]), head["deleted"])


class Intents:
    """The note of one vector DB. Writes to it, of all processes of the data folder, take turns.

    Args:
        folder: Where notes are; made with the first.
    """

    def __init__(self, folder: Path, vector_db: VectorDB) -> None:
        name = stored_name(vector_db)
        self._folder = folder
        self._path = folder / f"{name}.note"
        self._turn = asyncio.Lock()
        self._lock = FileLock(folder / f"{name}.lock", thread_local=False)
        self._dimension = vector_db.embedding_dimension

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Keep everybody else from writing.

        Raises:
            Unavailable: Another process writes, and that takes long.
        """
        async with self._turn:
            try:
                await asyncio.to_thread(self._acquire)
            except Timeout:
                raise Unavailable(
                    "Another process writes to this vector DB.", hint="Try again."
                ) from None
            try:
                yield
            finally:
                await asyncio.shield(asyncio.to_thread(self._lock.release))

    def _acquire(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock.acquire(timeout=WAIT_SECONDS)

    def left(self) -> Intent | None:
        """Return what a write has left that did not end, in a turn. Blocks."""
        try:
            return Intent.from_bytes(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, KeyError) as error:
            log.error("A note of a write cannot be read and is put aside: %s", type(error).__name__)
            self._path.replace(self._path.with_suffix(".unread"))
            return None

    def note(self, intent: Intent) -> None:
        """Bring a note to the disk, in a turn. Blocks."""
        temporary = self._path.with_suffix(".new")
        with temporary.open("wb") as file:
            file.write(intent.to_bytes())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        sync_folder(self._folder)

    def forget(self) -> None:
        """Delete the note. Blocks."""
        self._path.unlink(missing_ok=True)

    def deletion(self, chunk_ids: Sequence[str]) -> Intent:
        """Return the intent to delete chunks."""
        none = np.empty((0, self._dimension), np.float32)
        return Intent([], none, frozenset(), list(chunk_ids))


class NotedIndex(EmbeddingIndex):
    """An index whose writes are noted first, once it was told where.

    An engine implements `_put`, `_take` and `_discard` in the place of `_add`, `_delete_chunks` and
    `_drop`.
    """

    intents: Intents | None = None

    async def note_in(self, folder: Path) -> None:
        """Note writes in a folder from now on, and finish what a killed process has left there.

        Raises:
            ProviderError: The engine cannot be reached.
        """
        self.intents = intents = Intents(folder, self.vector_db)
        async with intents.turn():
            await self._finish(intents)

    async def _add(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        if self.intents is None:
            await self._put(chunks, embeddings, replace_documents)
        else:
            await self._noted(self.intents, Intent(chunks, embeddings, replace_documents))

    async def _delete_chunks(self, chunk_ids: Sequence[str]) -> None:
        if self.intents is None:
            await self._take(chunk_ids)
        else:
            await self._noted(self.intents, self.intents.deletion(chunk_ids))

    async def _noted(self, intents: Intents, intent: Intent) -> None:
        async with intents.turn():
            await self._finish(intents)
            await asyncio.to_thread(intents.note, intent)
            try:
                await self._carry_out(intent)
            except CorralError as error:
                if not error.retryable:  # it is undone; else nobody knows
                    await asyncio.to_thread(intents.forget)
                raise
            await asyncio.to_thread(intents.forget)

    async def _finish(self, intents: Intents) -> None:
        """Carry out what was left, in a turn."""
        left = await asyncio.to_thread(intents.left)
        if left is None:
            return
        try:
            await self._carry_out(left)
        except CorralError as error:
            if error.retryable:
                raise
            log.error("A write that was cut off cannot be finished: %s", type(error).__name__)
        await asyncio.to_thread(intents.forget)

    async def _carry_out(self, intent: Intent) -> None:
        if intent.deleted is None:
            await self._put(intent.chunks, intent.embeddings, intent.replaced)
        else:
            await self._take(intent.deleted)

    async def _drop(self) -> None:
        await self._discard()
        if self.intents is not None:
            await asyncio.to_thread(self.intents.forget)

    # --- what an engine writes ----------------------------------------------------------------

    @abstractmethod
    async def _put(
        self,
        chunks: Sequence[Chunk],
        embeddings: NDArray[np.float32],
        replace_documents: frozenset[str],
    ) -> None:
        """Upsert chunks and drop others of those documents; may be repeated. See `_add`."""

    @abstractmethod
    async def _take(self, chunk_ids: Sequence[str]) -> None:
        """Delete these chunks; may be repeated. See `_delete_chunks`."""

    @abstractmethod
    async def _discard(self) -> None:
        """Delete the index itself and release what it holds. See `_drop`."""
