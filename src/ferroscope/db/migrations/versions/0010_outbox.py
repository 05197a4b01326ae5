"""The outbox of notifications."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0010"
down_revision = "0008"
branch_labels = None
depends_on = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
OPTIONS: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def upgrade() -> None:
    op.create_table(
        "outbox",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("target", sa.String(64), nullable=False),
        sa.Column("event", sa.String(36), nullable=False),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("node", sa.String(36), nullable=False),
        sa.Column("data", LONG_TEXT, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error", sa.String(255)),
        sa.Column("settled_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_outbox"),
        **OPTIONS,
        sqlite_autoincrement=True,
    )
    op.create_index("ix_outbox_event", "outbox", ["event"])
    op.create_index("ix_outbox_target", "outbox", ["target", "state", "id"])
