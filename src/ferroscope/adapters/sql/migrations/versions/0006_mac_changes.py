"""What was changed about which MACs may boot, for the PXE gates."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
OPTIONS: dict[str, Any] = {
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mysql_engine": "InnoDB",
    "sqlite_autoincrement": True,
}


def upgrade() -> None:
    op.create_table(
        "mac_changes",
        sa.Column("seq", SERIAL, autoincrement=True, nullable=False),
        sa.Column("mac", sa.String(length=18), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_mac_changes"),
        **OPTIONS,
    )
    op.create_index("ix_mac_changes_mac", "mac_changes", ["mac"])
