"""What the digest of a day is made of, and which day has had its digest."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sqlalchemy import Select, bindparam, case, func, insert, select, update

from ferroscope.core.digest import Digest, HardwareChange, in_words
from ferroscope.core.model import HARDWARE_CHANGED
from ferroscope.core.notification import iso
from ferroscope.core.states import State
from ferroscope.db import schema
from ferroscope.db.session import Session
from ferroscope.db.statistics import Statistics

_NAME: Final = "digest"
_CHANGES: Final = 50

_t, _i, _n, _j = schema.tallies.c, schema.inspections.c, schema.nodes.c, schema.journal.c
_LAST = select(_t.period).where(_t.name == _NAME)
_BEGIN = (
    update(schema.tallies)
    .where(_t.name == _NAME, _t.period < bindparam("_day"))
    .values(period=bindparam("_day"), made=0)
)
_BACK = update(schema.tallies).where(_t.name == _NAME).values(period=bindparam("_day"))
_FIRST = insert(schema.tallies)
_ENDED = (
    select(_i.state, _i.reason, func.count().label("number"))
    .where(_i.finished_at >= bindparam("since"), _i.finished_at < bindparam("until"), _i.reapplies.is_(None))
    .group_by(_i.state, _i.reason)
    .order_by(func.count().desc(), _i.reason)
)
_NEW = select(func.count(), func.count(case((_n.auto_discovered, 1)))).where(
    _n.created_at >= bindparam("since"), _n.created_at < bindparam("until")
)


class Digests:
    """The digests of days, by number since 1970."""

    def __init__(self, tx: Session) -> None:
        self._tx = tx

    def begin(self, day: int) -> bool:
        """Return whether the digest of this day is to be made now, by this transaction; the first one never is.

        If the last one is of days to come, the clock was set back: it is not waited until then.
        """
        last = self._tx.run(_LAST).first()
        if last is None:
            self._tx.run(_FIRST, {"name": _NAME, "period": day, "made": 0})
            return False
        if last[0] > day + 1:
            self._tx.run(_BACK, {"_day": day})
            return False
        return self._tx.run(_BEGIN, {"_day": day}).rowcount > 0

    def read(self, since: float, until: float) -> Digest:
        """Return what happened within these times; no node is named that does not exist any more."""
        times = {"since": since, "until": until}
        ended = list(self._tx.connection.execute(_ENDED, times))
        created, discovered = self._tx.connection.execute(_NEW, times).one()
        number, newest = Statistics(self._tx).changed(since, _CHANGES)
        names = dict(self._pairs(select(_n.uuid, _n.name).where(_n.uuid.in_([one.node for one in newest]))))
        found_in = _j.inspection.in_([one.uuid for one in newest])
        texts = dict(self._pairs(select(_j.inspection, _j.message).where(found_in, _j.step == HARDWARE_CHANGED)))
        found = Digest(
            since=iso(since),
            until=iso(until),
            finished=sum(count for state, _, count in ended if state == State.FINISHED.value),
            failures={str(reason): count for state, reason, count in ended if state == State.ERROR.value},
            created=created - discovered,
            discovered=discovered,
            changed=number,
            changes=[
                HardwareChange(node=one.node, name=names.get(one.node), text=texts.get(one.uuid, "")) for one in newest
            ],
        )
        return msgspec.structs.replace(found, text=in_words(found))

    def _pairs(self, statement: Select[Any]) -> list[tuple[Any, Any]]:
        return [(one, other) for one, other in self._tx.connection.execute(statement)]
