"""What a write did, and who is told of it: whoever opened an index may be rebuilding it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
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
        vector_db: The registration of the index that it went to.
        principal: For whom.
        chunks: To be stored, as engines hold them.
        embeddings: Theirs, shape (len(chunks), dimension).
        replaced: Documents whose other chunks are removed.
        deleted: Ids of chunks to be deleted.
        opened: Ids of chunks that get another acl.
        acl: That acl.
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
        """Return the ids that it touches outside the replaced documents."""
        loose = (c.chunk_id for c in self.chunks if c.document_id not in self.replaced)
        return [*loose, *self.deleted, *self.opened]


class Keeper(Protocol):
    """Whoever opened an index, and knows what becomes of it."""

    async def wrote(self, write: Write, lost: NotFound | None) -> None:
        """Take note of a write before it is acknowledged.

        Args:
            write: Where it went and what it did.
            lost: Why it did nothing: the index is gone. Raised again unless another index has
                taken its place; the write goes into that one then.
        """


@asynccontextmanager
async def kept(keeper: Keeper | None, write: Write) -> AsyncIterator[None]:
    """Tell the keeper of the write in this context, and whether it found the index gone."""
    lost = None
    try:
        yield
    except NotFound as error:
        if keeper is None:
            raise
        lost = error
    if keeper is not None:
        await keeper.wrote(write, lost)
