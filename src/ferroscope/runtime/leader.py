"""The process of a role that is one task: of all such processes one leads and runs it, the others wait."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

import structlog

from ferroscope.config.options import Settings
from ferroscope.contracts.queue import Channel
from ferroscope.runtime import system
from ferroscope.runtime.backend import Backend
from ferroscope.runtime.member import membership_of
from ferroscope.runtime.system import EXIT_CUT_OFF, EXIT_FAULT, SystemClock, notify

_log = structlog.get_logger(__name__)


def serve(
    settings: Settings,
    backend: Backend,
    schema: str,
    *,
    role: str,
    task: Any,
    stop: Event,
    reload: Callable[[], Any],
    start: Callable[[], object] = lambda: None,
) -> int:
    """Run the task (see ``periodic.singleton``) while leading, until SIGTERM or SIGINT; return the exit code.

    ``start`` is called when the process has joined the members.
    """
    from ferroscope.leadership import Election, LeaseRenewer
    from ferroscope.periodic.singleton import Singleton

    clock, profile = SystemClock(), settings.lease.numbers()
    membership = membership_of(settings, backend, schema, role=role, roles=(role,), clock=clock, stop=stop)
    membership.start()
    singleton = Singleton(
        lambda: task,
        Election(task.name, membership.member.id, store=backend.lease_store, clock=clock, profile=profile),
        keep=LeaseRenewer(profile, clock),
        profile=profile,
        bus=backend.bus,
        clock=clock,
        stop=stop,
    )
    membership.watch(role, lambda: singleton.status, lambda: singleton.problem)
    singleton.start()
    start()
    notify("READY=1")
    _log.info("ready", roles=[role], task=task.name)
    try:
        code = 0 if system.wait_for_stop(stop, reload) else EXIT_FAULT
    finally:
        notify("STOPPING=1")
        stop.set()
        backend.bus.publish(Channel.LEASES)
        singleton.join(settings.worker.graceful_timeout)
        membership.leave()
    return EXIT_CUT_OFF if membership.cut_off else code
