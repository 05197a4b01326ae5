"""Chassis and port groups, and members that have left."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

UUID = sa.String(36)
LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
OPTIONS: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def upgrade() -> None:
    op.add_column("nodes", sa.Column("chassis_uuid", UUID))
    op.add_column("ports", sa.Column("portgroup", UUID))
    op.create_index("ix_ports_portgroup", "ports", ["portgroup"])
    op.add_column("members", sa.Column("left_at", sa.Double()))
    op.create_table(
        "chassis",
        sa.Column("uuid", UUID, nullable=False),
        sa.Column("description", sa.String(255)),
        sa.Column("extra", LONG_TEXT, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double()),
        sa.PrimaryKeyConstraint("uuid", name="pk_chassis"),
        **OPTIONS,
    )
    op.create_table(
        "portgroups",
        sa.Column("uuid", UUID, nullable=False),
        sa.Column("node", UUID, nullable=False),
        sa.Column("address", sa.String(18)),
        sa.Column("name", sa.String(255)),
        sa.Column("mode", sa.String(255), nullable=False),
        sa.Column("properties", LONG_TEXT, nullable=False),
        sa.Column("standalone_ports_supported", sa.Boolean(), nullable=False),
        sa.Column("physical_network", sa.String(64)),
        sa.Column("category", sa.String(80)),
        sa.Column("extra", LONG_TEXT, nullable=False),
        sa.Column("internal", LONG_TEXT, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double()),
        sa.PrimaryKeyConstraint("uuid", name="pk_portgroups"),
        sa.UniqueConstraint("address", name="uq_portgroups_address"),
        sa.UniqueConstraint("name", name="uq_portgroups_name"),
        **OPTIONS,
    )
    op.create_index("ix_portgroups_node", "portgroups", ["node"])
