"""The hooks of an index for one principal: what it may not see does not exist for it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.documents import READ_AT_ONCE
from corral.api.errors import Conflict, ContractViolation
from corral.api.index_hooks import IndexHooks
from corral.api.principal import Principal
from corral.api.scope import Scope, linked, links_of


class ScopedHooks(IndexHooks):
    """What `EmbeddingIndex` calls where the answer of a hook depends on who asks."""

    _principal: Principal

    @property
    def principal(self) -> Principal:
        """For whom it reads and writes."""
        return self._principal

    @property
    def _scope(self) -> Scope:
        return Scope(self._principal, self.vector_db.default_acl)

    # --- reading -----------------------------------------------------------------------------

    async def _told(self, scope: Scope, stored: Sequence[Chunk]) -> list[Chunk]:
        """Return those of some stored chunks that are in the scope, as their user sees them.

        They keep the ids of the chunks beside them that are in the scope, too: an id may be made of
        a text.
        """
        told = [scope.shown(chunk) for chunk in stored if scope.sees(chunk)]
        if scope.is_whole:
            return told
        known = {chunk.chunk_id for chunk in told}
        beside = sorted({link for chunk in told for link in links_of(chunk)} - known)
        known.update(await self._seen_ids(scope, beside))
        return [linked(chunk, known) for chunk in told]

    async def _seen_ids(self, scope: Scope, chunk_ids: Sequence[str]) -> list[str]:
        """Return those of some ids whose chunks exist and are in the scope."""
        seen: list[str] = []
        for start in range(0, len(chunk_ids), READ_AT_ONCE):
            found = await self._get(chunk_ids[start : start + READ_AT_ONCE], False)
            seen += [chunk.chunk_id for chunk in found if scope.sees(chunk)]
        return seen

    def _check_page(self, what: str, ids: Sequence[str], after: str, limit: int) -> None:
        """Raise ContractViolation unless these are at most `limit` ids, ascending from `after`."""
        if len(ids) > limit or any(one >= other for one, other in pairwise([after, *ids])):
            raise ContractViolation(
                f"{self.vector_db.provider_id}: {what} are too many or not in ascending order."
            )

    # --- writing -----------------------------------------------------------------------------

    async def _add_in_scope(
        self,
        scope: Scope,
        chunks: Sequence[Chunk],
        matrix: NDArray[np.float32],
        replaced: frozenset[str],
    ) -> None:
        """Store chunks unless that would touch a hidden one; alone, if anything is hidden."""
        if scope.is_whole:
            await self._add(chunks, matrix, replaced)
            return
        named = replaced | {chunk.document_id for chunk in chunks if chunk.document_id}
        there = [await self._document_chunk_ids(document_id) for document_id in sorted(named)]
        of_documents = list(dict.fromkeys(chain.from_iterable(there)))
        if not chunks:
            await self._delete_chunks(await self._seen_ids(scope, of_documents))
            return
        ids = dict.fromkeys([*of_documents, *(chunk.chunk_id for chunk in chunks)])
        await self._check_not_hidden(scope, list(ids))
        await self._add(chunks, matrix, replaced)

    async def _check_not_hidden(self, scope: Scope, chunk_ids: Sequence[str]) -> None:
        """Raise Conflict if a chunk of these ids is stored and hidden."""
        for start in range(0, len(chunk_ids), READ_AT_ONCE):
            stored = await self._get(chunk_ids[start : start + READ_AT_ONCE], False)
            if not all(map(scope.sees, stored)):
                raise Conflict(
                    "A chunk_id or document_id in this request is taken.",
                    hint="Nothing was stored. Choose other ids.",
                    field="chunks",
                )

    async def _set_acl(
        self, scope: Scope, chunk_ids: Sequence[str], acl: Sequence[str] | None
    ) -> int:
        found = await self._get(list(dict.fromkeys(chunk_ids)), True)
        chunks = [scope.shown(chunk) for chunk in found if scope.sees(chunk)]
        if chunks:
            matrix = np.array([chunk.embedding for chunk in chunks], dtype=np.float32)
            update = {"acl": acl, "embedding": None}
            changed = [chunk.model_copy(update=update) for chunk in chunks]
            stored = [scope.stored(chunk, "chunks") for chunk in changed]
            await self._add(stored, matrix, frozenset())
        return len(chunks)
