"""The SQL of `jobs.db`: its tables, the conditions of queries, and all statements that write.

A statement that changes jobs changes one row, by its number, and returns the number if the row
matched. An owner's statement matches a job only while the job runs for this owner.
"""

from __future__ import annotations

from corral.providers.base.database import Schema
from corral.providers.ingestion.jobs.jobs import COLUMNS

TABLES = Schema(
    (
        "CREATE TABLE IF NOT EXISTS jobs"
        " (number INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL UNIQUE, batch_id TEXT,"
        " vector_db_id TEXT NOT NULL, vector_db_created_at REAL NOT NULL,"
        " document_id TEXT NOT NULL, file_id TEXT, filename TEXT NOT NULL,"
        " attributes TEXT NOT NULL, chunking TEXT,"
        " status TEXT NOT NULL, error_code TEXT, error_message TEXT, progress TEXT NOT NULL,"
        " notes TEXT NOT NULL, usage_bytes INTEGER NOT NULL, attempts INTEGER NOT NULL,"
        " tenant TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at REAL NOT NULL,"
        " version INTEGER NOT NULL, request TEXT NOT NULL, origin TEXT,"
        " principal TEXT NOT NULL, acl TEXT NOT NULL, owner TEXT,"
        " storing INTEGER NOT NULL DEFAULT 0, not_before REAL NOT NULL DEFAULT 0) STRICT",
        "CREATE INDEX IF NOT EXISTS jobs_by_document"
        " ON jobs (tenant, vector_db_id, vector_db_created_at, document_id, number)",
        "CREATE INDEX IF NOT EXISTS jobs_by_batch ON jobs (batch_id) WHERE batch_id NOT NULL",
        "CREATE INDEX IF NOT EXISTS jobs_by_status ON jobs (status, attempts, number)",
        "CREATE INDEX IF NOT EXISTS jobs_by_tenant ON jobs (tenant, version)",
        # A document is stored until its job has completed, or is replaced by a newer job.
        "CREATE TABLE IF NOT EXISTS documents"
        " (job INTEGER PRIMARY KEY, document TEXT NOT NULL) STRICT",
    )
)

RELABELING = 2
"""The value of `storing` while a stored document gets other attributes. Such a job is never run
again: that would restore the submitted document with its old acl.
"""


def select(columns: str, *conditions: str, rest: str = "") -> str:
    """Return a query for columns of the jobs that match all conditions.

    Args:
        columns, conditions: Constant SQL with a `?` for each value, in the order of the bindings.
        rest: The end of the query, such as its order and limit.
    """
    where = " AND ".join(conditions)
    return f"SELECT {columns} FROM jobs WHERE {where} {rest}"  # noqa: S608 - every value is bound


# --- conditions ------------------------------------------------------------------------------

UNFINISHED = "status IN ('queued', 'running')"
OF_VECTOR_DB = "tenant = ? AND vector_db_id = ? AND vector_db_created_at = ?"
OF_DOCUMENT = f"{OF_VECTOR_DB} AND document_id = ?"
OF_OWNER = "status = 'running' AND owner = ?"
_NEWER = (
    "(SELECT 1 FROM jobs newer WHERE newer.tenant = jobs.tenant"
    " AND newer.vector_db_id = jobs.vector_db_id"
    " AND newer.vector_db_created_at = jobs.vector_db_created_at"
    " AND newer.document_id = jobs.document_id AND newer.number > jobs.number AND {such})"
)
_REPLACES = (
    "(newer.status = 'completed' OR newer.file_id = jobs.file_id"
    " OR newer.principal = jobs.principal)"
)
NEWEST = f"NOT EXISTS {_NEWER.format(such=_REPLACES)}"
"""Another principal's job counts only once it has stored the document, because it may fail."""
_OVERTAKES = "newer.status IN ('queued', 'running', 'completed')"
OVERTAKEN = f"EXISTS {_NEWER.format(such=_OVERTAKES)}"
"""A newer version of the document is or will be stored, so this one must not be stored."""
SUBMITTED = "(file_id NOT NULL OR EXISTS (SELECT 1 FROM documents WHERE job = number))"
"""The job's file or document is still there."""
READABLE = (
    "EXISTS (SELECT 1 FROM json_each(jobs.acl) AS mine"
    " WHERE mine.value IN (SELECT value FROM json_each(?)))"
)
"""The acl has one of the tokens in a JSON array."""
BEGUN = "(status = 'running' OR version > ? AND status <> 'queued')"

# --- queries ---------------------------------------------------------------------------------

READ = select(COLUMNS, "number = ?")
UNFINISHED_OF_DOCUMENT = select("number, request, origin", OF_DOCUMENT, UNFINISHED)
CANCELLABLE_OF_DOCUMENT = select("number", OF_DOCUMENT, UNFINISHED, "NOT storing")
OLD = select("number", f"NOT {UNFINISHED}", "updated_at < ?", f"NOT {NEWEST}")
OWNED = select("number", OF_OWNER)
OWNED_OFTEN = select("number", OF_OWNER, "attempts >= ?")
OWNED_OVERTAKEN = select("number", OF_OWNER, OVERTAKEN)
OWNED_RELABELING = select("number", OF_OWNER, f"storing = {RELABELING}")
OVERTAKEN_ONE = select("1", "number = ?", OVERTAKEN)
RECORDED = select(
    "document_id, number, acl, status = 'completed' OR storing",
    OF_VECTOR_DB,
    "document_id IN (SELECT value FROM json_each(?))",
    f"(storing OR NOT {UNFINISHED})",
    rest="ORDER BY number DESC",
)
"""The acls of jobs by document, newest first. A waiting job has the acl that it will store."""
_TEXT_BYTES = (
    "(SELECT CASE WHEN octet_length(document) <= ? AND"
    " json_type(document, '$.content.text') = 'text' THEN octet_length(document) END"
    " FROM documents WHERE job = number)"
)
NEXT = select(
    f"number, attempts, {_TEXT_BYTES}, tenant, vector_db_id, vector_db_created_at,"
    " principal, chunking",
    "status = 'queued' AND not_before <= ?",
    "NOT EXISTS (SELECT 1 FROM jobs other WHERE other.status = 'running'"
    " AND other.tenant = jobs.tenant AND other.vector_db_id = jobs.vector_db_id"
    " AND other.document_id = jobs.document_id)",
    rest="ORDER BY attempts, number LIMIT 1",
)

