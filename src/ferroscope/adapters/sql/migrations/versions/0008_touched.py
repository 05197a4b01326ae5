"""Requests have a counter that their fence changes, as leases do.

An UPDATE that leaves a row as it was locks it, but Galera replicates nothing of it: on another node of
the cluster a newer claim could be committed at the same time. Processes of the release before leave it alone.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("requests", sa.Column("touched", SERIAL, nullable=False, server_default="0"))
