"""Steps of the database's clock: their record, and the stored times that are adjusted to them.

A lease must not last for a day because the clock was a day ahead when it was written, and an inspection must not become
overdue because the clock was set forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Double, bindparam, case, delete, insert, literal, or_, select, update

from ferroscope.contracts.errors import ConflictError
from ferroscope.core.model import ClockStep
from ferroscope.db import schema
from ferroscope.db.mapping import Mapper
from ferroscope.db.session import Repository
from ferroscope_client.core.states import ACTIVE

_STEP = Mapper(ClockStep, schema.clock_steps)
_MAX_STEPS: Final = 100
_LONGEST_RETRY: Final = 600.0  # seconds; longer than any retry delay

_c, _l, _m, _r = schema.clock_steps.c, schema.leases.c, schema.members.c, schema.requests.c
_i, _w, _f = schema.inspections.c, schema.web_sessions.c, schema.refused_callers.c
_LIST = select(*_STEP.columns).order_by(_c.id)
_ADD = insert(schema.clock_steps)
_TRIM = delete(schema.clock_steps).where(_c.id <= bindparam("_oldest"))
# The clock when the transaction began, as a value. With a function that may change during a statement, PostgreSQL would
# not use an index.
_NOW: Final[Any] = bindparam("_now", type_=Double())
_SHORTEN: Final = (
    update(schema.leases).where(_l.expires_at > _NOW + _l.duration).values(expires_at=_NOW + _l.duration),
    update(schema.members).where(_m.expires_at > _NOW + _m.ttl).values(expires_at=_NOW + _m.ttl),
    update(schema.requests).where(_r.due_at - _LONGEST_RETRY > _NOW).values(due_at=_NOW),
    update(schema.rejections).where(schema.rejections.c.rejected_at > _NOW).values(rejected_at=_NOW),
    update(schema.refused_callers).where(_f.called_at > _NOW).values(called_at=_NOW),
    update(schema.inspections).where(_i.clock_since > _NOW).values(clock_since=_NOW),
    update(schema.web_sessions)
    .where(_w.created_at > _NOW)
    # In this order: MariaDB uses the values that it has just set.
    .ordered_values((_w.expires_at, _NOW + _w.expires_at - _w.created_at), (_w.created_at, _NOW)),
)


def _shift(table: Any, column: Any, *where: Any) -> Any:
    """Return the UPDATE that shifts the times in ``column``, except recent ones, which were read from the new clock.

    None is shifted past the present: it is from before an earlier step that no process noticed.
    """
    shifted: Any = column + bindparam("_seconds", type_=Double())
    recent: Any = bindparam("_recent", type_=Double())
    return (
        update(table)
        .where(*where, column.is_not(None), or_(column > _NOW, column <= _NOW - recent))
        .values({column.name: case((shifted > _NOW, _NOW), else_=shifted)})
    )


_MOVE: Final = (
    _shift(
        schema.nodes,
        schema.nodes.c.provision_updated_at,
        schema.nodes.c.state.in_([literal(str(state)) for state in sorted(ACTIVE)]),
    ),
    *(
        _shift(schema.inspections, schema.inspections.c[name], schema.inspections.c.finished_at.is_(None))
        for name in ("waiting_since", "clock_since")
    ),
)


class ClockSteps(Repository):
    """The last hundred steps of the database's clock that members detected."""

    def list(self) -> Sequence[ClockStep]:
        """Return the steps in order; their numbers are consecutive."""
        return [_STEP.from_row(row) for row in self._tx.run(_LIST)]

    def ahead(self) -> float:
        """Return by how many seconds the clock may be ahead because it was set, so that nothing ends too early."""
        return max(0.0, sum(step.seconds for step in self.list()))

    def record(self, step: ClockStep, recent: float) -> None:
        """Record that the clock was set, and adjust the stored times; then do the same as ``shorten``.

        The times of unfinished inspections are shifted by the step, except those written less than ``recent`` seconds
        ago, which are already correct. ``ConflictError`` if a step with this number has been recorded.
        """
        row = _STEP.to_row(step) | {"at": self._tx.now}
        self._tx.ask(_ADD, row, failed=lambda _: ConflictError("id", str(step.id)))
        self._tx.ask(_TRIM, {"_oldest": step.id - _MAX_STEPS})
        for statement in _MOVE:
            self._tx.ask(statement, {"_now": self._tx.now, "_seconds": step.seconds, "_recent": recent})
        self.shorten()

    def shorten(self) -> None:
        """Limit what leases, heartbeats, retries, rejections, time-outs and sessions have left to their durations."""
        for statement in _SHORTEN:
            self._tx.ask(statement, {"_now": self._tx.now})
