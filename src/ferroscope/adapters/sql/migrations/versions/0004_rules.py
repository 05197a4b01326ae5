"""Inspection rules, and the number of their last change, by which workers know that theirs are old."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

UUID = sa.String(36)
LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
OPTIONS: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def upgrade() -> None:
    op.create_table(
        "rules",
        sa.Column("uuid", UUID, nullable=False),
        sa.Column("dialect", sa.String(16), nullable=False),
        sa.Column("description", sa.String(255)),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("sensitive", sa.Boolean(), nullable=False),
        sa.Column("scope", sa.String(255)),
        sa.Column("conditions", LONG_TEXT, nullable=False),
        sa.Column("actions", LONG_TEXT, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double()),
        sa.PrimaryKeyConstraint("uuid", name="pk_rules"),
        **OPTIONS,
    )
    op.create_index("ix_rules_created_at", "rules", ["created_at", "uuid"])
    revisions = op.create_table(
        "rule_revisions",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("revision", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_rule_revisions"),
        **OPTIONS,
    )
    op.bulk_insert(revisions, [{"id": 1, "revision": 0}])
