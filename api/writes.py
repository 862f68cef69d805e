"""A completed write, and its observer, which replays it during a rebuild."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.errors import NotFound
from corral.api.principal import Principal
from corral.api.vector_dbs import VectorDB


@dataclass(frozen=True, slots=True)
class Write:
    """One call that changes an index.

    Attributes:
        vector_db: The registration of the index written to.
        principal: The writer.
        chunks: Chunks to store, in the form that engines store.
        embeddings: Shape (len(chunks), dimension).
        replaced: Ids of documents to replace; their other chunks are deleted.
        deleted: Ids of chunks to delete.
        opened: Ids of chunks that get another acl.
        acl: The new acl of the `opened` chunks.
    """

    vector_db: VectorDB
    principal: Principal
    chunks: Sequence[Chunk] = ()
    embeddings: NDArray[np.float32] | None = None
    replaced: frozenset[str] = frozenset()
    deleted: Sequence[str] = ()
    opened: Sequence[str] = ()
    acl: Sequence[str] | None = None

    @property
    def loose_ids(self) -> list[str]:
        """The ids of the chunks that it changes outside the replaced documents."""
        loose = (c.chunk_id for c in self.chunks if c.document_id not in self.replaced)
        return [*loose, *self.deleted, *self.opened]


class WriteObserver(Protocol):
    """The owner of an index, which may be rebuilding it."""

    async def wrote(self, write: Write, lost: NotFound | None) -> None:
        """Handle a write before it is acknowledged.

        Args:
            write: The write.
            lost: The error of a write that found the index deleted; None if it succeeded. Raise it
                again, or repeat the write in the index that has replaced this one.
        """
