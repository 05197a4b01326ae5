"""Inspection data outside of the database, and what searches look at.

A node without a digest of its facts has none: a process of the release before writes none.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

OPTIONS: dict[str, Any] = {"mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin", "mysql_engine": "InnoDB"}


def upgrade() -> None:
    op.create_table(
        "objects",
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("backend", sa.String(length=16), nullable=False),
        sa.Column("inspection", sa.String(length=36), nullable=False),
        sa.Column("node", sa.String(length=36), nullable=False),
        sa.Column("part", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_objects"),
        **OPTIONS,
    )
    op.create_index("ix_objects_inspection", "objects", ["inspection"])
    op.create_index("ix_objects_node", "objects", ["node"])
    op.create_index("ix_objects_state", "objects", ["state", "at"])
    op.create_table(
        "facts",
        sa.Column("node", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        *(sa.Column(f"t{number}", sa.String(length=255), nullable=True) for number in range(1, 8)),
        *(sa.Column(f"n{number}", sa.Double(), nullable=True) for number in range(1, 4)),
        sa.PrimaryKeyConstraint("node", "kind", "position", name="pk_facts"),
        **OPTIONS,
    )
    op.add_column("nodes", sa.Column("facts", sa.String(length=64), nullable=True))
