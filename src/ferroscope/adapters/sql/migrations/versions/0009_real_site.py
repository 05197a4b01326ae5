"""What a site with slow BMCs, attackers and daily use needs to be known of nodes, inspections and requests."""

from __future__ import annotations

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing yet."""
