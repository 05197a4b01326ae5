"""Indexes for the words of searches and for the wiring, and a table of what is counted ahead."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from ferroscope.db import trigrams
from ferroscope.db.columns import LONG_TEXT, OPTIONS

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "counts",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("content", LONG_TEXT, nullable=False),
        sa.Column("counted_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_counts"),
        **OPTIONS,
    )
    for name, kind, columns in (("serials", "node", ["t3"]), ("switches", "nic", ["t6", "t7"])):
        where = sa.text(f"kind = '{kind}'")
        op.create_index(
            f"ix_search_index_{name}",
            "search_index",
            ["kind", *columns, "node"],
            postgresql_where=where,
            sqlite_where=where,
        )
    connection = op.get_bind()
    for statement in trigrams.create_statements(connection.dialect.name):
        connection.exec_driver_sql(statement)
