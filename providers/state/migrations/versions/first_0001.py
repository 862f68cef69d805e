"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "chunk_expiry",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("identifier", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("chunk_id", sa.Text(), nullable=False),
        sa.Column("due", BIG, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "identifier", "created_at", "chunk_id", "due"),
    )
    op.create_index("chunk_expiry_by_due", "chunk_expiry", ["due"])
    op.create_table(
        "conversations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.Column("changed_at", BIG, nullable=False),
        sa.Column("locked_until", sa.Double(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("conversations_by_age", "conversations", ["changed_at"])
    op.create_table(
        "documents",
        sa.Column("job", BIG, autoincrement=False, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("text_bytes", BIG, nullable=True),
        sa.PrimaryKeyConstraint("job"),
    )
    op.create_table(
        "files",
        sa.Column("number", BIG, nullable=False),
        sa.Column("file_id", sa.Text(), nullable=False),
        sa.Column("filename", sa.Text(), nullable=False),
        sa.Column("bytes", BIG, nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.Column("expires_at", BIG, nullable=True),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("charset", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("file_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("files_by_content", "files", ["sha256"])
    op.create_index("files_by_expiry", "files", ["expires_at"])
    op.create_table(
        "installation", sa.Column("id", sa.Text(), nullable=False), sa.PrimaryKeyConstraint("id")
    )
    op.create_table(
        "items",
        sa.Column("place", BIG, nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("part", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("place"),
        sa.UniqueConstraint("holder", "part", "id"),
        sqlite_autoincrement=True,
    )
    op.create_index("items_by_id", "items", ["id"])
    op.create_table(
        "job_tokens",
        sa.Column("job", BIG, nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job", "token"),
    )
    op.create_table(
        "jobs",
        sa.Column("number", BIG, nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.Text(), nullable=True),
        sa.Column("vector_db_id", sa.Text(), nullable=False),
        sa.Column("vector_db_created_at", sa.Double(), nullable=False),
        sa.Column("document_id", sa.Text(), nullable=False),
        sa.Column("file_id", sa.Text(), nullable=True),
        sa.Column("filename", sa.Text(), nullable=False),
        sa.Column("attributes", sa.Text(), nullable=False),
        sa.Column("chunking", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("usage_bytes", BIG, nullable=False),
        sa.Column("attempts", BIG, nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("version", BIG, nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=True),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("claim", BIG, nullable=False),
        sa.Column("storing", BIG, nullable=False),
        sa.Column("not_before", sa.Double(), nullable=False),
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
    op.create_table(
        "keys",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("groups", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("limits", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.Column("last_used_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("key_id"),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("beat", BIG, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "making",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("vector_db", sa.Text(), nullable=False),
        sa.Column("renewed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "rebuild_notes",
        sa.Column("number", BIG, nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("identifier", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("tenant", "identifier", "kind", "name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "rebuilds",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("identifier", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("changes", sa.Text(), nullable=False),
        sa.Column("closed_until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "identifier"),
    )
    op.create_table(
        "responses",
        sa.Column("number", BIG, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("previous", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("responses_by_age", "responses", ["created_at"])
    op.create_table(
        "vector_dbs",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("identifier", sa.Text(), nullable=False),
        sa.Column("registration", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "identifier"),
    )
    op.create_table(
        "vector_stores",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("identifier", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("metadata", sa.Text(), nullable=True),
        sa.Column("expires_after_days", BIG, nullable=True),
        sa.Column("last_active_at", BIG, nullable=False),
        sa.Column("expired_at", BIG, nullable=True),
        sa.PrimaryKeyConstraint("tenant", "identifier"),
    )
    op.create_table(
        "versions",
        sa.Column("area", sa.Text(), nullable=False),
        sa.Column("version", BIG, nullable=False),
        sa.PrimaryKeyConstraint("area"),
    )
