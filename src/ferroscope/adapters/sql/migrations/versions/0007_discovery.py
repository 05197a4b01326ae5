"""Auto-discovery: the inbox, which MACs a discovered machine has, which were rejected, how many came of late.

The new column of nodes has a default, so that a process of the release before can go on adding nodes.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

OPTIONS: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def upgrade() -> None:
    op.add_column("nodes", sa.Column("inbox", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_index("ix_nodes_auto_discovered", "nodes", ["auto_discovered"])
    op.create_table(
        "machine_macs",
        sa.Column("address", sa.String(length=18), nullable=False),
        sa.Column("node", sa.String(length=36), nullable=False),
        sa.PrimaryKeyConstraint("address", name="pk_machine_macs"),
        **OPTIONS,
    )
    op.create_index("ix_machine_macs_node", "machine_macs", ["node"])
    op.create_table(
        "rejections",
        sa.Column("address", sa.String(length=18), nullable=False),
        sa.Column("node", sa.String(length=36), nullable=False),
        sa.Column("rejected_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("address", name="pk_rejections"),
        **OPTIONS,
    )
    op.create_table(
        "tallies",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("period", sa.BigInteger(), nullable=False),
        sa.Column("made", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_tallies"),
        **OPTIONS,
    )
