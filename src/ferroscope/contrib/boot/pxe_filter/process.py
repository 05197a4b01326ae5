"""The pxe-filter process, next to a host's DHCP and TFTP service; the filter is closed from start to after the end.

Separate from ``runtime.process``: it closes its filter before it connects to anything, and leaves as a member only once
the filter is closed.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import structlog

from ferroscope.bus.checks import check_bus
from ferroscope.config import plugins
from ferroscope.config.errors import SetupError, StartError
from ferroscope.config.options import PxeFilterSettings, Settings
from ferroscope.contracts.errors import StoreError, StoreUnavailableError
from ferroscope.contracts.store import MAC_CHANNELS, Channel, Clock, StopFlag
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.contrib.boot.pxe_filter import FilterBackend, PxeFilterError
from ferroscope.contrib.boot.pxe_filter.backends.build import build_pxe_filter, build_requesters
from ferroscope.contrib.boot.pxe_filter.checks import check
from ferroscope.contrib.boot.pxe_filter.dhcp_leases import DhcpLeases, list_lease_files
from ferroscope.contrib.boot.pxe_filter.host_filters import instance_lock, warn_of_stale_tables
from ferroscope.contrib.boot.pxe_filter.leader import RECONCILE_SECONDS, PxeFilter
from ferroscope.contrib.boot.pxe_filter.sync import MacSync
from ferroscope.core.boot_macs import LEASE_PREFIX, decode_record
from ferroscope.db.prepare import ensure_schema
from ferroscope.leadership import EXIT_LOST_LEADERSHIP, Election, LeaseRenewer
from ferroscope.runtime import system
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.member import membership_of
from ferroscope.runtime.start_checks import list_checks, refuse_problems
from ferroscope.runtime.system import EXIT_CUT_OFF, EXIT_FAULT, Reload, Reread, SystemClock, notify, process_name
from ferroscope.telemetry.metrics import Metrics
from ferroscope_client.core.finding import Finding

ROLE: Final = "pxe-filter"
# Seconds between two looks at the database of an ironic-inspector, at most.
MAX_PERIOD_SECONDS: Final = 30.0

_log = structlog.get_logger(__name__)


def run(settings: Settings, *, reread: Reread | None = None) -> int:
    """Run the filter until SIGTERM or SIGINT; return the exit code. ``StartError`` if it cannot start.

    ``reread`` as in ``Reload``.
    """
    check_start(settings)
    reload = Reload(settings, process_name(ROLE), reread)
    with instance_lock(settings.pxe_filter.network):
        installed = partial(warn_of_stale_tables, settings.pxe_filter)
        return PxeFilterProcess(settings, installed=installed, reload=reload).run()


def check_start(settings: Settings) -> None:
    """Raise ``OptionRefusedError`` with all problems of the settings, before anything is opened."""
    elsewhere = partial(build_macs_elsewhere, settings.pxe_filter, SystemClock(), threading.Event())
    refuse_problems((*list_checks(settings), partial(check, settings), elsewhere))


def open_host(settings: Settings) -> str:
    """Return the host whose filter is open on this network; "" if none is, or the database is unavailable."""
    if settings.database.connection.startswith("sqlite"):  # it serves one host
        return ""
    try:
        backend = open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)
    except (SetupError, StoreUnavailableError):
        return ""
    try:
        leases = backend.store.read(lambda tx: tx.leases.list(LEASE_PREFIX + settings.pxe_filter.network))
        records = [decode_record(lease.data) for lease in leases if lease.holder and lease.remaining > 0]
        return next((record.host for record in records if record.open), "")
    except StoreUnavailableError:
        return ""
    finally:
        backend.close()


class MacsElsewhere(Protocol):
    """Knows the MACs of machines that an ironic-inspector inspects, which boot through the same filter.

    ``start`` returns after the first look.
    """

    def start(self) -> None: ...

    def active(self) -> frozenset[str]: ...

    def status(self) -> str: ...

    def problem(self) -> Finding | None: ...


def build_macs_elsewhere(settings: PxeFilterSettings, clock: Clock, stop: StopFlag) -> MacsElsewhere | None:
    """Return the reader of the MACs that an ironic-inspector inspects, if one is configured, whether or not its
    database answers; ``SetupError`` if that cannot be used.
    """
    if not settings.inspector_connection:
        return None
    period = min(settings.sync_period or MAX_PERIOD_SECONDS, MAX_PERIOD_SECONDS)
    build = plugins.backend("pxe_filter.inspector_connection")
    macs_elsewhere: MacsElsewhere = build(settings.inspector_connection, period=period, clock=clock, stop=stop)
    return macs_elsewhere


class PxeFilterProcess:
    """``run`` returns the exit code. ``installed`` is called once the filter is installed, closed; ``reload`` at each
    SIGHUP."""

    def __init__(
        self,
        settings: Settings,
        *,
        installed: Callable[[], None] = lambda: None,
        reload: Callable[[], object] = lambda: None,
    ) -> None:
        self._settings = settings
        self._installed = installed
        self._reload = reload
        self._stop = threading.Event()
        self._clock = SystemClock()

    def run(self) -> int:
        signal.pthread_sigmask(signal.SIG_BLOCK, system.AWAITED)
        try:
            check(self._settings)
            pxe_filter = build_pxe_filter(self._settings.pxe_filter, self._clock)
            pxe_filter.install()
            _log.info("filter installed, closed", backends=list(self._settings.pxe_filter.backends))
            self._installed()
            return self._serve(pxe_filter)
        except (PxeFilterError, SetupError, StoreError, OSError) as exc:
            raise StartError(str(exc)) from exc

    def _serve(self, pxe_filter: FilterBackend) -> int:
        settings = self._settings
        schema = ensure_schema(settings, upgrade=False)
        check_bus(settings)
        metrics = self._metrics()
        meter: Meter = metrics or SILENT
        backend = open_backend(
            settings, clock=self._clock, stop=self._stop, listen=settings.pxe_filter.channels, meter=meter
        )
        try:
            if metrics is not None:
                plugins.backend("metrics.port").serve_alone(settings, metrics, backend.store, self._clock)
            membership = membership_of(
                settings, backend, schema, role=ROLE, roles=(ROLE,), clock=self._clock, stop=self._stop
            )
            membership.start()
            elsewhere = build_macs_elsewhere(settings.pxe_filter, self._clock, self._stop)
            if elsewhere is not None:
                elsewhere.start()
                membership.watch("ironic-inspector", elsewhere.status, elsewhere.problem)
            role = self._build(pxe_filter, backend, membership.member.id, meter, elsewhere)
            membership.watch("filter", lambda: role.status)
            thread = threading.Thread(target=role.run, name="filter", daemon=True)
            try:
                code = self._play(thread, backend)
                if not _has_closed(role, thread):
                    _log.error("the filter did not close in time; its lease is not released, but expires")
                    code = EXIT_LOST_LEADERSHIP
                return EXIT_CUT_OFF if membership.cut_off else code
            finally:
                if _has_closed(role, thread):
                    membership.leave()
        finally:
            backend.close()

    def _build(
        self,
        pxe_filter: FilterBackend,
        backend: Backend,
        member: str,
        meter: Meter,
        elsewhere: MacsElsewhere | None,
    ) -> PxeFilter:
        settings, profile = self._settings.pxe_filter, self._settings.lease.numbers()
        name = LEASE_PREFIX + settings.network
        return PxeFilter(
            Election(
                name,
                member,
                store=backend.lease_store,
                clock=self._clock,
                profile=profile,
                failed_over_at=lambda: backend.memory.changed_at,
            ),
            MacSync(backend.store, frozenset if elsewhere is None else elsewhere.active),
            pxe_filter,
            DhcpLeases(
                backend.store,
                list_lease_files(self._settings.boot),
                host=socket.gethostname(),
                process=process_name(ROLE),
                take_requesters=build_requesters(settings),
            ),
            settings=settings,
            poll_interval=settings.sync_period or (RECONCILE_SECONDS if elsewhere is None else MAX_PERIOD_SECONDS),
            host=socket.gethostname(),
            keep=LeaseRenewer(profile, self._clock, meter=meter),
            profile=profile,
            bus=backend.bus,
            clock=self._clock,
            stop=self._stop,
            meter=meter,
        )

    def _play(self, thread: threading.Thread, backend: Backend) -> int:
        thread.start()
        notify("READY=1")
        _log.info("ready", roles=[ROLE])
        try:
            return 0 if system.wait_for_stop(self._stop, self._reload) else EXIT_FAULT
        finally:
            notify("STOPPING=1")
            self._stop.set()
            for channel in (*MAC_CHANNELS, Channel.LEASES):
                backend.bus.publish(channel)
            thread.join(self._settings.worker.graceful_timeout)

    def _metrics(self) -> Metrics | None:
        if not self._settings.metrics.port:
            return None
        from ferroscope.telemetry.metrics import build_metrics

        return build_metrics()


def _has_closed(role: PxeFilter, thread: threading.Thread) -> bool:
    """Whether another filter may open now: the thread has ended, and has closed the filter."""
    return not thread.is_alive() and not role.left_open
