"""The SHA-256 of a lease's token; a row that was written before keeps the token itself until the next acquisition."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("leases", sa.Column("token_digest", sa.String(64)))
