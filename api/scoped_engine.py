"""An engine limited to one principal's scope: chunks outside do not exist for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.documents import READ_CHUNKS
from corral.api.engine import Engine
from corral.api.errors import Conflict
from corral.api.hits import Candidate
from corral.api.scope import Scope, linked, links_of


@dataclass(frozen=True, slots=True)
class ScopedEngine:
    """Reads and writes the chunks of an engine that are in a scope.

    Writes read first, unless the scope is whole: the caller holds the write lock exclusively.
    """

    engine: Engine
    scope: Scope

    # --- reading -----------------------------------------------------------------------------

    async def visible(self, stored: Sequence[Chunk]) -> list[Chunk]:
        """Return the visible chunks as the reader sees them, without links to hidden chunks.

        A link is the id of an adjacent chunk, which may be a hash of that chunk's text.
        """
        visible = [self.scope.shown(chunk) for chunk in stored if self.scope.sees(chunk)]
        if self.scope.is_whole:
            return visible
        visible_ids = {chunk.chunk_id for chunk in visible}
        adjacent = sorted({link for chunk in visible for link in links_of(chunk)} - visible_ids)
        visible_ids.update(await self.visible_ids(adjacent))
        return [linked(chunk, visible_ids) for chunk in visible]

    async def visible_ids(self, chunk_ids: Sequence[str]) -> list[str]:
        """Return the ids of stored chunks that are visible."""
        visible: list[str] = []
        for start in range(0, len(chunk_ids), READ_CHUNKS):
            stored = await self.engine.get(chunk_ids[start : start + READ_CHUNKS], False)
            visible += [chunk.chunk_id for chunk in stored if self.scope.sees(chunk)]
        return visible

    async def chunks_of(
        self, candidates: Sequence[Candidate], include_embeddings: bool
    ) -> dict[str, Chunk]:
        """Return the chunks of candidates by id, if they still exist and are visible."""
        chunks = {one.chunk_id: one.chunk for one in candidates}
        missing = [i for i, chunk in chunks.items() if chunk is None or include_embeddings]
        if missing:
            fetched = await self.engine.get(missing, include_embeddings)
            chunks.update(dict.fromkeys(missing), **{c.chunk_id: c for c in fetched})
        stored = [chunk for chunk in chunks.values() if chunk is not None]
        return {chunk.chunk_id: chunk for chunk in await self.visible(stored)}

    # --- writing -----------------------------------------------------------------------------

    async def add(
        self,
        chunks: Sequence[Chunk],
        matrix: NDArray[np.float32],
        replaced: frozenset[str],
    ) -> None:
        """Store chunks, or raise Conflict if that would change a hidden chunk."""
        if self.scope.is_whole:
            await self.engine.add(chunks, matrix, replaced)
            return
        named = replaced | {chunk.document_id for chunk in chunks if chunk.document_id}
        stored = [await self.engine.document_chunk_ids(each) for each in sorted(named)]
        of_documents = list(dict.fromkeys(chain.from_iterable(stored)))
        if not chunks:
            await self.delete(of_documents)
            return
        ids = dict.fromkeys([*of_documents, *(chunk.chunk_id for chunk in chunks)])
        await self._check_not_hidden(list(ids))
        await self.engine.add(chunks, matrix, replaced)

    async def _check_not_hidden(self, chunk_ids: Sequence[str]) -> None:
        """Raise Conflict if a stored chunk of these ids is hidden."""
        for start in range(0, len(chunk_ids), READ_CHUNKS):
            stored = await self.engine.get(chunk_ids[start : start + READ_CHUNKS], False)
            if not all(map(self.scope.sees, stored)):
                raise Conflict(
                    "A chunk_id or document_id in this request is taken.",
                    hint="Nothing was stored. Choose other ids.",
                    field="chunks",
                )

    async def set_acl(self, chunk_ids: Sequence[str], acl: Sequence[str] | None) -> int:
        """Give the visible chunks of these ids another acl; return their number."""
        stored = await self.engine.get(list(dict.fromkeys(chunk_ids)), True)
        chunks = [self.scope.shown(chunk) for chunk in stored if self.scope.sees(chunk)]
        if chunks:
            matrix = np.array([chunk.embedding for chunk in chunks], dtype=np.float32)
            update = {"acl": acl, "embedding": None}
            changed = [chunk.model_copy(update=update) for chunk in chunks]
            await self.engine.add(
                [self.scope.stored(chunk, "chunks") for chunk in changed], matrix, frozenset()
            )
        return len(chunks)

    async def delete(self, chunk_ids: Sequence[str]) -> None:
        """Delete the visible chunks of these ids."""
        ids = chunk_ids if self.scope.is_whole else await self.visible_ids(chunk_ids)
        if ids:
            await self.engine.delete(ids)
