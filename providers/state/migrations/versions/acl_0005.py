"""The ACL that a job gives the document of its file."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column."""
    op.add_column("jobs", sa.Column("acl", sa.Text(), nullable=True))
