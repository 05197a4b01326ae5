"""The spine: nodes, ports, inspections, requests, data, journal, members."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
LONG_BLOB = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
OPTIONS: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def upgrade() -> None:
    op.create_table(
        "bmc_addresses",
        sa.Column("address", sa.String(length=255), nullable=False),
        sa.Column("node", sa.String(length=36), nullable=False),
        sa.PrimaryKeyConstraint("address", "node", name="pk_bmc_addresses"),
        **OPTIONS,
    )
    op.create_index("ix_bmc_addresses_node", "bmc_addresses", ["node"])

    op.create_table(
        "inspection_data",
        sa.Column("inspection", sa.String(length=36), nullable=False),
        sa.Column("part", sa.String(length=16), nullable=False),
        sa.Column("node", sa.String(length=36), nullable=False),
        sa.Column("codec", sa.String(length=8), nullable=False),
        sa.Column(
            "content",
            LONG_BLOB,
            nullable=False,
        ),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("inspection", "part", name="pk_inspection_data"),
        **OPTIONS,
    )
    op.create_index("ix_inspection_data_node", "inspection_data", ["node"])

    op.create_table(
        "inspections",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("node", sa.String(length=36), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("waiting_since", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column(
            "error",
            LONG_TEXT,
            nullable=True,
        ),
        sa.Column("digest", sa.String(length=64), nullable=True),
        sa.Column("manage_boot", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("uuid", name="pk_inspections"),
        **OPTIONS,
    )
    op.create_index("ix_inspections_node", "inspections", ["node", "started_at"])

    op.create_table(
        "journal",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("node", sa.String(length=36), nullable=False),
        sa.Column("inspection", sa.String(length=36), nullable=True),
        sa.Column("step", sa.String(length=64), nullable=False),
        sa.Column(
            "message",
            LONG_TEXT,
            nullable=False,
        ),
        sa.Column("severity", sa.String(length=8), nullable=False),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("process", sa.String(length=128), nullable=False),
        sa.Column(
            "detail",
            LONG_TEXT,
            nullable=False,
        ),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_journal"),
        **OPTIONS,
        sqlite_autoincrement=True,
    )
    op.create_index("ix_journal_node", "journal", ["node", "id"])

    op.create_table(
        "members",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("sentence", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_members"),
        **OPTIONS,
    )
    op.create_table(
        "nodes",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=True),
        sa.Column("driver", sa.String(length=255), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("provision_state", sa.String(length=16), nullable=False),
        sa.Column("target_provision_state", sa.String(length=16), nullable=True),
        sa.Column("provision_updated_at", sa.Double(), nullable=True),
        sa.Column("power_state", sa.String(length=16), nullable=True),
        sa.Column("target_power_state", sa.String(length=16), nullable=True),
        sa.Column("inspection", sa.String(length=36), nullable=True),
        sa.Column("inspection_started_at", sa.Double(), nullable=True),
        sa.Column("inspection_finished_at", sa.Double(), nullable=True),
        sa.Column(
            "last_error",
            LONG_TEXT,
            nullable=True,
        ),
        sa.Column("auto_discovered", sa.Boolean(), nullable=False),
        sa.Column("maintenance", sa.Boolean(), nullable=False),
        sa.Column("resource_class", sa.String(length=80), nullable=True),
        sa.Column("conductor_group", sa.String(length=255), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.Column("instance_uuid", sa.String(length=36), nullable=True),
        sa.Column(
            "driver_info",
            LONG_TEXT,
            nullable=False,
        ),
        sa.Column(
            "properties",
            LONG_TEXT,
            nullable=False,
        ),
        sa.Column(
            "extra",
            LONG_TEXT,
            nullable=False,
        ),
        sa.Column(
            "instance_info",
            LONG_TEXT,
            nullable=False,
        ),
        sa.Column(
            "internal",
            LONG_TEXT,
            nullable=False,
        ),
        sa.Column(
            "attributes",
            LONG_TEXT,
            nullable=False,
        ),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("uuid", name="pk_nodes"),
        sa.UniqueConstraint("instance_uuid", name="uq_nodes_instance_uuid"),
        sa.UniqueConstraint("name", name="uq_nodes_name"),
        **OPTIONS,
        postgresql_with={"fillfactor": 60},
    )
    op.create_index("ix_nodes_created_at", "nodes", ["created_at", "uuid"])

    op.create_table(
        "ports",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("node", sa.String(length=36), nullable=False),
        sa.Column("address", sa.String(length=18), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=True),
        sa.Column("pxe_enabled", sa.Boolean(), nullable=False),
        sa.Column("physical_network", sa.String(length=64), nullable=True),
        sa.Column(
            "local_link_connection",
            LONG_TEXT,
            nullable=False,
        ),
        sa.Column(
            "extra",
            LONG_TEXT,
            nullable=False,
        ),
        sa.Column(
            "internal",
            LONG_TEXT,
            nullable=False,
        ),
        sa.Column(
            "attributes",
            LONG_TEXT,
            nullable=False,
        ),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("uuid", name="pk_ports"),
        sa.UniqueConstraint("address", name="uq_ports_address"),
        sa.UniqueConstraint("name", name="uq_ports_name"),
        **OPTIONS,
    )
    op.create_index("ix_ports_created_at", "ports", ["created_at", "uuid"])
    op.create_index("ix_ports_node", "ports", ["node"])

    op.create_table(
        "requests",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("node", sa.String(length=36), nullable=False),
        sa.Column("event", sa.String(length=16), nullable=False),
        sa.Column("inspection", sa.String(length=36), nullable=True),
        sa.Column(
            "payload",
            LONG_TEXT,
            nullable=False,
        ),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("begun", sa.Boolean(), nullable=False),
        sa.Column(
            "progress",
            LONG_TEXT,
            nullable=False,
        ),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("holder", sa.String(length=64), nullable=True),
        sa.Column("token", sa.String(length=36), nullable=True),
        sa.Column("claimed_node", sa.String(length=36), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_requests"),
        sa.UniqueConstraint("claimed_node", name="uq_requests_claimed_node"),
        **OPTIONS,
        sqlite_autoincrement=True,
    )
    op.create_index("ix_requests_holder", "requests", ["holder", "id"])
    op.create_index("ix_requests_node", "requests", ["node"])
