"""What the index asks of an engine: the few calls that Qdrant Edge and a Qdrant server share."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from corral.api.vector_dbs import VectorDB
from corral.providers.vector_io.qdrant.points import Json, Point


@dataclass(frozen=True, slots=True)
class Row:
    """A point that was read.

    Attributes:
        id: Its UUID.
        payload: The fields asked for, as far as it has them.
        score: As the engine computed it; 0 where nothing was searched.
        dense: Its dense vector, where asked for.
    """

    id: str
    payload: Json
    score: float = 0.0
    dense: list[float] = field(default_factory=list)


def collection_name(vector_db: VectorDB) -> str:
    """Return the name of a vector DB's folder or collection: 40 hex digits.

    The id is hashed, so that any id is a usable name, none is a path, and different ids never
    share one. The time of registration is hashed with it: an id that is registered anew gets a
    new collection, and a process that still holds the old one cannot touch it.
    """
    key = f"{vector_db.created_at!r}\0{vector_db.identifier}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(key).hexdigest()[:40]


_SIGNED = re.compile(r"version_([0-9]+)")
_OF_A_KEY = re.compile(r"[nt]_[0-9a-f]{16}(_[0-9])?")


def signature(version: int) -> str:
    """Return the field whose index, of no values, says what version has written a collection.

    An index is the one thing that every release and both engines keep beside the points: a point
    would be found and counted.
    """
    return f"version_{version}"


def signatures(fields: Iterable[str]) -> list[int]:
    """Return the versions that have signed a collection with these indexes, ascending."""
    return sorted(int(found[1]) for field in fields if (found := _SIGNED.fullmatch(field)))


def obsolete(fields: Iterable[str]) -> list[str]:
    """Return the fields whose indexes no version needs now: the first layout ordered each key."""
    return sorted(field for field in fields if _OF_A_KEY.fullmatch(field))


class Collection(ABC):
    """The points of one vector DB. Filters are JSON objects in Qdrant's form."""

    @abstractmethod
    async def nearest(
        self,
        embedding: Sequence[float],
        limit: int,
        filter_: Json | None,
        fields: Sequence[str],
    ) -> list[Row]:
        """Return the points with the nearest dense vectors, with these, best first."""

    @abstractmethod
    async def matching(
        self,
        sparse: tuple[list[int], list[float]],
        limit: int,
        filter_: Json | None,
        fields: Sequence[str],
    ) -> list[Row]:
        """Return the points with the largest inner products, above 0, best first."""

    @abstractmethod
    async def fetch(self, ids: Sequence[str], fields: Sequence[str], dense: bool) -> list[Row]:
        """Return those of these points that exist."""

    @abstractmethod
    async def scroll(self, filter_: Json, limit: int) -> list[Row]:
        """Return some points that pass, at most `limit`, whole and with their dense vectors."""

    @abstractmethod
    async def chunk_ids(self, after: str, limit: int) -> list[str]:
        """Return the first chunk ids that follow one, in ascending order."""

    @abstractmethod
    async def count(self) -> int:
        """Return the exact number of points."""

    @abstractmethod
    async def counts(self, filters: Sequence[Json]) -> list[int]:
        """Return the number of points that pass, for each filter of one condition.

        At a cost that does not grow with the collection, where the engine can.
        """

    @abstractmethod
    async def facet(self, name: str) -> Mapping[int, int]:
        """Return the number of points by value of a field with an integer index.

        At a cost that grows with the number of values, not of points.
        """

    @abstractmethod
    async def replace(self, points: Sequence[Point], stale: Json | None) -> None:
        """Write points, and drop the others that pass `stale`."""

    @abstractmethod
    async def delete(self, ids: Sequence[str]) -> None:
        """Delete points; unknown ids are ignored."""

    @abstractmethod
    async def version(self) -> int:
        """Return the newest version that has signed the collection; 0 for none."""

    @abstractmethod
    async def sign(self, version: int) -> None:
        """Bring the indexes up to date, and leave a version for `version`; idempotent."""

    @abstractmethod
    async def drop(self) -> None:
        """Delete the collection; one that is gone already is fine."""

    @abstractmethod
    async def close(self) -> None:
        """Release what this collection holds."""
