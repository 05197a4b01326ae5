"""What tells an outage from a death."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("requests", sa.Column("lost", sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")))
    op.add_column("members", sa.Column("boot", sa.String(36)))
    op.add_column("members", sa.Column("steady_since", sa.Double()))
    op.add_column("members", sa.Column("died_at", sa.Double()))
