"""A fourth number of each part in the search index: the largest frame of the switch's port."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("search_index", sa.Column("n4", sa.Double()))
