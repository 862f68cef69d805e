"""Filters of a chunk file in memory: they follow the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from corral.api.chunks import Chunk
from corral.api.filters import matches, parse_filter
from corral.providers.vector_io.store.connections import connect, transaction
from corral.providers.vector_io.store.filters import FilterCache
from corral.providers.vector_io.store.postings import KeywordIndex
from corral.providers.vector_io.store.rows import (
    count_up,
    insert_rows,
    record_of,
    remove_rows,
)
from corral.providers.vector_io.store.schema import prepare

COLOR = {"type": "eq", "key": "color", "value": "bay"}
OTHER = {"type": "ne", "key": "color", "value": "roan"}
OLD = {"type": "gte", "key": "age", "value": 5}
FILTERS: list[dict[str, Any]] = [
    COLOR,
    OTHER,
    OLD,
    {"type": "in", "key": "color", "value": ["bay", "gray"]},
    {"type": "and", "filters": [OTHER, OLD]},
    {"type": "or", "filters": [OTHER, {"type": "nin", "key": "age", "value": [1, 2]}]},
]


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[apsw.Connection]:
    """Open an empty chunk file."""
    path = tmp_path / "x.db"
    path.touch()
    opened = connect(path, 1, synchronous="OFF")
    prepare(opened, KeywordIndex({"content": 1.0}, "simple"))
    yield opened
    opened.close()


def test_filters_in_memory_follow_every_write(connection: apsw.Connection) -> None:
    """After each write the rows in memory are those that pass, no more and no fewer.

    If this fails: a new row, or a deleted one, is missed by a filter that was asked before.
    """
    rng = np.random.default_rng(5)
    cache = FilterCache()
    filters = [parse_filter(one) for one in FILTERS]
    for step in range(30):
        with transaction(connection):
            here = [int(str(row)) for (row,) in connection.execute("SELECT row FROM chunks")]
            gone = rng.choice(here, min(len(here), 3), replace=False).tolist() if step % 4 else []
            remove_rows(connection, gone)
            chunks = [
                Chunk(content="x", chunk_id=f"{step}-{n}", metadata=metadata(rng))
                for n in range(int(rng.integers(0, 6)))
            ]
            vectors = np.ones((len(chunks), 2), np.float32)
            records = [record_of(chunk) for chunk in chunks]
            insert_rows(connection, chunks, records, vectors, [2.0] * len(chunks))
            count_up(connection, len(chunks) - len(gone))
        table = connection.execute("SELECT row, metadata FROM chunks ORDER BY row").fetchall()
        rows = np.array([row for row, _ in table], np.int64)
        for one in filters[step % 2 :]:
            expected = [matches(one, json.loads(str(stored))) for _, stored in table]
            found = cache.passing(connection, one)
            assert found is not None
            assert found.mask(rows).tolist() == expected
            assert found.rows.tolist() == sorted(set(found.rows.tolist()) & set(rows.tolist()))


def metadata(rng: np.random.Generator) -> dict[str, Any]:
    """Return some metadata; a key may be absent."""
    color = str(rng.choice(["bay", "roan", "gray"]))
    return {"color": color} | ({"age": int(rng.integers(0, 9))} if rng.random() < 0.8 else {})
