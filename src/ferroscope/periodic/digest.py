"""Puts the digest of each day into the outbox, from which the targets that ask for it get it as any other event."""

from __future__ import annotations

from typing import Final

from ferroscope.core.digest import DAY, day_of, ends
from ferroscope.core.notification import EventData, Kind
from ferroscope.core.values import many
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
from ferroscope.leadership import StepLeadership

_PERIOD: Final = 60.0


class Digests:
    """A ``PeriodicTask``; ``at``: seconds after midnight, UTC. A digest that was missed while nobody ran comes late."""

    name = "periodic/digest"
    only_fenced = True
    period = _PERIOD

    def __init__(self, store: Store, *, at: float) -> None:
        self._store = store
        self._at = at

    def step(self, leadership: StepLeadership) -> str:
        def work(tx: Transaction) -> int | None:
            leadership.fence(tx)
            day = day_of(tx.now, self._at)
            if not tx.digests.begin(day):
                return None
            end = ends(day, self._at)
            digest = tx.digests.read(end - DAY, end)
            return tx.outbox.add_general(Kind.DIGEST, EventData(digest=digest))

        sent = self._store.write(work)
        return "no digest is due" if sent is None else f"the digest of the day is on its way to {many(sent, 'target')}"
