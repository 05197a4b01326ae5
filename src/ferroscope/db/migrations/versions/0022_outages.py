"""What tells an outage from a death, and which changes of callers have been committed."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

OPTIONS: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def upgrade() -> None:
    op.add_column("requests", sa.Column("lost", sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")))
    op.add_column("members", sa.Column("boot", sa.String(36)))
    op.add_column("members", sa.Column("steady_since", sa.Double()))
    op.add_column("members", sa.Column("died_at", sa.Double()))
