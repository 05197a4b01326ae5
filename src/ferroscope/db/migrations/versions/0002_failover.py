"""What the failed-node controller keeps besides its remediations."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
OPTIONS: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def upgrade() -> None:
    op.create_table(
        "failover_pauses",
        sa.Column("cluster", sa.String(63), nullable=False),
        sa.Column("why", LONG_TEXT, nullable=False),
        sa.Column("by", sa.String(255), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", name="pk_failover_pauses"),
        **OPTIONS,
    )
    op.create_table(
        "failover_nodes",
        sa.Column("cluster", sa.String(63), nullable=False),
        sa.Column("node", sa.String(253), nullable=False),
        sa.Column("machine", sa.String(36)),
        sa.Column("ready", sa.Boolean(), nullable=False),
        sa.Column("written_at", sa.Double(), nullable=False),
        sa.Column("record", LONG_TEXT, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "node", name="pk_failover_nodes"),
        **OPTIONS,
    )
    op.create_index("ix_failover_nodes_machine", "failover_nodes", ["machine"])
    op.create_index("ix_failover_nodes_written_at", "failover_nodes", ["written_at"])
