"""What the index needs of Chroma, in this process or behind HTTP.

Both engines block; the index calls them in threads. They raise the contract's errors and no other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from corral.api.errors import ProviderError
from corral.providers.vector_io.chroma.records import Rows, Upsert

T = TypeVar("T")

ATTEMPTS = 5
"""Attempts to read rows while others are deleted."""
READ_ROWS = 1000
"""Rows with texts or embeddings fetched at once."""
DELETE_ROWS = 5000
"""Ids in one request to delete."""
HALF_DROPPED = "Missing metadata segment"
"""Chroma's message for a collection that is being dropped (1.5.9)."""


class UnknownIds(ProviderError):
    """Chroma missed a row: one that a search was restricted to, or one that another writer deleted
    after the ids were looked up and before their embeddings were.
    """


def repeated(read: Callable[[], T]) -> T:
    """Read again, a few times, if rows were deleted meanwhile.

    Raises:
        UnknownIds: They were, each time.
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(UnknownIds):
            return read()
    return read()


class Collection(ABC):
    """One collection of Chroma. Safe to use from many threads.

    Attributes:
        uuid: Chroma's own id of it: another one after it was dropped and created again.
    """

    uuid: str

    @property
    def writes(self) -> int | None:
        """How often somebody has written; None where only Chroma can say what others wrote."""
        return None

    @abstractmethod
    def count(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def upsert(self, rows: Upsert) -> None:
        """Write rows in one step, at most `batch_rows` and `batch_bytes` of them."""

    @abstractmethod
    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows; unknown ids are ignored."""

    @abstractmethod
    def get(
        self,
        ids: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        include: Sequence[str] = (),
    ) -> Rows:
        """Return the rows of these ids or that pass Chroma's own filter, in any order.

        Args:
            ids: Unknown ones are left out; None for all rows. Never empty.
            where: Chroma's filter; None for none.
            include: `metadatas`, `embeddings`.
        """

    def read(self, ids: Sequence[str], include: Sequence[str]) -> Iterator[Rows]:
        """Yield the rows of these ids that exist, some at a time."""
        for start in range(0, len(ids), READ_ROWS):
            some = ids[start : start + READ_ROWS]
            yield repeated(partial(self.get, some, include=include))

    def delete_all(self, ids: Sequence[str]) -> None:
        """Delete rows, some at a time; unknown ids are ignored."""
        for start in range(0, len(ids), DELETE_ROWS):
            self.delete(ids[start : start + DELETE_ROWS])

    @abstractmethod
    def query(
        self, embedding: NDArray[np.float32], k: int, ids: Sequence[str] | None = None
    ) -> Rows:
        """Return the ids and distances of about the k nearest rows, nearest first, k at most.

        Raises:
            UnknownIds: One of `ids`, to which the search is restricted, does not exist.
        """

    @property
    @abstractmethod
    def batch_rows(self) -> int:
        """Most rows of one call."""

    @property
    @abstractmethod
    def batch_bytes(self) -> int:
        """Most bytes of embeddings and texts of one call, about."""


class Engine(ABC):
    """A Chroma that holds collections. Safe to use from many threads."""

    @abstractmethod
    def create(self, name: str, configuration: Mapping[str, Any]) -> Collection:
        """Return the collection of this name, created if it is missing."""

    @abstractmethod
    def open(self, name: str) -> Collection | None:
        """Return the collection of this name, or None."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all collections, other programs' too."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Delete the collection of this name, if there is one."""

    @abstractmethod
    def ping(self) -> None:
        """Raise the error that a request would now meet."""

    @abstractmethod
    def release(self) -> None:
        """Give the engine back: an index needs it no more."""
