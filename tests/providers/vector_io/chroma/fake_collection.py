"""A collection in a dictionary, for what a real Chroma cannot be made to do on command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.errors import Unavailable
from corral.providers.vector_io.chroma.client import Collection, UnknownIds
from corral.providers.vector_io.chroma.records import Rows, Upsert, matrix_of

Row = tuple[dict[str, Any], NDArray[np.float32]]


@dataclass
class FakeCollection(Collection):
    """Chroma's behavior as far as the provider relies on it; searches exactly, by inner product.

    Attributes:
        rows: Metadata and embedding by id.
        failures: Names of calls that fail next, in order; "" lets one upsert or delete pass.
        reachable: Ids that a search can find, None for all: a graph that has come apart.
    """

    uuid: str = "fake"
    rows: dict[str, Row] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    reachable: set[str] | None = None
    batch_rows: int = 4
    batch_bytes: int = 10**6

    def _maybe_fail(self, call: str) -> None:
        if self.failures and self.failures.pop(0) == call:
            raise Unavailable("fake: down")

    def count(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def upsert(self, rows: Upsert) -> None:
        """Write rows, merging metadata as Chroma does."""
        assert 0 < len(rows) <= self.batch_rows
        self._maybe_fail("upsert")
        for row_id, metadata, embedding in zip(
            rows.ids, rows.metadatas, rows.embeddings, strict=True
        ):
            old = self.rows[row_id][0] if row_id in self.rows else {}
            self.rows[row_id] = ({**old, **metadata}, embedding.copy())

    def delete(self, ids: Sequence[str]) -> None:
        """Delete rows."""
        self._maybe_fail("delete")
        for row_id in ids:
            self.rows.pop(row_id, None)

    def get(
        self,
        ids: Sequence[str] | None = None,
        where: Mapping[str, Any] | None = None,
        include: Sequence[str] = (),
    ) -> Rows:
        """Return rows; `where` as the journal uses it."""
        found = [
            row_id
            for row_id, (metadata, _) in self.rows.items()
            if (ids is None or row_id in ids) and (where is None or _passes(metadata, where))
        ]
        return Rows(
            found,
            [self.rows[i][0] for i in found] if "metadatas" in include else [],
            matrix_of([self.rows[i][1] for i in found], len(found))
            if "embeddings" in include
            else None,
        )

    def query(
        self, embedding: NDArray[np.float32], k: int, ids: Sequence[str] | None = None
    ) -> Rows:
        """Return the nearest rows that can be reached."""
        if ids is not None and not set(ids) <= set(self.rows):
            raise UnknownIds("fake: a chunk is gone")
        among = [
            row_id
            for row_id in (self.rows if ids is None else ids)
            if self.reachable is None or row_id in self.reachable
        ]
        distances = {i: 1.0 - float(self.rows[i][1] @ embedding) for i in among}
        nearest = sorted(among, key=lambda i: distances[i])[:k]
        return Rows(nearest, distances=[distances[i] for i in nearest])


def _passes(metadata: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    if "$and" in where:
        return all(_passes(metadata, part) for part in where["$and"])
    [(key, asked)] = where.items()
    if not isinstance(asked, dict):
        return bool(metadata.get(key) == asked)
    [(operator, value)] = asked.items()
    found = metadata.get(key)
    if found is None:
        return False
    return bool(found > value if operator == "$gt" else found == value)
