"""The machines that belong to no node, and whose calls were refused."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
OPTIONS: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def upgrade() -> None:
    op.create_table(
        "refused_callers",
        sa.Column("source", sa.String(64), nullable=False),
        sa.Column("machine", sa.String(64), nullable=False),
        sa.Column("macs", LONG_TEXT, nullable=False),
        sa.Column("bmc_addresses", LONG_TEXT, nullable=False),
        sa.Column("serial", sa.String(128)),
        sa.Column("reason", sa.String(64), nullable=False),
        sa.Column("message", LONG_TEXT, nullable=False),
        sa.Column("called_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("source", "machine", name="pk_refused_callers"),
        **OPTIONS,
    )
