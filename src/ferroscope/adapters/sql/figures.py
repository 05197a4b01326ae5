"""Counts in SQL, one query each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from sqlalchemy import func, select

from ferroscope.adapters.sql import schema
from ferroscope.contracts.store import Backlog, Population
from ferroscope.core.states import Event, Provision, State

if TYPE_CHECKING:
    from ferroscope.adapters.sql.store import SqlTransaction

_n, _r = schema.nodes.c, schema.requests.c
_NODES = (
    select(_n.state, _n.provision_state, func.count())
    .group_by(_n.state, _n.provision_state)
    .order_by(_n.state, _n.provision_state)
)
_BACKLOG = (
    select(_r.event, func.count(), func.count(_r.claimed_node), func.min(_r.created_at))
    .group_by(_r.event)
    .order_by(_r.event)
)


E = TypeVar("E", State, Provision, Event)


def _known(kind: type[E], value: str) -> E:
    """Return the member of this value; what only a newer release knows stays a text."""
    return kind(value) if value in kind.__members__.values() else cast("E", value)


class SqlFigures:
    """See ``contracts.store.Figures``."""

    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx

    def nodes(self) -> Sequence[Population]:
        rows = self._tx.connection.execute(_NODES)
        return [Population(state=_known(State, a), provision_state=_known(Provision, b), nodes=n) for a, b, n in rows]

    def backlog(self) -> Sequence[Backlog]:
        rows = self._tx.connection.execute(_BACKLOG)
        return [
            Backlog(event=_known(Event, event), waiting=total - claimed, claimed=claimed, oldest=oldest)
            for event, total, claimed, oldest in rows
        ]
