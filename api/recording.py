"""Records the question and the answer of a request, for example for a server's audit log.

A record gets data that spans omit: the question and the ids of the chunks in the answer. It belongs
to the task that sets it and to the tasks that this task starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Protocol


class Record(Protocol):
    """Receives questions and answers; must not raise."""

    def asks(self, question: str, vector_db_ids: Sequence[str] = ()) -> None:
        """Add a question and the vector DBs to search."""

    def returns(self, vector_db_id: str, chunk_ids: Iterable[str]) -> None:
        """Add chunks of a vector DB that the answer contains."""


record: ContextVar[Record | None] = ContextVar("corral_record", default=None)
"""The record of the current request, or None."""


def record_question(question: str, vector_db_ids: Sequence[str]) -> None:
    """Add a question to the current record, if there is one."""
    if current := record.get():
        current.asks(question, vector_db_ids)


def record_chunks(vector_db_id: str, chunk_ids: Iterable[str]) -> None:
    """Add chunks of an answer to the current record, if there is one."""
    if current := record.get():
        current.returns(vector_db_id, chunk_ids)
