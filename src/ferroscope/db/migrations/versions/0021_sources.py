"""The changes of the hardware that an inspection has found, its trace, and the sources of a node's values."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("inspections", sa.Column("changes", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("inspections", sa.Column("traceparent", sa.String(55)))
    op.add_column("nodes", sa.Column("sources", sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")))
