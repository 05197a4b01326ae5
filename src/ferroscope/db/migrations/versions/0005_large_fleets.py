"""Indexes for what would read a whole table of a large fleet, and room on the pages of inspections."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_nodes_maintenance", "nodes", ["maintenance"])
    op.create_index("ix_inspections_finished_at", "inspections", ["finished_at", "uuid"])
    if op.get_bind().dialect.name == "postgresql":  # for pages that are written from now on
        op.execute("ALTER TABLE inspections SET (fillfactor = 60)")
