"""The table of access tokens that the service issues itself."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
OPTIONS: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def upgrade() -> None:
    op.create_table(
        "access_tokens",
        sa.Column("id", sa.String(16), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("roles", LONG_TEXT, nullable=False),
        sa.Column("project", sa.String(255)),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(255), nullable=False),
        sa.Column("expires_at", sa.Double()),
        sa.Column("revoked_at", sa.Double()),
        sa.Column("last_used_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_access_tokens"),
        **OPTIONS,
    )
