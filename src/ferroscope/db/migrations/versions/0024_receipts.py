"""Receipts of changing calls."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

OPTIONS: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def upgrade() -> None:
    op.create_table(
        "receipts",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("call", sa.String(64), nullable=False),
        sa.Column("void", sa.Boolean(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("reply", sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_receipts"),
        **OPTIONS,
    )
    op.create_index("ix_receipts_expires_at", "receipts", ["expires_at"])
