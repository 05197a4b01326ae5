"""What a site with slow BMCs, attackers and daily use needs to be known of nodes, inspections and requests.

A process of the release before puts requests without a lane: they come in the one that may take longest.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

OPTIONS: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}
LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    # A summary of the last inventory, for lists.
    op.add_column("nodes", sa.Column("hardware", LONG_TEXT, nullable=True))
    # What was packed into an object, so that a forged or truncated one is known as such.
    op.add_column("objects", sa.Column("content_size", sa.BigInteger()))
    op.add_column("objects", sa.Column("content_sha256", sa.String(64)))
    # Where unknown machines called from, so that those of one caller can be counted and rejected together.
    op.add_column("machine_macs", sa.Column("source", sa.String(64)))
    op.create_index("ix_machine_macs_source", "machine_macs", ["source"])
    op.add_column("rejections", sa.Column("source", sa.String(64)))
    op.create_table(
        "callers",
        sa.Column("source", sa.String(64), primary_key=True),
        sa.Column("node", sa.String(36), primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        **OPTIONS,
    )
    op.create_index("ix_callers_node", "callers", ["node"])
    # Names of leases may be forgotten, and epochs never go back.
    op.add_column("leases", sa.Column("source", sa.String(64)))
    op.create_table(
        "lease_epochs",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("touched", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        **OPTIONS,
    )
    # Whose data an inspection processes once more.
    op.add_column("inspections", sa.Column("reapplies", sa.String(length=36), nullable=True))
    # Since when the attached registry has not had a node.
    op.add_column("nodes", sa.Column("orphaned_at", sa.Double()))
    op.add_column("inspections", sa.Column("clock_since", sa.Double(), nullable=True))
    op.create_index("ix_inspections_clock_since", "inspections", ["clock_since"])
    op.add_column("requests", sa.Column("lane", sa.String(length=8), nullable=False, server_default="bmc"))
    op.add_column("requests", sa.Column("priority", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("requests", sa.Column("bmc", sa.String(length=255), nullable=True))
    op.add_column("requests", sa.Column("network", sa.String(length=64), nullable=True))
    op.create_index("ix_requests_queue", "requests", ["holder", "lane", "priority", "id"])
    op.drop_index("ix_requests_holder", table_name="requests")
    # How its time was spent.
    op.add_column("inspections", sa.Column("queued", sa.Double(), nullable=False, server_default="0"))
    op.add_column("inspections", sa.Column("processing_since", sa.Double(), nullable=True))
    # For how long a heartbeat counts (the release before does not say), and when the database's clock was set.
    op.add_column("members", sa.Column("ttl", sa.Double(), nullable=False, server_default="600"))
    op.create_table(
        "clock_steps",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("process", sa.String(length=128), nullable=False),
        **OPTIONS,
    )
