"""LanceDB in a folder: exact cosine up to `INDEX_FROM` chunks, its own BM25, its own RRF.

    pip install lancedb

Its documentation advises against a vector index for small tables; from `INDEX_FROM` chunks, the
default index (IVF_PQ) is built, which needs that many rows for training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.vector_dbs import SearchMode
from corral.bench.system import SHARE_KEY, BlockingSystem, Collection, Ranked, Search

INDEX_FROM = 100_000


class LanceDB(BlockingSystem):
    """A table with a column for each metadata value."""

    filters = True
    requires = ("lancedb",)
    engine_of = ("inline::lancedb",)

    async def prepare(self, collection: Collection) -> None:
        """Connect; the first rows create the table."""
        import lancedb

        self._database = lancedb.connect(str(self.folder))
        self._language = collection.language.capitalize()
        self._table: Any = None

    async def add(self, chunks: Sequence[Chunk], embeddings: NDArray[np.float32]) -> None:
        """Append rows."""
        rows = [
            {**c.metadata, "id": c.chunk_id, "text": c.content, "vector": row}
            for c, row in zip(chunks, embeddings, strict=True)
        ]
        if self._table is None:
            self._table = self._database.create_table("bench", rows)
        else:
            self._table.add(rows)

    async def build(self) -> None:
        """Build the full-text index and, for large tables, the vector index; merge small files."""
        self._table.create_fts_index("text", language=self._language)
        if self._table.count_rows() >= INDEX_FROM:
            self._table.create_index(metric="cosine")
        self._table.optimize()

    def find(self, asked: Search) -> Ranked:
        """Run the query of the mode, with prefiltering."""
        mode, text, embedding = asked.mode, asked.text, asked.embedding
        if mode is SearchMode.VECTOR:
            query = self._table.search(embedding).distance_type("cosine")
        elif mode is SearchMode.KEYWORD:
            query = self._table.search(text, query_type="fts")
        else:
            query = self._table.search(query_type="hybrid").vector(embedding).text(text)
            query = query.distance_type("cosine")
        if asked.below is not None:
            query = query.where(f"{SHARE_KEY} < {asked.below}", prefilter=True)
        return [(row["id"], _score(mode, row)) for row in query.limit(asked.k).to_list()]


def _score(mode: SearchMode, row: dict[str, Any]) -> float:
    if mode is SearchMode.VECTOR:
        return 1 - float(row["_distance"]) / 2
    return float(row["_score" if mode is SearchMode.KEYWORD else "_relevance_score"])


PEER = LanceDB