# --- changes of one job ----------------------------------------------------------------------

INSERT = (
    "INSERT INTO jobs (job_id, batch_id, vector_db_id, vector_db_created_at, document_id, file_id,"
    " filename, attributes, chunking, status, progress, notes, usage_bytes, attempts, tenant,"
    " created_at, updated_at, version, request, origin, principal, acl)"
    " VALUES (:job_id, :batch_id, :vector_db_id, :vector_db_created_at, :document_id, :file_id,"
    " :filename, :attributes, :chunking, :status, :progress, :notes, :usage_bytes, :attempts,"
    " :tenant, :created_at, :updated_at, 0, :request, :origin, :principal, :acl)"
)
STAMP = (
    "UPDATE jobs SET updated_at = ?, version = max(?, (SELECT ifnull(max(version), 0) + 1"
    " FROM jobs same WHERE same.tenant = jobs.tenant)) WHERE number = ?"
)
"""Give a changed job a version above all of its tenant, and the time. The version is at least the
time, so that it grows after the newest jobs were removed, and tells nothing of other tenants."""

CANCEL = (
    "UPDATE jobs SET status = 'cancelled', owner = NULL, storing = 0, error_message = ?"
    " WHERE number = ? RETURNING number"
)
RETRY = (
    "UPDATE jobs SET status = 'queued', owner = NULL, storing = 0, error_code = NULL,"
    " error_message = NULL, attempts = 0, not_before = 0, progress = '{}'"
    " WHERE number = ? RETURNING number"
)
REGROUP = "UPDATE jobs SET batch_id = ? WHERE number = ? RETURNING number"
FOLLOW = "UPDATE jobs SET acl = ? WHERE number = ? RETURNING number"
CLAIM = (
    "UPDATE jobs SET status = 'running', owner = ?, attempts = attempts + 1, progress = ?"
    " WHERE number = ? RETURNING number"
)
BEGIN_RELABELING = (
    "UPDATE jobs SET status = 'running', storing = 2, owner = ?, request = ''"
    " WHERE status = 'completed' AND number = ? RETURNING number"
)
RELABEL_WAITING = (
    "UPDATE jobs SET attributes = ?, request = ''"
    " WHERE status <> 'running' AND number = ? RETURNING number"
)

# --- changes by the owner of a job; the last bindings are the owner and the number -----------

REPORT = (
    "UPDATE jobs SET progress = ?, attempts = iif(?, 1, attempts)"
    " WHERE status = 'running' AND owner = ? AND number = ? RETURNING number"
)
BEGIN_STORING = (
    "UPDATE jobs SET progress = ?, attempts = iif(?, 1, attempts), storing = 1"
    " WHERE status = 'running' AND owner = ? AND number = ? RETURNING number"
)
COMPLETE = (
    "UPDATE jobs SET status = 'completed', owner = NULL, storing = 0, error_code = NULL,"
    " error_message = NULL, progress = ?, usage_bytes = ?, notes = ?"
    " WHERE status = 'running' AND owner = ? AND number = ? RETURNING number"
)
END_RELABELING = (
    "UPDATE jobs SET status = 'completed', owner = NULL, storing = 0,"
    " attributes = ifnull(?, attributes)"
    " WHERE status = 'running' AND owner = ? AND number = ? RETURNING number"
)
FAIL = (
    "UPDATE jobs SET status = 'failed', owner = NULL, storing = 0, error_code = ?,"
    " error_message = ? WHERE status = 'running' AND owner = ? AND number = ? RETURNING number"
)
POSTPONE = (
    "UPDATE jobs SET status = 'queued', owner = NULL, storing = 0, error_message = ?,"
    " not_before = ? WHERE storing <> 2 AND status = 'running' AND owner = ? AND number = ?"
    " RETURNING number"
)
REQUEUE = (
    "UPDATE jobs SET status = 'queued', owner = NULL, storing = 0,"
    " attempts = max(0, attempts - ?)"
    " WHERE status = 'running' AND owner = ? AND number = ? RETURNING number"
)

# --- documents and deletions -----------------------------------------------------------------

DOCUMENTS = "SELECT job, document FROM documents WHERE job IN (SELECT value FROM json_each(?))"
KEEP_DOCUMENT = "INSERT INTO documents VALUES (?, ?)"
DROP_DOCUMENT = "DELETE FROM documents WHERE job = ?"
DROP_EARLIER_DOCUMENTS = (
    "DELETE FROM documents WHERE job IN (SELECT number FROM jobs WHERE tenant = ?"
    " AND vector_db_id = ? AND vector_db_created_at = ? AND document_id = ?"
    " AND status NOT IN ('queued', 'running'))"
)
DROP_UNOWNED_DOCUMENTS = "DELETE FROM documents WHERE job NOT IN (SELECT number FROM jobs)"
DROP = "DELETE FROM jobs WHERE number = ?"
DROP_VECTOR_DB = (
    "DELETE FROM jobs WHERE tenant = ? AND vector_db_id = ? AND vector_db_created_at = ?"
    " AND status <> 'running'"
)
