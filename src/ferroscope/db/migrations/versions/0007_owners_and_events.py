"""Indexes for the nodes of an owner, the events of a node, and the calls of a user."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_nodes_owner", "nodes", ["owner", "created_at", "uuid"])
    op.create_index("ix_outbox_node", "outbox", ["node", "id"])
    op.create_index("ix_audit_user", "audit", ["user", "id"])
