"""The secret that the callback of an inspection has to present, and how its machine gets it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("inspections", sa.Column("secret", sa.String(80)))
    op.add_column("inspections", sa.Column("secret_delivery", sa.String(16)))
