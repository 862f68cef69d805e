"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables."""
    for create in (
        _chunk_expiry,
        _conversations,
        _documents,
        _files,
        _installation,
        _items,
        _job_tokens,
        _jobs,
        _keys,
        _leases,
        _making,
        _rebuild_notes,
        _rebuilds,
        _responses,
        _vector_dbs,
        _vector_stores,
        _versions,
    ):
        create()


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=null)


def _time(name: str, *, null: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Double(), nullable=null)


def _number(name: str, *, null: bool = False) -> sa.Column[int]:
    return sa.Column(name, BIG, nullable=null)


def _chunk_expiry() -> None:
    op.create_table(
        "chunk_expiry",
        _text("tenant"),
        _text("identifier"),
        _time("created_at"),
        _text("chunk_id"),
        _number("due"),
        sa.PrimaryKeyConstraint("tenant", "identifier", "created_at", "chunk_id", "due"),
    )
    op.create_index("chunk_expiry_by_due", "chunk_expiry", ["due"])


def _conversations() -> None:
    op.create_table(
        "conversations",
        _text("id"),
        _text("tenant"),
        _text("owner"),
        _number("created_at"),
        _number("changed_at"),
        _time("locked_until"),
        _text("metadata"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("conversations_by_age", "conversations", ["changed_at"])


def _documents() -> None:
    op.create_table(
        "documents",
        sa.Column("job", BIG, autoincrement=False, nullable=False),
        _text("document"),
        _number("text_bytes", null=True),
        sa.PrimaryKeyConstraint("job"),
    )


def _files() -> None:
    op.create_table(
        "files",
        _number("number"),
        _text("file_id"),
        _text("filename"),
        _number("bytes"),
        _text("sha256"),
        _text("purpose"),
        _number("created_at"),
        _number("expires_at", null=True),
        _text("tenant"),
        _text("owner"),
        _text("charset"),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("file_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("files_by_content", "files", ["sha256"])
    op.create_index("files_by_expiry", "files", ["expires_at"])


def _installation() -> None:
    op.create_table("installation", _text("id"), sa.PrimaryKeyConstraint("id"))


def _items() -> None:
    op.create_table(
        "items",
        _number("place"),
        _text("holder"),
        _text("part"),
        _text("id"),
        _text("body"),
        sa.PrimaryKeyConstraint("place"),
        sa.UniqueConstraint("holder", "part", "id"),
        sqlite_autoincrement=True,
    )
    op.create_index("items_by_id", "items", ["id"])


def _job_tokens() -> None:
    op.create_table(
        "job_tokens",
        _number("job"),
        _text("token"),
        sa.PrimaryKeyConstraint("job", "token"),
    )


def _jobs() -> None:
    op.create_table(
        "jobs",
        _number("number"),
        _text("job_id"),
        _text("batch_id", null=True),
        _text("vector_db_id"),
        _time("vector_db_created_at"),
        _text("document_id"),
        _text("file_id", null=True),
        _text("filename"),
        _text("attributes"),
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
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("job_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("jobs_by_batch", "jobs", ["batch_id"])
    op.create_index(
        "jobs_by_document",
        "jobs",
        ["tenant", "vector_db_id", "vector_db_created_at", "document_id", "number"],
    )
    op.create_index("jobs_by_status", "jobs", ["status", "attempts", "number"])
    op.create_index("jobs_by_tenant", "jobs", ["tenant", "version"])


def _keys() -> None:
    op.create_table(
        "keys",
        _text("key_id"),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        _text("tenant"),
        _text("user"),
        _text("groups"),
        _text("role"),
        _text("limits"),
        _time("created_at"),
        _time("expires_at", null=True),
        _time("revoked_at", null=True),
        _time("last_used_at", null=True),
        sa.PrimaryKeyConstraint("key_id"),
    )


def _leases() -> None:
    op.create_table(
        "leases",
        _text("name"),
        _number("beat"),
        sa.PrimaryKeyConstraint("name"),
    )


def _making() -> None:
    op.create_table(
        "making",
        _text("name"),
        _text("vector_db"),
        _time("renewed_at"),
        sa.PrimaryKeyConstraint("name"),
    )


def _rebuild_notes() -> None:
    op.create_table(
        "rebuild_notes",
        _number("number"),
        _text("tenant"),
        _text("identifier"),
        _text("kind"),
        _text("name"),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("tenant", "identifier", "kind", "name"),
        sqlite_autoincrement=True,
    )


def _rebuilds() -> None:
    op.create_table(
        "rebuilds",
        _text("tenant"),
        _text("identifier"),
        _time("created_at"),
        _text("changes"),
        _time("closed_until"),
        sa.PrimaryKeyConstraint("tenant", "identifier"),
    )


def _responses() -> None:
    op.create_table(
        "responses",
        _number("number"),
        _text("id"),
        _text("tenant"),
        _text("owner"),
        _number("created_at"),
        _text("model", null=True),
        _text("previous", null=True),
        _text("body"),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("responses_by_age", "responses", ["created_at"])


def _vector_dbs() -> None:
    op.create_table(
        "vector_dbs",
        _text("tenant"),
        _text("identifier"),
        _text("registration"),
        sa.PrimaryKeyConstraint("tenant", "identifier"),
    )


def _vector_stores() -> None:
    op.create_table(
        "vector_stores",
        _text("tenant"),
        _text("identifier"),
        _time("created_at"),
        _text("name"),
        _text("description", null=True),
        _text("metadata", null=True),
        _number("expires_after_days", null=True),
        _number("last_active_at"),
        _number("expired_at", null=True),
        sa.PrimaryKeyConstraint("tenant", "identifier"),
    )


def _versions() -> None:
    op.create_table(
        "versions",
        _text("area"),
        _number("version"),
        sa.PrimaryKeyConstraint("area"),
    )
