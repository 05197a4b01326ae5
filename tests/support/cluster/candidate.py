"""``python -m tests.support.cluster.candidate FILE [unfenced]``: a process with periodic tasks that leaves a trail.

Its task of time-outs writes one row after the other under the fence: which epoch it believes to lead, and which epoch
the lease had at that moment. So the trail shows every leader, and every write of one whose time was over. ``unfenced``
leaves the fence out, to prove that the trail shows what the fence prevents.
"""

from __future__ import annotations

import sys
from typing import Any

import sqlalchemy

from ferroscope.config.load import load
from ferroscope.core.model import LeaseClaim
from ferroscope.leadership import StepLeadership
from ferroscope.periodic import timeouts
from ferroscope.runtime.process import ServiceProcess
from ferroscope.telemetry import log

PERIOD = 0.05
CREATE = (
    "CREATE TABLE trail (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, member TEXT, epoch BIGINT, present BIGINT)"
)
_WRITE = sqlalchemy.text(
    "INSERT INTO trail (member, epoch, present) SELECT :member, :epoch, epoch FROM leases WHERE name = :name"
)


class Trail(timeouts.Timeouts):
    """In the place of the product's task, with its lease and its declarations."""

    def __init__(self, store: Any, *, process: str, **_options: Any) -> None:
        super().__init__(store, timeout=60, period=PERIOD, process=process)

    def step(self, leadership: StepLeadership) -> str:
        # That of the Leadership.
        claim: LeaseClaim = leadership.fence.__self__.claim  # type: ignore[attr-defined]

        def work(tx: Any) -> None:
            if "unfenced" not in sys.argv:
                leadership.fence(tx)
            row = {"member": claim.lease.holder, "epoch": claim.epoch, "name": claim.name}
            tx.connection.execute(_WRITE, row)

        self._store.write(work)
        return "left one more trace"


if __name__ == "__main__":
    timeouts.Timeouts = Trail  # type: ignore[misc]
    settings = load([sys.argv[1]])
    log.configure(settings.log, process="candidate")
    sys.exit(ServiceProcess(settings, ("periodic",)).run())
