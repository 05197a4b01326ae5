"""One member that campaigns for a lease and, while it leads, writes under its fence all the time.

Election, renewal, membership and supervisor are the service's own; only the task is the benchmark's.
``python -m bench.leader CONFIG [PROCESSES]``; more than 0 processes run under the supervisor.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Final

import structlog

from ferroscope.config.load import load
from ferroscope.config.options import Settings
from ferroscope.contracts.queue import Channel
from ferroscope.db.store import Store
from ferroscope.leadership import Election, LeaseRenewer, StepLeadership
from ferroscope.periodic.singleton import Singleton
from ferroscope.runtime import system
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.member import Membership
from ferroscope.runtime.supervisor import Supervisor
from ferroscope.runtime.system import SystemClock
from ferroscope.telemetry import log

LEASE: Final = "bench/failover"
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Writes:
    """A ``PeriodicTask``: each step is one fenced write, which is all that the fence itself does."""

    name = LEASE
    period = 0.02

    def __init__(self, store: Store) -> None:
        self._store = store

    def step(self, leadership: StepLeadership) -> str:
        self._store.write(leadership.fence)
        return "wrote"


def play(settings: Settings, member: str) -> int:
    """Campaign, lead and follow until SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    stop, clock, profile = threading.Event(), SystemClock(), settings.lease.numbers()
    backend = open_backend(settings, clock=clock, stop=stop, listen=True)
    membership = Membership(backend.lease_store, settings.worker, role="worker", stop=stop, clock=clock, ident=member)
    membership.start()
    election = Election(LEASE, membership.member.id, store=backend.lease_store, clock=clock, profile=profile)
    keep = LeaseRenewer(profile, clock)
    task = Writes(backend.store)
    singleton = Singleton(lambda: task, election, keep=keep, profile=profile, bus=backend.bus, clock=clock, stop=stop)
    thread = threading.Thread(target=singleton.run, daemon=True)
    thread.start()
    structlog.get_logger().info("ready")
    while system.wait(_SIGNALS, 60.0) is None:
        pass
    stop.set()
    backend.bus.publish(Channel.LEASES)
    thread.join(profile.ttl)
    membership.leave()
    backend.close()
    return 0


def main(config: str, processes: int) -> int:
    settings = load([config])
    log.configure(settings.log, process="leader")
    if not processes:
        return play(settings, "")
    return Supervisor(settings, processes, lambda member: play(settings, member)).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0))
