"""The table of jobs, `jobs.db`: shared by the tasks and processes of a data folder."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import apsw

from corral.api.errors import Conflict
from corral.api.principal import Principal
from corral.api.vector_dbs import VectorDB
from corral.providers.ingestion.jobs.job_rows import (
    CHANGED,
    NEWEST,
    NEXT_VERSION,
    OF_VECTOR_DB,
    OVERTAKEN,
    RECORDED,
    UNFINISHED,
    Rows,
    Scope,
    Submission,
    document_json,
    followed,
    milliseconds,
    new_row,
    place_of,
    readable_by,
)
from corral.providers.ingestion.jobs.jobs import Job
from corral.providers.ingestion.jobs.owned_jobs import REPLACED, OwnedJobs, read_job


class JobTable(OwnedJobs):
    """All jobs of a data folder: reads, what owners write, and what people ask for.

    Its methods never wait for a job.
    """

    # --- submitting --------------------------------------------------------------------------

    async def add(
        self, submissions: Sequence[Submission], batch_id: str | None, *, same_origin: bool
    ) -> list[Job]:
        """Store jobs and return them; they are on the disk then.

        An unfinished job of the same content takes the place of a new one. Other unfinished jobs of
        the same document are cancelled, unless they are storing it: then the new one waits.

        Raises:
            Conflict: `same_origin`, and an unfinished job of a document is from another origin;
                nothing was stored.
        """

        def insert(table: apsw.Connection) -> list[Job]:
            numbers = [self._insert(table, one, batch_id, same_origin) for one in submissions]
            # Read here: the next write may remove one.
            return [read_job(table, number) for number in numbers]

        return await self._file.write(insert)

    def _insert(
        self, table: apsw.Connection, new: Submission, batch_id: str | None, same_origin: bool
    ) -> int:
        request, vector_db, now = new.request, new.vector_db, self._clock()
        origin = request.document.origin if request.document else None
        place = (*place_of(vector_db), new.document_id)
        at = f"{OF_VECTOR_DB} AND document_id = ?"
        _check_hidden(table, new.principal, f"{at} AND {UNFINISHED}", place)
        query = f"SELECT number, request, origin FROM jobs WHERE {at} AND {UNFINISHED}"  # noqa: S608
        for number, digest, other in cast(Rows, table.execute(query, place).fetchall()):
            if same_origin and origin and other and origin != other:
                raise _other_origin(new.document_id)
            if digest == new.digest:
                regroup = f"UPDATE jobs SET batch_id = ?, {CHANGED} WHERE number = ?"  # noqa: S608
                table.execute(regroup, (batch_id, milliseconds(now), now, number))
                return int(number)
        self._cancel(table, f"{at} AND {UNFINISHED}", place, REPLACED)
        earlier = f"SELECT number FROM jobs WHERE {at} AND NOT {UNFINISHED}"  # noqa: S608
        table.execute(f"DELETE FROM documents WHERE job IN ({earlier})", place)  # noqa: S608
        row = new_row(new, batch_id, now)
        marks = ", ".join("?" * len(row))
        table.execute(
            f"INSERT INTO jobs (version, {', '.join(row)})"  # noqa: S608 - our own names
            f" VALUES ({NEXT_VERSION.format(tenant='?')}, {marks})",
            (milliseconds(now), vector_db.tenant, *row.values()),
        )
        number = table.last_insert_rowid()
        if request.document:
            text = document_json(request.document)
            table.execute("INSERT INTO documents VALUES (?, ?)", (number, text))
        return number

    # --- changing ----------------------------------------------------------------------------

    async def cancel(self, scope: Scope, reason: str | None = None) -> int:
        """Cancel jobs that are not final and not storing; return how many."""
        where, values = scope.where()
        return await self._file.write(
            lambda table: self._cancel(table, f"{where} AND {UNFINISHED}", values, reason)
        )

    def _cancel(
        self, table: apsw.Connection, where: str, values: Iterable[Any], reason: str | None
    ) -> int:
        change = "status = 'cancelled', owner = NULL, error_message = ?"
        return self._update(table, change, (reason,), f"{where} AND NOT storing", tuple(values))

    async def retry(self, scope: Scope) -> int:
        """Queue failed and cancelled jobs again; return how many.

        Those that a newer job of the document has replaced stay as they are, and so do those whose
        document is no longer kept.
        """
        where, values = scope.where()
        there = "(file_id NOT NULL OR EXISTS (SELECT 1 FROM documents WHERE job = number))"
        change = (
            "status = 'queued', owner = NULL, storing = 0, attempts = 0, not_before = 0,"
            " error_code = NULL, error_message = NULL, progress = '{}'"
        )
        last = f"{NEWEST} AND NOT {OVERTAKEN}"
        condition = f"{where} AND status IN ('failed', 'cancelled') AND {last} AND {there}"
        return await self._file.write(
            lambda table: self._update(table, change, (), condition, tuple(values))
        )

    async def follow(self, vector_db: VectorDB, acls: Mapping[str, Collection[str]]) -> None:
        """Record who may read documents now, by document; see `followed`."""
        values = (*place_of(vector_db), json.dumps(list(acls)))

        def record(table: apsw.Connection) -> None:
            rows = cast(Rows, table.execute(RECORDED, values).fetchall())
            for number, acl in followed(rows, acls).items():
                self._update(table, "acl = ?", (json.dumps(acl),), "number = ?", (number,))

        await self._file.write(record)

    async def remove(self, scope: Scope, version: int) -> bool:
        """Forget the jobs that the reader may change; False, and nothing done, if one was begun.

        Args:
            scope: Whose. Those of hidden chunks stay, as these do.
            version: Of their last change when none was running.
        """
        where, values = scope.where()
        begun = "(status = 'running' OR version > ? AND status <> 'queued')"
        changing, chosen = replace(scope, changing=True).where()

        def delete(table: apsw.Connection) -> bool:
            query = f"SELECT 1 FROM jobs WHERE {where} AND {begun} LIMIT 1"  # noqa: S608 - ours
            if table.execute(query, (*values, version)).fetchall():
                return False
            numbers = f"SELECT number FROM jobs WHERE {changing}"  # noqa: S608 - our own text
            table.execute(f"DELETE FROM documents WHERE job IN ({numbers})", chosen)  # noqa: S608 - as above
            table.execute(f"DELETE FROM jobs WHERE number IN ({numbers})", chosen)  # noqa: S608 - as above
            return True

        return await self._file.write(delete)

    async def sweep(self, gone: Collection[tuple[str, str, float]], before: float) -> int:
        """Forget the jobs of vector DBs that are gone, and old ones that newer have replaced.

        Args:
            gone: As `vector_dbs` has them.
            before: When a replaced job must have changed last, in Unix seconds.
        """

        def delete(table: apsw.Connection) -> int:
            at_first = table.total_changes()
            table.executemany(
                f"DELETE FROM jobs WHERE {OF_VECTOR_DB} AND status <> 'running'",  # noqa: S608
                list(gone),
            )
            old = f"NOT {UNFINISHED} AND updated_at < ? AND NOT {NEWEST}"
            table.execute(f"DELETE FROM jobs WHERE {old}", (before,))  # noqa: S608 - our own text
            count = table.total_changes() - at_first
            table.execute("DELETE FROM documents WHERE job NOT IN (SELECT number FROM jobs)")
            return count

        return await self._file.write(delete)


def _check_hidden(
    table: apsw.Connection, principal: Principal, where: str, values: tuple[Any, ...]
) -> None:
    """Refuse to replace an unfinished job of a document that a principal may not read."""
    if principal.reads_all:
        return
    readable, more = readable_by(principal)
    query = f"SELECT 1 FROM jobs WHERE {where} AND NOT {readable} LIMIT 1"  # noqa: S608
    if table.execute(query, (*values, *more)).fetchall():
        raise Conflict(
            "A document_id in this request is taken.",
            hint="Nothing was queued. Choose other ids.",
            field="documents",
        )


def _other_origin(document_id: str) -> Conflict:
    return Conflict(
        f"Document {document_id!r} is already being ingested from another place.",
        hint="Choose another document_id, or replace it with same_origin_only: false.",
        field="documents",
    )
