"""Builds the configured periodic tasks, each as a singleton: one process at a time runs it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ferroscope.bus.checks import require_kombu
from ferroscope.config.errors import SetupError
from ferroscope.config.messaging_options import RabbitmqTarget
from ferroscope.config.options import Settings
from ferroscope.config.plugins import backend as selected
from ferroscope.contracts.plugins import SecretSourceError
from ferroscope.contracts.remote import NodeSource, ObjectStore, Sender, Senders
from ferroscope.contracts.store import Clock, StopFlag
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.remote.addresses import Networks
from ferroscope.runtime.backend import Backend
from ferroscope.runtime.wiring import build_resolver
from ferroscope.secrets.references import Resolver
from ferroscope.storage.reader import Archive
from ferroscope.storage.stores import build_object_stores
from ferroscope_client.installed import load_installed

if TYPE_CHECKING:
    from ferroscope.liveness.watch import PartyWatch
    from ferroscope.periodic.singleton import PeriodicTask, Singleton
    from ferroscope.runtime.externals import Attached
    from ferroscope.runtime.roles import RoleContext


def build_source(settings: Settings, stop: StopFlag, attached: Attached | None) -> NodeSource | None:
    """Return the external source of nodes, whose waits ``stop`` interrupts; None if the nodes are our own."""
    if not settings.registry.url:
        return None if attached is None else attached.client
    from ferroscope.remote.bare_metal_http import IronicSource

    options = settings.registry
    return IronicSource(options.url, timeout=options.timeout, retries=options.retries, stop=stop)


def build_archiving(
    settings: Settings, backend: Backend, object_stores: Mapping[str, ObjectStore], *, clock: Clock, process: str
) -> PeriodicTask:
    """Return the task that moves data to the object store, or deletes it if no data should be kept."""
    from ferroscope.periodic.archiving import Archiving, newest_inventory, nothing
    from ferroscope.storage.mover import Mover

    raid = any(name.lstrip("?").replace("_", "-") == "raid-device" for name in settings.inspector.hooks)
    return Archiving(
        backend.store,
        Mover(backend.store, Archive(backend.store, object_stores), process=process),
        keep=settings.storage.backend,
        clock=clock,
        wanted=newest_inventory if raid else nothing,
    )


def build_senders(settings: Settings, stop: StopFlag) -> Senders:
    """Return the senders of events by target; ``SetupError``."""
    targets = settings.notifications.targets()
    if not targets:
        return {}
    resolver = build_resolver(settings, stop) or Resolver({})
    networks = Networks(settings.notifications.networks)
    senders: dict[str, Sender] = {}
    for target in targets:
        try:
            if isinstance(target, RabbitmqTarget):
                require_kombu(f"[notifications] target {target.name}")
                senders[target.name] = selected("notifications.rabbitmq")(target, host=socket.gethostname())
                continue
            from ferroscope.remote.webhook import Webhook

            source = settings.notifications.source
            senders[target.name] = Webhook(target, source=source, networks=networks, resolve=resolver.resolve)
        except (OSError, SecretSourceError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else exc
            raise SetupError(
                f"[notifications] target {target.name} cannot be used: {reason}", "correct its secret or ca_file"
            ) from exc
    return senders


def _nobody(_member: str) -> bool:
    """No member is lost as far as is known."""
    return False


def build_singletons(
    settings: Settings,
    backend: Backend,
    *,
    clock: Clock,
    stop: StopFlag,
    member: str,
    process: str,
    meter: Meter = SILENT,
    not_now: Callable[[], str] = str,
    attached: Attached | None = None,
    party: PartyWatch | None = None,
) -> list[Singleton]:
    """Return the periodic singletons, to be run in a thread each; ``not_now`` as in ``Singleton``.

    With ``party``, dead leaders are replaced before their leases expire, where that is safe (``only_fenced``).
    """
    from ferroscope.leadership import Election, LeaseRenewer
    from ferroscope.periodic.singleton import Singleton
    from ferroscope.runtime.roles import RoleContext

    profile = settings.lease.numbers()
    keep = LeaseRenewer(profile, clock, meter=meter)

    def single(build: Callable[[], PeriodicTask]) -> Singleton:
        task = build()
        is_lost = party.is_lost if party is not None and getattr(task, "only_fenced", False) else _nobody
        election = Election(task.name, member, store=backend.lease_store, clock=clock, profile=profile, is_lost=is_lost)
        singleton = Singleton(
            build,
            election,
            keep=keep,
            profile=profile,
            bus=backend.bus,
            clock=clock,
            stop=stop,
            meter=meter,
            not_now=not_now,
        )
        if party is not None:
            party.resets.append(singleton.reset)
        return singleton

    context = RoleContext(settings=settings, backend=backend, clock=clock, stop=stop, process=process, meter=meter)
    return [single(build) for build in _list_tasks(context, attached)]


def _list_tasks(context: RoleContext, attached: Attached | None) -> Iterator[Callable[[], PeriodicTask]]:
    """Yield a maker of each configured task."""
    from ferroscope.periodic.counts import Counts
    from ferroscope.periodic.notifications import (
        DEAD_LETTERS_KEPT_SECONDS,
        DELIVERED_EVENTS_KEPT_SECONDS,
        Notifications,
    )
    from ferroscope.periodic.orphans import Orphans
    from ferroscope.periodic.retention import Retention
    from ferroscope.periodic.timeouts import Timeouts
    from ferroscope.runtime.roles import AddTasks

    settings, store, clock, process = context.settings, context.backend.store, context.clock, context.process
    inspector = settings.inspector
    source = build_source(settings, context.stop, attached)
    yield lambda: Timeouts(store, timeout=inspector.timeout, period=inspector.timeout_period, process=process)
    yield lambda: Orphans(store, source, settings=settings.registry, process=process)
    yield lambda: Retention(
        store,
        threshold=inspector.retention,
        number=inspector.retention_number,
        logs=inspector.logs_retention,
        audit=settings.audit.retention_days * 86400.0,
        events=(DELIVERED_EVENTS_KEPT_SECONDS, DEAD_LETTERS_KEPT_SECONDS),
        period=inspector.retention_period,
        clock=clock,
    )
    yield lambda: Counts(store, clock)
    if inspector.reinspect_after and attached is None:
        from ferroscope.periodic.reinspection import Reinspection

        yield lambda: Reinspection(
            store,
            after=inspector.reinspect_after,
            selector=inspector.reinspect_nodes,
            at_once=inspector.reinspect_at_once,
            drivers=settings.drivers.enabled,
            process=process,
        )

    if attached is not None:
        yield partial(attached.copying, store)
    more: Mapping[str, AddTasks] = load_installed("ferroscope.tasks")
    for add in more.values():
        yield from add(context)

    object_stores = build_object_stores(settings, context.stop)
    if object_stores or settings.storage.backend == "none":
        yield lambda: build_archiving(settings, context.backend, object_stores, clock=clock, process=process)

    if senders := build_senders(settings, context.stop):
        yield lambda: Notifications(store, senders, clock=clock, meter=context.meter)
