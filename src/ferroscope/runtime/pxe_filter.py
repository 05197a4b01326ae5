"""The pxe-filter process, next to a host's DHCP and TFTP service; the filter is closed from start to after the end.

Separate from ``runtime.process``, because it shares only the database with the other roles.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import structlog

from ferroscope.bus.checks import check_bus
from ferroscope.config.added import backend as selected
from ferroscope.config.errors import RefusedError, SetupError, StartError
from ferroscope.config.options import PxeFilterSettings, Settings
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.contracts.pxe_filter import FilterBackend, PxeFilterError
from ferroscope.contracts.queue import MAC_CHANNELS, Channel
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.core.boot_macs import LEASE_PREFIX, decode_record
from ferroscope.db.prepare import ensure_schema
from ferroscope.leadership import EXIT_LOST_LEADERSHIP, Election, LeaseRenewer
from ferroscope.pxe_filter.backends.base import PREFIX as TABLE_PREFIX
from ferroscope.pxe_filter.backends.build import BACKENDS, build_pxe_filter, rules_of
from ferroscope.pxe_filter.backends.nftables import Tables
from ferroscope.pxe_filter.backends.watchdog import PREFIX as FILE_PREFIX
from ferroscope.pxe_filter.leader import PxeFilter
from ferroscope.pxe_filter.sync import MacSync
from ferroscope.runtime import preflight, system
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.member import membership_of
from ferroscope.runtime.system import EXIT_CUT_OFF, EXIT_FAULT, Reload, Reread, SystemClock, notify, process_name

if TYPE_CHECKING:
    from ferroscope.telemetry.finding import Finding
from ferroscope.telemetry.metrics import Metrics

# One pxe-filter per boot network and host: two would close each other's filter.
#
# The process binds an abstract Unix socket, which the kernel releases when the process ends, however it ends. The names
# are per network namespace, like firewalls. Source: unix(7).


@contextmanager
def instance_lock(network: str) -> Iterator[None]:
    """Hold the lock as the network's only pxe-filter on this host; ``StartError`` if another one runs."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
        try:
            held.bind(_name(network))
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise
            raise StartError(
                f"another pxe-filter of the network {network} runs on this host; they would close each other's "
                f"filter; stop one of them: ss -xap | grep ferroscope-pxe-filter/{network}"
            ) from None
        yield


