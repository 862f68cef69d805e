"""Rows of a chunk file: reading and writing chunks. The caller provides the transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby, islice
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from corral.api.chunks import Chunk
from corral.api.documents import DocumentCount
from corral.providers.vector_io.kit.records import CHUNK_FIELDS, chunk_fields, read_chunk
from corral.providers.vector_io.kit.rows import RowSet
from corral.providers.vector_io.store import directory
from corral.providers.vector_io.store.connections import state
from corral.providers.vector_io.store.filters import attributes


def record_of(chunk: Chunk) -> tuple[str | None, ...]:
    """Return a chunk as a record for `insert_rows`: its document, then `CHUNK_FIELDS`."""
    return (chunk.document_id, *map(chunk_fields(chunk).get, CHUNK_FIELDS))


def insert_rows(
    connection: apsw.Connection,
    chunks: Sequence[Chunk],
    records: Iterable[tuple[Any, ...]],
    embeddings: NDArray[np.float32],
    squared_norms: Iterable[float],
) -> list[int]:
    """Store chunks with new ids, without their keywords, and return their new row numbers.

    Args:
        connection: In a write transaction.
        records: Results of `record_of`.
        embeddings: Shape (len(chunks), dimension).
        squared_norms: Squared length of each embedding, float64.
    """
    inserted: Any = connection.executemany(
        "INSERT INTO chunks(document_id, chunk_id, content, metadata, chunk_metadata)"
        " VALUES (?, ?, ?, ?, ?) RETURNING row",
        records,
    )
    rows = [int(row) for (row,) in inserted]
    connection.executemany(
        "INSERT INTO embeddings VALUES (?, ?, ?)",
        (
            (row, embedding.astype("<f4").tobytes(), norm)
            for row, embedding, norm in zip(rows, embeddings, squared_norms, strict=True)
        ),
    )
    insert_attributes(connection, rows, chunks)
    directory.add_chunks(connection, chunks)
    return rows


def insert_attributes(
    connection: apsw.Connection, rows: Sequence[int], chunks: Sequence[Chunk]
) -> None:
    """Store the filterable attributes of chunks in these rows."""
    connection.executemany(
        "INSERT OR IGNORE INTO attributes VALUES (?, ?, ?)",
        (
            (key, value, row)
            for row, chunk in zip(rows, chunks, strict=True)
            for key, value in attributes(chunk.metadata)
        ),
    )


def remove_rows(connection: apsw.Connection, rows: Sequence[int]) -> None:
    """Delete rows, except their keywords, and log the deletion for copies in memory."""
    if not rows:
        return
    directory.remove_rows(connection, rows)
    ids = [(row,) for row in rows]
    stored = connection.executemany("SELECT row, metadata FROM chunks WHERE row = ?", ids)
    connection.executemany(
        "DELETE FROM attributes WHERE key = ? AND value = ? AND row = ?",
        [
            (key, value, row)
            for row, metadata in stored
            for key, value in attributes(json.loads(str(metadata)))
        ],
    )
    connection.executemany("DELETE FROM chunks WHERE row = ?", ids)
    connection.executemany("DELETE FROM embeddings WHERE row = ?", ids)
    connection.executemany("INSERT INTO deletions(row) VALUES (?)", ids)


def read_chunks(
    connection: apsw.Connection, chunk_ids: Iterable[str], *, include_embeddings: bool
) -> list[Chunk]:
    """Return the existing chunks of these ids."""
    query = (
        "SELECT chunk_id, content, metadata, chunk_metadata, embedding"
        " FROM chunks JOIN embeddings USING (row) WHERE chunk_id = ?"
        if include_embeddings
        else "SELECT chunk_id, content, metadata, chunk_metadata, NULL FROM chunks"
        " WHERE chunk_id = ?"
    )
    rows = connection.executemany(query, ((chunk_id,) for chunk_id in chunk_ids))
    return [_chunk(row) for row in rows]


def rows_of_chunks(connection: apsw.Connection, chunk_ids: Iterable[str]) -> set[int]:
    """Return the rows of the existing chunks of these ids."""
    query = "SELECT row FROM chunks WHERE chunk_id = ?"
    found: Any = connection.executemany(query, ((i,) for i in chunk_ids))
    return {row for (row,) in found}


def rows_by_chunk(connection: apsw.Connection, chunk_ids: Iterable[str]) -> dict[str, int]:
    """Return the existing rows of these chunks by chunk id."""
    query = "SELECT chunk_id, row FROM json_each(?) CROSS JOIN chunks ON chunk_id = json_each.value"
    return dict(connection.execute(query, (json.dumps(list(chunk_ids)),)))


def rows_of_documents(connection: apsw.Connection, documents: Iterable[str]) -> set[int]:
    """Return the rows of all chunks of these documents."""
    query = "SELECT row FROM chunks WHERE document_id = ?"
    found: Any = connection.executemany(query, ((d,) for d in sorted(documents)))
    return {row for (row,) in found}


def chunk_ids_of(connection: apsw.Connection, rows: Iterable[int]) -> dict[int, str]:
    """Return the chunk ids of existing rows by row.

    SQLite concatenates them; see `read_rows`.
    """
    query = (
        "SELECT json_group_array(row), json_group_array(chunk_id)"
        " FROM json_each(?) CROSS JOIN chunks ON row = value"
    )
    found: Any = connection.execute(query, (json.dumps(list(rows)),)).fetchone()
    return dict(zip(*map(json.loads, found), strict=True))


def chunk_ids_after(connection: apsw.Connection, after: str, limit: int) -> list[str]:
    """Return the first chunk ids after an id, ascending by code point."""
    query = "SELECT chunk_id FROM chunks WHERE chunk_id > ? ORDER BY chunk_id LIMIT ?"
    return [str(chunk_id) for (chunk_id,) in connection.execute(query, (after, limit))]


def chunk_ids_of_documents(connection: apsw.Connection, documents: Iterable[str]) -> list[str]:
    """Return the ids of all chunks of these documents."""
    return list(chunk_ids_of(connection, rows_of_documents(connection, documents)).values())


def documents_after(connection: apsw.Connection, after: str, limit: int) -> list[DocumentCount]:
    """Return the first documents after an id, ascending by code point."""
    query = (
        "SELECT document_id, count(*) FROM chunks WHERE document_id > ?"
        " GROUP BY document_id ORDER BY document_id LIMIT ?"
    )
    found: Any = connection.execute(query, (after, limit))
    return [DocumentCount(str(document_id), count) for document_id, count in found]


def count_in(connection: apsw.Connection, passing: RowSet) -> int:
    """Return the number of chunks in these rows."""
    held = len(passing.rows)
    return state(connection, "count") - held if passing.negated else held


def chunk_ids_in(connection: apsw.Connection, passing: RowSet, after: str, limit: int) -> list[str]:
    """Return the first chunk ids after an id among these rows, ascending by code point."""
    named = frozenset(passing.rows.tolist())
    query = "SELECT row, chunk_id FROM chunks WHERE chunk_id > ? ORDER BY chunk_id"
    every: Any = connection.execute(query, (after,))
    found = (str(i) for row, i in every if (row in named) != passing.negated)
    return list(islice(found, limit))


def documents_in(
    connection: apsw.Connection, passing: RowSet, after: str, limit: int
) -> list[DocumentCount]:
    """Return the first documents after an id with chunks in these rows, by code point."""
    named = frozenset(passing.rows.tolist())
    query = "SELECT row, document_id FROM chunks WHERE document_id > ? ORDER BY document_id"
    every: Any = connection.execute(query, (after,))
    found = (str(name) for row, name in every if (row in named) != passing.negated)
    counted = (DocumentCount(name, len(list(same))) for name, same in groupby(found))
    return list(islice(counted, limit))


def count_up(connection: apsw.Connection, by: int) -> None:
    """Add to the count of chunks, and increase the file's version."""
    connection.execute("UPDATE state SET value = value + 1 WHERE name = 'version'")
    connection.execute("UPDATE state SET value = value + ? WHERE name = 'count'", (by,))


def _chunk(row: tuple[Any, ...]) -> Chunk:
    *fields, embedding = row
    numbers = np.frombuffer(embedding, dtype="<f4").tolist() if embedding else None
    return read_chunk(dict(zip(CHUNK_FIELDS, fields, strict=True)), numbers)
