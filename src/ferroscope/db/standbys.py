"""PostgreSQL's standbys as the primary sees them."""

from __future__ import annotations

from typing import Final

import msgspec
from sqlalchemy import Connection

# Without the role pg_monitor the state of each row is hidden; then nothing can be said.
_LOOK: Final = (
    "SELECT count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')), count(*) FILTER (WHERE sync_state = 'async'), "
    "count(*) FILTER (WHERE sync_state IS NULL), current_setting('synchronous_standby_names') <> '' "
    "FROM pg_stat_replication"
)


class Standbys(msgspec.Struct, frozen=True):
    """How many standbys are connected; ``required``: commits wait for a synchronous one."""

    synchronous: int
    asynchronous: int
    required: bool


def look(connection: Connection) -> Standbys | None:
    """Return what the primary reports; None if the user may not see it."""
    synchronous, asynchronous, hidden, required = connection.exec_driver_sql(_LOOK).one()
    return None if hidden else Standbys(synchronous, asynchronous, required)
