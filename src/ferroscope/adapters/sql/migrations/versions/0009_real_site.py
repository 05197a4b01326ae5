"""What a site with slow BMCs, attackers and daily use needs to be known of nodes, inspections and requests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # What was packed into an object, so that a forged or truncated one is known as such.
    op.add_column("objects", sa.Column("content_size", sa.BigInteger()))
    op.add_column("objects", sa.Column("content_sha256", sa.String(64)))
