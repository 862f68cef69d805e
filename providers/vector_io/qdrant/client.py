"""What the index asks of Qdrant: the calls that Qdrant Edge and a Qdrant server share."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from corral.providers.vector_io.qdrant.records import FoundPoint, Json, Point, PointId

_VERSION = re.compile(r"version_([0-9]+)")


def version_index(version: int) -> str:
    """Return the field whose index, of no values, tells which version wrote a collection.

    An index is the one thing that every release and both engines keep beside the points: a point
    would be found and counted.
    """
    return f"version_{version}"


def versions(fields: Iterable[str]) -> list[int]:
    """Return the versions that wrote a collection with these indexes, ascending."""
    return sorted(int(found[1]) for field in fields if (found := _VERSION.fullmatch(field)))


class Collection(ABC):
    """The points of one vector DB. Filters are JSON objects in Qdrant's form."""

    @abstractmethod
    async def nearest(
        self,
        embedding: Sequence[float],
        limit: int,
        filter_: Json | None,
        fields: Sequence[str],
    ) -> list[FoundPoint]:
        """Return the points with the nearest dense vectors, best first."""

    @abstractmethod
    async def matching(
        self,
        sparse: tuple[list[int], list[float]],
        limit: int,
        filter_: Json | None,
        fields: Sequence[str],
    ) -> list[FoundPoint]:
        """Return the points with the largest inner products, above 0, best first."""

    @abstractmethod
    async def fetch(
        self, ids: Sequence[PointId], fields: Sequence[str], dense: bool
    ) -> list[FoundPoint]:
        """Return those of these points that exist."""

    @abstractmethod
    async def scroll(self, filter_: Json, limit: int) -> list[FoundPoint]:
        """Return some points that pass, at most `limit`, whole and with their dense vectors."""

    @abstractmethod
    async def chunk_ids(self, after: str, limit: int) -> list[str]:
        """Return the first chunk ids that follow one, in ascending order."""

    @abstractmethod
    async def count(self) -> int:
        """Return the exact number of points."""

    @abstractmethod
    async def count_passing(self, filter_: Json) -> int:
        """Return the exact number of points that pass."""

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
        """Return the newest version that wrote the collection; 0 for none."""

    @abstractmethod
    async def upgrade(self, version: int) -> None:
        """Bring the indexes up to date, and record the version; idempotent."""

    async def settle(self) -> None:
        """Wait until what is built in the background is built."""

    @abstractmethod
    async def drop(self) -> None:
        """Delete the collection; one that is gone already is fine."""

    @abstractmethod
    async def close(self) -> None:
        """Release what this collection holds."""
