"""Tables and columns that replicas share: hosts of jobs, names of blobs, claims and quotas."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables and columns."""
    op.add_column("jobs", sa.Column("host", sa.Text(), nullable=False, server_default=""))
    _fill_hosts()
    op.add_column("files", sa.Column("blob", sa.Text(), nullable=False, server_default=""))
    op.execute("UPDATE files SET blob = sha256")
    op.create_index("files_by_blob", "files", ["blob"])
    op.create_table(
        "claims",
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("number", BIG, nullable=False),
        sa.Column("due", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("task"),
    )
    op.create_table(
        "quotas",
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("requests", sa.Double(), nullable=False),
        sa.Column("bytes", sa.Double(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("caller"),
    )


def _fill_hosts() -> None:
    """Set the host of each job to that of its vector DB."""
    registered = sa.table("vector_dbs", *map(sa.column, ("tenant", "identifier", "registration")))
    names = ("tenant", "vector_db_id", "vector_db_created_at", "host")
    jobs = sa.table("jobs", *map(sa.column, names))
    for row in op.get_bind().execute(sa.select(registered)).all():
        found = json.loads(row.registration)
        if found.get("host"):
            of_vector_db = sa.and_(
                jobs.c.tenant == row.tenant,
                jobs.c.vector_db_id == row.identifier,
                jobs.c.vector_db_created_at == found["created_at"],
            )
            op.execute(sa.update(jobs).where(of_vector_db).values(host=found["host"]))
