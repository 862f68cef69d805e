"""All tables of the state. A change needs a revision in `migrations/versions` and a new `HEAD`."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

HEAD = "0005"
"""The newest revision."""

METADATA = MetaData()

_BIG = BigInteger().with_variant(Integer(), "sqlite")


def _text(name: str, *, null: bool = False, key: bool = False) -> Column[str]:
    return Column(name, Text, nullable=null, primary_key=key)


def _time(name: str, *, null: bool = False) -> Column[float]:
    return Column(name, Double, nullable=null)


def _number(name: str, *, null: bool = False, key: bool = False) -> Column[int]:
    return Column(name, _BIG, nullable=null, primary_key=key)


def _serial(name: str) -> Column[int]:
    """Return a column that numbers rows in the order of insertion; no number is used twice."""
    return Column(name, _BIG, primary_key=True, autoincrement=True)


def _vector_db() -> tuple[Column[str], Column[str]]:
    """Return the key columns of a table with one row per vector DB."""
    return _text("tenant", key=True), _text("identifier", key=True)


def _registration() -> tuple[Column[str], Column[str], Column[float]]:
    """Return the columns of the registration that a row belongs to."""
    return _text("tenant"), _text("identifier"), _time("created_at")


def _owner() -> tuple[Column[str], Column[str]]:
    """Return the columns for the tenant and the user that own a row."""
    return _text("tenant"), _text("owner")


INSTALLATION = Table("installation", METADATA, _text("id", key=True))
"""A single row with a random UUID (version 4), inserted when the tables are created."""

VERSIONS = Table("versions", METADATA, _text("area", key=True), _number("version"))
"""A version number for each cached area; each write increments it."""

KEYS = Table(
    "keys",
    METADATA,
    _text("key_id", key=True),
    Column("sha256", LargeBinary, nullable=False),
    _text("tenant"),
    _text("user"),
    _text("groups"),
    _text("role"),
    _text("limits"),
    _time("created_at"),
    _time("expires_at", null=True),
    _time("revoked_at", null=True),
    _time("last_used_at", null=True),
)

# --- registrations ---------------------------------------------------------------------------

VECTOR_DBS = Table(
    "vector_dbs",
    METADATA,
    *_vector_db(),
    _text("registration"),
)
REBUILDS = Table(
    "rebuilds",
    METADATA,
    *_vector_db(),
    _time("created_at"),
    _text("changes"),
    _time("closed_until"),
)
REBUILD_NOTES = Table(
    "rebuild_notes",
    METADATA,
    _serial("number"),
    _text("tenant"),
    _text("identifier"),
    _text("kind"),
    _text("name"),
    UniqueConstraint("tenant", "identifier", "kind", "name"),
    sqlite_autoincrement=True,
)
MAKING = Table("making", METADATA, _text("name", key=True), _text("vector_db"), _time("renewed_at"))
"""Vector DBs that are being created."""

VECTOR_STORES = Table(
    "vector_stores",
    METADATA,
    *_vector_db(),
    _time("created_at"),
    _text("name"),
    _text("description", null=True),
    _text("metadata", null=True),
    _number("expires_after_days", null=True),
    _number("last_active_at"),
    _number("expired_at", null=True),
)
CHUNK_EXPIRY = Table(
    "chunk_expiry",
    METADATA,
    _text("tenant"),
    _text("identifier"),
    _time("created_at"),
    _text("chunk_id"),
    _number("due"),
    PrimaryKeyConstraint("tenant", "identifier", "created_at", "chunk_id", "due"),
    Index("chunk_expiry_by_due", "due"),
)

WRITES = Table(
    "writes",
    METADATA,
    _text("name", key=True),
    _text("writer"),
    _number("beat"),
    Column("entry", LargeBinary, nullable=True),
)
"""The write-ahead logs of vector DBs: the writer that holds the lock, and its unfinished write."""

# --- evaluation ------------------------------------------------------------------------------

JUDGED_SETS = Table(
    "judged_sets",
    METADATA,
    _serial("number"),
    *_registration(),
    _text("name"),
    _time("made_at"),
    UniqueConstraint("tenant", "identifier", "created_at", "name"),
    sqlite_autoincrement=True,
)
JUDGED_QUESTIONS = Table(
    "judged_questions",
    METADATA,
    _serial("number"),
    _number("judged_set"),
    _text("key"),
    _text("question"),
    # JSON: the grade of each judged chunk by its id.
    _text("grades"),
    _number("suggested"),
    _time("changed_at"),
    UniqueConstraint("judged_set", "key"),
    sqlite_autoincrement=True,
)
TUNINGS = Table(
    "tunings",
    METADATA,
    _serial("number"),
    Column("tuning_id", Text, nullable=False, unique=True),
    *_registration(),
    _text("judged_set"),
    _text("user"),
    _text("status"),
    _number("done"),
    _number("total"),
    _number("cancelled"),
    _text("error"),
    _text("report", null=True),
    # JSON: the settings of the registration before the recommended ones were applied.
    _text("before", null=True),
    _text("owner"),
    _time("started_at"),
    _time("ended_at", null=True),
    Index("tunings_by_vector_db", "tenant", "identifier"),
    sqlite_autoincrement=True,
)

# --- files -----------------------------------------------------------------------------------

FILES = Table(
    "files",
    METADATA,
    _serial("number"),
    Column("file_id", Text, nullable=False, unique=True),
    _text("filename"),
    _number("bytes"),
    _text("sha256"),
    _text("blob"),
    _text("purpose"),
    _number("created_at"),
    _number("expires_at", null=True),
    *_owner(),
    _text("charset"),
    Index("files_by_content", "sha256"),
    Index("files_by_blob", "blob"),
    Index("files_by_expiry", "expires_at"),
    sqlite_autoincrement=True,
)

# --- responses and conversations -------------------------------------------------------------

RESPONSES = Table(
    "responses",
    METADATA,
    _serial("number"),
    Column("id", Text, nullable=False, unique=True),
    *_owner(),
    _number("created_at"),
    _text("model", null=True),
    _text("previous", null=True),
    _text("body"),
    Index("responses_by_age", "created_at"),
    sqlite_autoincrement=True,
)
CONVERSATIONS = Table(
    "conversations",
    METADATA,
    _text("id", key=True),
    *_owner(),
    _number("created_at"),
    _number("changed_at"),
    _time("locked_until"),
    _text("metadata"),
    Index("conversations_by_age", "changed_at"),
)
ITEMS = Table(
    "items",
    METADATA,
    _serial("place"),
    _text("holder"),
    _text("part"),
    _text("id"),
    _text("body"),
    UniqueConstraint("holder", "part", "id"),
    Index("items_by_id", "id"),
    sqlite_autoincrement=True,
)

# --- jobs ------------------------------------------------------------------------------------

JOBS = Table(
    "jobs",
    METADATA,
    _serial("number"),
    Column("job_id", Text, nullable=False, unique=True),
    _text("batch_id", null=True),
    _text("vector_db_id"),
    _time("vector_db_created_at"),
    _text("document_id"),
    _text("file_id", null=True),
    _text("filename"),
    _text("attributes"),
    _text("acl", null=True),
    _text("chunking", null=True),
    _text("status"),
    _text("error_code", null=True),
    _text("error_message", null=True),
    _text("progress"),
    _text("notes"),
    _number("usage_bytes"),
    _number("attempts"),
    _text("tenant"),
    _number("created_at"),
    _time("updated_at"),
    _number("version"),
    _text("principal"),
    _text("user"),
    _text("key_id"),
    _text("request"),
    _text("origin", null=True),
    _text("owner", null=True),
    _number("claim"),
    _number("storing"),
    _time("not_before"),
    _text("host"),
    Index(
        "jobs_by_document",
        "tenant",
        "vector_db_id",
        "vector_db_created_at",
        "document_id",
        "number",
    ),
    Index("jobs_by_batch", "batch_id"),
    Index("jobs_by_status", "status", "attempts", "number"),
    Index("jobs_by_tenant", "tenant", "version"),
    sqlite_autoincrement=True,
)
LEASES = Table("leases", METADATA, _text("name", key=True), _number("beat"))
"""The heartbeat counts of workers; a live worker keeps incrementing its count."""

CLAIMS = Table(
    "claims",
    METADATA,
    _text("task", key=True),
    _text("owner", null=True),
    _number("number"),
    _time("due"),
)
"""Background tasks, each run by one process at a time; `due` is a time of the database's clock."""

QUOTAS = Table(
    "quotas",
    METADATA,
    _text("caller", key=True),
    _time("requests"),
    _time("bytes"),
    _time("at"),
)
"""The rest of each caller's allowances at the time `at`, by the clock of the database."""

JOB_TOKENS = Table("job_tokens", METADATA, _number("job", key=True), _text("token", key=True))
"""The ACL tokens of each job's document."""

DOCUMENTS = Table(
    "documents",
    METADATA,
    Column("job", _BIG, primary_key=True, autoincrement=False),
    _text("document"),
    # The size of the document; null if it is an address instead of a text.
    _number("text_bytes", null=True),
)
"""The documents of jobs; deleted when the job has completed or a newer job replaces it."""
