"""Indexes that find the inspection with a presented secret, and MAC addresses that several machines have."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_inspections_secret", "inspections", ["secret"])
    nics = sa.text("kind = 'nic'")
    op.create_index(
        "ix_search_index_macs", "search_index", ["kind", "t2", "node"], postgresql_where=nics, sqlite_where=nics
    )
