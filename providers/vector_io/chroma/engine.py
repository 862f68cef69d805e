"""What the index needs of Chroma, in this process or behind HTTP.

Both engines block; the index calls them in threads. They raise the contract's errors and no other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from corral.api.errors import ProviderError

Metadata = Mapping[str, str | int]
T = TypeVar("T")

ATTEMPTS = 5
"""Of a reading that meets deletions."""
HALF_DROPPED = "Missing metadata segment"
"""What Chroma says of a collection that is being dropped (1.5.9)."""


class UnknownIds(ProviderError):
    """Chroma missed a row: one that a search was restricted to, or one that another writer deleted
    after the ids were looked up and before their embeddings were.
    """


def repeated(read: Callable[[], T]) -> T:
    """Read again, a few times, where rows were deleted meanwhile.

    Raises:
        UnknownIds: They were, each time.
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(UnknownIds):
            return read()
    return read()


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a collection; the lists are parallel, or empty where not asked for."""

    ids: list[str]
    metadatas: list[dict[str, Any]] = field(default_factory=list)
    embeddings: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class Upsert:
    """Rows to write: parallel, at least one. Every row has the same metadata keys.

    Chroma merges the metadata of an upsert into what is stored; equal keys make it replace it.
    """

    ids: Sequence[str]
    metadatas: Sequence[Metadata]
    embeddings: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: slice) -> Upsert:
        return Upsert(self.ids[part], self.metadatas[part], self.embeddings[part])


class Collection(ABC):
    """One collection of Chroma. Safe to use from many threads.

    Attributes:
        uuid: Chroma's own id of it: another one after it was dropped and made anew.
    """

    uuid: str

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

    @abstractmethod
    def query(
        self, embedding: NDArray[np.float32], k: int, ids: Sequence[str] | None = None
    ) -> Rows:
        """Return the ids and embeddings of about the k nearest rows, nearest first, k at most.

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
        """Return the collection of this name, made where there is none."""

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
        """Say that an index needs the engine no more."""


def matrix_of(embeddings: Any, rows: int) -> NDArray[np.float32]:
    """Return an engine's embeddings as an array of shape (rows, dimension); (0, 0) for none."""
    if not rows:
        return np.empty((0, 0), dtype=np.float32)
    return np.asarray(embeddings, dtype=np.float32).reshape(rows, -1)


def batches(rows: Upsert, most_rows: int, most_bytes: int) -> Iterator[Upsert]:
    """Cut rows into runs that an engine takes, in order; a larger row is one by itself."""
    start = held = 0
    for place, metadata in enumerate(rows.metadatas):
        size = rows.embeddings[place].nbytes
        size += sum(len(str(value).encode()) for value in metadata.values())
        if place > start and (place - start == most_rows or held + size > most_bytes):
            yield rows[start:place]
            start, held = place, 0
        held += size
    yield rows[start:]
