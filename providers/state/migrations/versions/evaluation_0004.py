"""Judged questions of vector DBs, and the tunings with them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "judged_sets",
        _serial(),
        *_registration(),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("made_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("tenant", "identifier", "created_at", "name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "judged_questions",
        _serial(),
        sa.Column("judged_set", BIG, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("grades", sa.Text(), nullable=False),
        sa.Column("suggested", BIG, nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("judged_set", "key"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "tunings",
        _serial(),
        sa.Column("tuning_id", sa.Text(), nullable=False),
        *_registration(),
        sa.Column("judged_set", sa.Text(), nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("done", BIG, nullable=False),
        sa.Column("total", BIG, nullable=False),
        sa.Column("cancelled", BIG, nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("report", sa.Text(), nullable=True),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("tuning_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("tunings_by_vector_db", "tunings", ["tenant", "identifier"])


def _serial() -> sa.Column[int]:
    return sa.Column("number", BIG, autoincrement=True, nullable=False)


def _registration() -> tuple[sa.Column[str], sa.Column[str], sa.Column[float]]:
    tenant = sa.Column("tenant", sa.Text(), nullable=False)
    identifier = sa.Column("identifier", sa.Text(), nullable=False)
    return tenant, identifier, sa.Column("created_at", sa.Double(), nullable=False)
