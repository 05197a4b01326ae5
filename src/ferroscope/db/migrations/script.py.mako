"""${message}"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


# On MariaDB a killed upgrade repeats the migration from its beginning: create_table, add_column, create_index and
# bulk_insert may be repeated, and anything else must be written so that it may, too.
def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