def is_running(network: str) -> bool:
    """Whether a pxe-filter of this network runs on this host."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(_name(network))
        except OSError:
            return False
        return True


def _name(network: str) -> str:
    return f"\0ferroscope-pxe-filter/{network}"


_log = structlog.get_logger(__name__)


class StaleTable(msgspec.Struct, frozen=True):
    """A table of another PXE filter, and our ``interfaces`` that it guards; ``served``: its pxe-filter runs."""

    table: str
    interfaces: tuple[str, ...]
    served: bool

    @property
    def summary(self) -> str:
        if not self.interfaces:
            return f"the firewall has the table inet {self.table} of a PXE filter, but its pxe-filter is not running"
        names = ", ".join(self.interfaces)
        return f"the table inet {self.table} also guards {names}: machines boot there only if that filter is open too"

    @property
    def advice(self) -> str:
        return f"if it is no longer needed: nft delete table inet {self.table}"


def stale_tables(settings: PxeFilterSettings) -> list[StaleTable]:
    """Return the tables of other PXE filters, those that block our interfaces first. ``PxeFilterError``.

    A table stays behind if its network was renamed, or if nftables was removed from the backends. A host may guard
    several networks, so a table on other interfaces is ignored while its pxe-filter runs.
    """
    tables, rules = Tables(timeout=settings.command_timeout), rules_of(settings)
    if not tables.present():
        return []
    ours = {rules.table} if "nftables" in settings.backends else set()
    if ours and tables.outdated(rules):
        ours.add(rules.former_table)
    found = []
    for name in tables.names():
        if name not in ours:
            shared = tuple(one for one in rules.interfaces if one in tables.guarded(name))
            found.append(StaleTable(name, shared, served=is_running(name.removeprefix(TABLE_PREFIX))))
    return sorted((one for one in found if one.interfaces or not one.served), key=lambda one: not one.interfaces)


def warn_of_stale_tables(settings: PxeFilterSettings) -> None:
    """Log the tables that block our interfaces; without the permission to list them, the filter itself fails later."""
    try:
        for one in stale_tables(settings):
            if one.interfaces:
                _log.warning(
                    "another PXE filter guards the same interfaces", table=one.table, why=one.summary, advice=one.advice
                )
    except PxeFilterError as exc:
        _log.debug("cannot list the filters of other networks", error=str(exc))


def remove_stale_tables(settings: PxeFilterSettings) -> list[str]:
    """Delete the tables whose pxe-filter does not run; return their names. ``PxeFilterError``."""
    tables = Tables(timeout=settings.command_timeout)
    removed = [one.table for one in stale_tables(settings) if not one.served]
    for name in removed:
        tables.delete(name)
    return removed


ROLE: Final = "pxe-filter"
# Seconds between two looks at the database of an ironic-inspector, at most.
_MOST_SECONDS: Final = 30.0

# A subset of the characters that Linux allows, without any that nft or iptables interpret.
_INTERFACE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,14}")

_log = structlog.get_logger(__name__)


def run(settings: Settings, *, reread: Reread | None = None) -> int:
    """Run the filter until SIGTERM or SIGINT; return the exit code. ``StartError`` if it cannot start.

    ``reread`` as in ``Reload``.
    """
    preflight.check(settings, (ROLE,))
    reload = Reload(settings, process_name(ROLE), reread)
    with instance_lock(settings.pxe_filter.network):
        installed = partial(warn_of_stale_tables, settings.pxe_filter)
        return PxeFilterProcess(settings, installed=installed, reload=reload).run()


def closed_ruleset(settings: Settings) -> str:
    """Return the closed filter as input for ``nft -f``; ``RefusedError``."""
    from ferroscope.pxe_filter.backends.nftables import ruleset

    check(settings)
    backends = settings.pxe_filter.backends
    if "nftables" not in backends:
        raise RefusedError(
            f"[pxe_filter] backends is {','.join(backends)}, without nftables: "
            "nothing would ever open the filter of this ruleset, so do not load it on this host"
        )
    return ruleset(rules_of(settings.pxe_filter))


def table_of(settings: Settings) -> str:
    """Return the name of the filter's table in nftables."""
    return rules_of(settings.pxe_filter).table


def open_host(settings: Settings) -> str:
    """Return the host whose filter is open on this network; "" if none is, or the database cannot be asked."""
    if settings.database.connection.startswith("sqlite"):  # it serves one host
        return ""
    try:
        backend = open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)
    except (SetupError, StoreUnavailableError):
        return ""
    try:
        leases = backend.store.read(lambda tx: tx.leases.list(LEASE_PREFIX + settings.pxe_filter.network))
        records = [decode_record(one.data) for one in leases if one.holder and one.remaining > 0]
        return next((one.host for one in records if one.open), "")
    except StoreUnavailableError:
        return ""
    finally:
        backend.close()


def check(settings: Settings) -> None:
    """Raise ``RefusedError`` if the settings are invalid."""
    wanted = settings.pxe_filter
    check_backends(wanted)
    if not wanted.interfaces and {"nftables", "iptables"}.intersection(wanted.backends):
        raise RefusedError("[pxe_filter] interfaces is empty; set it to the interfaces on which machines boot")
    for name in wanted.interfaces:
        if not _INTERFACE.fullmatch(name):
            raise RefusedError(
                f"[pxe_filter] interfaces has the invalid name {name!r}: expected at most 15 letters, digits and "
                "_.@-, without wildcards; to list interfaces, run: ip link"
            )
    if not wanted.sync_period and not wanted.channels:
        raise RefusedError(
            "[pxe_filter] sync_period = 0 requires channels = true; otherwise the filter would miss changes"
        )
    try:
        closed = rules_of(wanted)
        for text in closed.relayed:
            ipaddress.ip_network(text, strict=False)
    except ValueError as exc:
        raise RefusedError(f"[pxe_filter] relayed_networks: {exc}") from exc


