"""Remediations of failed Kubernetes nodes."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0012"
down_revision = "0010"
branch_labels = None
depends_on = None

LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
OPTIONS: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def upgrade() -> None:
    op.create_table(
        "remediations",
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("cluster", sa.String(63), nullable=False),
        sa.Column("node", sa.String(253), nullable=False),
        sa.Column("machine", sa.String(36)),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.Column("active", sa.String(320)),
        sa.Column("record", LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("uuid", name="pk_remediations"),
        sa.UniqueConstraint("active", name="uq_remediations_active"),
        **OPTIONS,
    )
    op.create_index("ix_remediations_cluster", "remediations", ["cluster", "started_at"])
