"""Change rows of jobs within a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)

from corral.providers.ingestion.jobs.jobs import Job, job_of
from corral.providers.ingestion.jobs.reader import COLUMNS, J
from corral.providers.state.tables import DOCUMENTS, JOB_TOKENS, JOBS

MAX_NAMED = 1000
"""Maximum number of jobs in one statement, since databases limit the parameters of a statement."""

_SAME = JOBS.alias("same")
_NEXT_VERSION = (
    select(func.coalesce(func.max(_SAME.c.version), 0) + 1)
    .where(_SAME.c.tenant == J.tenant)
    .scalar_subquery()
)
_LEAST = bindparam("least", type_=J.version.type)
_STAMP = (
    update(JOBS)
    .where(J.number == bindparam("stamped"))
    .values(
        updated_at=bindparam("at"),
        version=case((_NEXT_VERSION > _LEAST, _NEXT_VERSION), else_=_LEAST),
    )
)


def change(
    table: Connection,
    now: float,
    numbers: Iterable[int],
    values: Mapping[str, Any],
    *conditions: ColumnElement[bool],
) -> int:
    """Change jobs, give each a new version, and return the number of changed jobs.

    Args:
        now: The current time in Unix seconds.
        values: New values by column.
        conditions: Conditions that a job must meet to be changed.
    """
    count = 0
    for some in _batched(numbers):
        changing = update(JOBS).where(J.number.in_(some), *conditions).values(values)
        changed = sorted(table.scalars(changing.returning(J.number)))
        stamp(table, now, changed)
        count += len(changed)
    return count


def stamp(table: Connection, now: float, numbers: Sequence[int]) -> None:
    """Set the time of changed jobs, and give each a version above all others of its tenant.

    A version is at least the time in milliseconds, so versions keep growing even if the newest jobs
    are removed. It reveals nothing about other tenants.
    """
    rows = [{"stamped": number, "at": now, "least": int(now * 1000)} for number in numbers]
    if rows:
        table.execute(_STAMP, rows)


def read_job(table: Connection, number: int) -> Job:
    """Return the job with a number."""
    return job_of(table.execute(select(*COLUMNS).where(J.number == number)).one())


def numbers_of(table: Connection, query: Select[int]) -> list[int]:
    """Return the job numbers that a query selects, ascending."""
    return list(table.scalars(query.order_by(J.number)))


def _batched(numbers: Iterable[int]) -> Iterator[list[int]]:
    rest = iter(numbers)
    while some := list(islice(rest, MAX_NAMED)):
        yield some


def set_acl(table: Connection, number: int, acl: Iterable[str]) -> None:
    """Record the ACL of a job's document."""
    table.execute(delete(JOB_TOKENS).where(JOB_TOKENS.c.job == number))
    rows = [{"job": number, "token": token} for token in sorted(set(acl))]
    if rows:
        table.execute(insert(JOB_TOKENS), rows)


def drop(table: Connection, numbers: Iterable[int]) -> None:
    """Delete jobs and their documents."""
    for some in _batched(numbers):
        table.execute(delete(DOCUMENTS).where(DOCUMENTS.c.job.in_(some)))
        table.execute(delete(JOB_TOKENS).where(JOB_TOKENS.c.job.in_(some)))
        table.execute(delete(JOBS).where(J.number.in_(some)))