def check_backends(wanted: PxeFilterSettings) -> None:
    """Raise ``RefusedError`` if the backends are invalid."""
    unknown = [name for name in wanted.backends if name not in BACKENDS]
    if unknown or not wanted.backends:
        raise RefusedError(
            f"[pxe_filter] backends has the unknown backend {unknown[0]!r}; available: {', '.join(BACKENDS)}"
            if unknown
            else f"[pxe_filter] backends is empty; available: {', '.join(BACKENDS)}"
        )
    if "dnsmasq" in wanted.backends and not wanted.dhcp_hostsdir:
        raise RefusedError("[pxe_filter] dhcp_hostsdir is not set; set it to the directory of dnsmasq's dhcp-hostsdir")


def check_inspector(wanted: PxeFilterSettings) -> None:
    """Raise ``SetupError`` if the database of ironic-inspector cannot be used, whether or not it answers."""
    if wanted.inspector_connection:
        build = selected("pxe_filter.inspector_connection")
        build(wanted.inspector_connection, period=_MOST_SECONDS, clock=SystemClock(), stop=threading.Event())


class MacsElsewhere(Protocol):
    """What knows the MACs of machines that another service inspects; ``start`` returns after the first look."""

    def start(self) -> None: ...

    def active(self) -> frozenset[str]: ...

    def status(self) -> str: ...

    def problem(self) -> Finding | None: ...


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
        except (PxeFilterError, SetupError, StoreUnavailableError, OSError) as exc:
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
                from ferroscope.api.service.metrics_port import serve_alone

                serve_alone(settings, metrics, backend.store, self._clock)
            membership = membership_of(
                settings, backend, schema, role=ROLE, roles=(ROLE,), clock=self._clock, stop=self._stop
            )
            membership.start()
            elsewhere = self._inspector_macs()
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

    def _inspector_macs(self) -> MacsElsewhere | None:
        """Return the reader of the MACs that an ironic-inspector inspects, if one is configured; ``SetupError``."""
        wanted = self._settings.pxe_filter
        if not wanted.inspector_connection:
            return None
        period = min(wanted.sync_period or _MOST_SECONDS, _MOST_SECONDS)
        build = selected("pxe_filter.inspector_connection")
        found: MacsElsewhere = build(wanted.inspector_connection, period=period, clock=self._clock, stop=self._stop)
        return found

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
            settings=settings,
            poll_interval=settings.sync_period or (settings.reconcile_period if elsewhere is None else _MOST_SECONDS),
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


# Removal of the filter from this host: complete, or with a message that says what is left and what to do.

_REMEMBERS: Final = "dnsmasq remembers the host files that it has read; restart it, otherwise it answers as before"


class Removal(msgspec.Struct, frozen=True):
    """The backends and the other filters' ``tables`` that were removed; ``notes`` say what is left to do."""

    removed: tuple[str, ...]
    tables: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def remove_pxe_filter(settings: Settings, *, everything: bool) -> Removal:
    """Remove this network's filter; ``everything``: stale tables too. ``PxeFilterError``, ``StartError``."""
    wanted = settings.pxe_filter
    check_backends(wanted)
    if is_running(wanted.network):
        raise StartError(
            f"the pxe-filter of the network {wanted.network} is running on this host and would reinstall its filter; "
            "stop it first: systemctl stop ferroscope-pxe-filter"
        )
    build_pxe_filter(wanted, SystemClock()).remove()
    notes = list(_host_files(wanted)) if "dnsmasq" in wanted.backends else []
    tables = remove_stale_tables(wanted) if everything else []
    if not everything:
        notes += _others(wanted)
    return Removal(wanted.backends, tuple(tables), tuple(notes))


def _others(settings: PxeFilterSettings) -> list[str]:
    try:
        return [f"{one.summary}; to remove it as well: --all" for one in stale_tables(settings)]
    except PxeFilterError:
        if "nftables" in settings.backends:
            raise
        return []  # a kernel without nftables has none


def _host_files(settings: PxeFilterSettings) -> tuple[str, ...]:
    left = sorted(path.name for path in Path(settings.dhcp_hostsdir).glob(f"{FILE_PREFIX}*"))
    if left:
        raise PxeFilterError(f"{settings.dhcp_hostsdir} still contains {left[0]}{', and more' if left[1:] else ''}")
    return () if settings.dnsmasq_pid_file else (_REMEMBERS,)
