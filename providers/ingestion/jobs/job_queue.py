"""Which queued jobs come next, and which of them are done together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import apsw

TOGETHER_BYTES = 16 * 1024
"""Text of documents that one worker does together: some 20 chunks, which take half a second to
embed on a laptop. A longer document is done alone."""

TOGETHER_DOCUMENTS = 32

_TEXT_BYTES = (
    "(SELECT CASE WHEN octet_length(document) <= ? AND"
    " json_type(document, '$.content.text') = 'text' THEN octet_length(document) END"
    " FROM documents WHERE job = number)"
)
_NEXT = (
    f"SELECT number, attempts, {_TEXT_BYTES}, tenant, vector_db_id, vector_db_created_at,"  # noqa: S608 - our own text
    " principal, chunking FROM jobs WHERE status = 'queued' AND not_before <= ?"
    " AND NOT EXISTS (SELECT 1 FROM jobs other WHERE other.status = 'running'"
    " AND other.tenant = jobs.tenant AND other.vector_db_id = jobs.vector_db_id"
    " AND other.document_id = jobs.document_id) ORDER BY attempts, number LIMIT 1"
)


class Next(NamedTuple):
    """The job that comes next.

    Attributes:
        number: Of the job.
        attempts: How often it was begun before.
        text_bytes: Of the document, where it is a short text that was handed in; else None.
        place: What jobs must have in common that are done together.
    """

    number: int
    attempts: int
    text_bytes: int | None
    place: tuple[Any, ...]


def next_of(table: apsw.Connection, now: float) -> Next | None:
    """Return the job that comes next: those that were begun before come last."""
    row = table.execute(_NEXT, (TOGETHER_BYTES, now)).fetchone()
    return None if row is None else Next(row[0], row[1], row[2], tuple(row[3:]))


def together(table: apsw.Connection, now: float) -> Iterator[int]:
    """Yield the numbers of the jobs that come next, one or some that are done together.

    Together are short texts for the same vector DB by the same principal, in chunks of the same
    sizes. One that was begun before is done alone: it may be what ended its process.

    The caller makes each job its own before it asks for the next.
    """
    room, place = TOGETHER_BYTES, None
    for _ in range(TOGETHER_DOCUMENTS):
        found = next_of(table, now)
        if found is None:
            return
        alone = found.text_bytes is None or found.attempts > 0
        if place is not None and (alone or found.place != place or (found.text_bytes or 0) > room):
            return
        yield found.number
        if alone:
            return
        room, place = room - (found.text_bytes or 0), found.place
