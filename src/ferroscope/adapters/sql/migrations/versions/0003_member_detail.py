"""Members tell more of themselves: what each loop did last, version, settings.

The column may be empty: a process of the release before does not know it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    op.add_column("members", sa.Column("detail", LONG_TEXT, nullable=True))
