"""Replays writes that arrive during a rebuild, so that none is lost.

After each write, and before it is acknowledged, the writer reads the registry:

* No rebuild is registered: a rebuild that begins later reads the index after the write.
* A rebuild is registered: the write is recorded. The switch replays all records, and happens in a
  transaction that finds none left.
* Another index is registered: the write is repeated there, with embeddings by its model.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from numpy.typing import ArrayLike

from corral.api.embedding_index import EmbeddingIndex
from corral.api.errors import NotFound
from corral.api.library import Library
from corral.api.principal import UNRESTRICTED
from corral.api.scope import Scope
from corral.api.vector_dbs import VectorDB
from corral.api.writes import Write
from corral.providers.ingestion.storing import embeddings_of
from corral.providers.stack.copy_steps import recorded
from corral.providers.stack.rebuild_table import Rebuild, RebuildTable

_LOOK_SECONDS = 0.05


class WriteReplayer:
    """Records the writes of one process during a rebuild, and repeats them on the new index.

    Args:
        library: Returns the embedders.
        table: The running rebuilds.
        opened: Returns the open index of a vector DB.
        then: Called after each write, before it is acknowledged.
    """

    def __init__(
        self,
        library: Library,
        table: RebuildTable,
        opened: Callable[[VectorDB], Awaitable[EmbeddingIndex]],
        then: Callable[[Write], Awaitable[None]],
    ) -> None:
        self._library, self._table, self._opened = library, table, opened
        self._then = then

    async def wrote(self, write: Write, lost: NotFound | None) -> None:
        """Handle a write; see `WriteObserver`."""
        await self._carry_over(write, lost)
        await self._then(write)

    async def _carry_over(self, write: Write, lost: NotFound | None) -> None:
        """Record a write during a rebuild, or repeat it on the index that replaced the old one."""
        mine = write.vector_db
        while True:
            stored, rebuild = await self._table.standing(mine)
            if stored is not None and stored.created_at != mine.created_at:
                stored = None  # A later registration, which this write does not affect.
            if stored is not None and stored.built_at != mine.built_at:
                return await self._do_again(write, stored)
            if lost is not None:
                raise lost
            if stored is None or rebuild is None:
                return None
            if await self._table.note(mine, write):
                return await self._wait_for_switch(mine, rebuild)

    async def _do_again(self, write: Write, stored: VectorDB) -> None:
        """Repeat a write on the index that replaced the old one, for the same principal."""
        successor = (await self._opened(stored)).scoped_to(write.principal)
        if write.deleted:
            await successor.delete_chunks(write.deleted)
        if write.opened:
            await successor.set_acl(write.opened, write.acl)
        if not write.chunks and not write.replaced:
            return
        shown = Scope(UNRESTRICTED, stored.default_acl).shown
        chunks = [shown(chunk) for chunk in write.chunks]
        embeddings: ArrayLike | None = write.embeddings
        if write.vector_db.fingerprint != stored.fingerprint:
            chunks = [recorded(c, stored).model_copy(update={"embedding": None}) for c in chunks]
            embeddings = await embeddings_of(self._library, stored, chunks)
        await successor.add_chunks(chunks, embeddings, replace_documents=write.replaced)

    async def _wait_for_switch(self, mine: VectorDB, rebuild: Rebuild | None) -> None:
        while rebuild is not None and time.time() < rebuild.closed_until:
            await asyncio.sleep(_LOOK_SECONDS)
            rebuild = await self._table.find(mine)
