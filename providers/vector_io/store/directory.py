"""The documents of a chunk file: a row each, kept by the writes of chunks, for sorted lists."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from corral.api.chunks import Chunk
from corral.api.documents import (
    DocumentOrder,
    DocumentPage,
    DocumentQuery,
    DocumentSummary,
    name_key,
    summaries,
)
from corral.providers.vector_io.kit.rows import RowSet

_ORDERS = {
    DocumentOrder.ID: "document_id",
    DocumentOrder.NAME: "name_key",
    DocumentOrder.SIZE: "size",
    DocumentOrder.CHUNKS: "chunks",
    DocumentOrder.UPDATED: "updated_at",
}

# The documents as a caller sees them. With part of a document hidden, its name and its time may
# come from a hidden chunk, so they are left out.
_WHOLE = "SELECT document_id, name, name_key, chunks, size, updated_at FROM documents"
_COUNTED = """
SELECT c.document_id, count(*) AS chunks, sum(octet_length(c.content)) AS size
FROM json_each(?) CROSS JOIN chunks AS c ON c.row = value
WHERE c.document_id > '' GROUP BY c.document_id
"""
_WITHOUT = f"""
WITH hidden AS ({_COUNTED})
SELECT d.document_id, iif(h.chunks IS NULL, d.name, d.document_id) AS name,
    iif(h.chunks IS NULL, d.name_key, d.document_id) AS name_key,
    d.chunks - ifnull(h.chunks, 0) AS chunks, d.size - ifnull(h.size, 0) AS size,
    iif(h.chunks IS NULL, d.updated_at, NULL) AS updated_at
FROM documents AS d LEFT JOIN hidden AS h USING (document_id)
WHERE d.chunks > ifnull(h.chunks, 0)
"""  # noqa: S608 - a constant of this module
_WITH = f"""
WITH shown AS ({_COUNTED})
SELECT d.document_id, iif(s.chunks = d.chunks, d.name, d.document_id) AS name,
    iif(s.chunks = d.chunks, d.name_key, d.document_id) AS name_key, s.chunks, s.size,
    iif(s.chunks = d.chunks, d.updated_at, NULL) AS updated_at
FROM shown AS s JOIN documents AS d USING (document_id)
"""  # noqa: S608 - a constant of this module


def add_chunks(connection: apsw.Connection, chunks: Iterable[Chunk]) -> None:
    """Add new chunks to their documents, which take the name and the time of the newest chunk."""
    connection.executemany(
        "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (document_id) DO UPDATE SET"
        " name = excluded.name, name_key = excluded.name_key,"
        " chunks = chunks + excluded.chunks, size = size + excluded.size,"
        " updated_at = ifnull(excluded.updated_at, updated_at)",
        [
            (one.document_id, one.name, name_key(one.name), one.chunks, one.size, one.updated_at)
            for one in summaries(chunks)
        ],
    )


def remove_rows(connection: apsw.Connection, rows: Sequence[int]) -> None:
    """Take chunks from their documents, before their rows are deleted."""
    counted: Any = connection.execute(_COUNTED, (json.dumps(rows),)).fetchall()
    connection.executemany(
        "UPDATE documents SET chunks = chunks - ?, size = size - ? WHERE document_id = ?",
        [(chunks, size, document_id) for document_id, chunks, size in counted],
    )
    connection.executemany(
        "DELETE FROM documents WHERE document_id = ? AND chunks = 0",
        [(document_id,) for document_id, _, _ in counted],
    )


def document_page(
    connection: apsw.Connection, passing: RowSet, query: DocumentQuery
) -> DocumentPage:
    """Return a page of the documents with chunks in these rows.

    Without hidden rows, an index has the order. Otherwise, the hidden or the visible chunks are
    counted, as the set holds them.
    """
    rows: tuple[str, ...] = (json.dumps(passing.rows.tolist()),)
    if not passing.negated:
        visible = _WITH
    elif len(passing.rows):
        visible = _WITHOUT
    else:
        visible, rows = _WHOLE, ()
    where, bound = "", rows
    if part := name_key(query.contains):
        where, bound = " WHERE instr(name_key, ?)", (*rows, part)
    order, way = _ORDERS[query.order_by], " DESC" if query.descending else ""
    named = f"FROM ({visible}){where}"
    total: Any = connection.execute(f"SELECT count(*) {named}", bound).fetchone()
    page: Any = connection.execute(
        f"SELECT document_id, name, chunks, size, updated_at {named}"
        f" ORDER BY {order}{way}, document_id{way} LIMIT ? OFFSET ?",
        (*bound, query.limit, query.offset),
    )
    return DocumentPage([DocumentSummary(*row) for row in page], total[0])
