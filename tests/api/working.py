"""A real worker for the service of a test, which the test tells when to work."""

from __future__ import annotations

from typing import Any

from ferroscope.hooks.pipeline import from_settings
from ferroscope.runtime.system import SystemClock
from ferroscope.worker.loop import Worker
from ferroscope.worker.services import Services
from ferroscope.worker.start import PxeFilterWait, RebootThrottle
from ferroscope.worker.tasks import build
from tests.api.service import DRIVERS, Service
from tests.support import examples


def worker(service: Service, drivers: Any = DRIVERS, *, throttle: float = 0.0) -> Worker:
    settings, clock = service.settings, SystemClock()
    reboots = RebootThrottle(throttle, holder="w", store=service.store, clock=clock, profile=settings.lease.numbers())
    services = Services(service.store, settings, clock, service.stop, member="w", process="worker")
    tasks = build(from_settings(settings.inspector), reboots, PxeFilterWait(0.0))
    return Worker(services, service.backend.queue, tasks, drivers)


def work(service: Service, node: str, worker: Worker) -> None:
    """Carry out all requests of the node."""
    service.store.write(lambda tx: tx.members.beat(examples.member("w"), 60.0))
    while service.pending(node):
        worker.step()
