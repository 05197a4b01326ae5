"""The PXE filters of this host: which of them run, which tables they have left behind, and removing one completely.

One pxe-filter runs per boot network and host: two would close each other's filter. The process binds an abstract Unix
socket, which the kernel releases when the process ends, however it ends. The names are per network namespace, like
firewalls. Source: unix(7).
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import structlog

from ferroscope.config.errors import StartError
from ferroscope.config.options import PxeFilterSettings
from ferroscope.contracts.store import Clock
from ferroscope.contrib.boot.pxe_filter import PxeFilterError
from ferroscope.contrib.boot.pxe_filter.backends.base import PREFIX as TABLE_PREFIX
from ferroscope.contrib.boot.pxe_filter.backends.build import build_pxe_filter, rules_of
from ferroscope.contrib.boot.pxe_filter.backends.nftables import Tables
from ferroscope.contrib.boot.pxe_filter.backends.watchdog import PREFIX as FILE_PREFIX
from ferroscope.contrib.boot.pxe_filter.checks import check_backends

_log = structlog.get_logger(__name__)


@contextmanager
def instance_lock(network: str) -> Iterator[None]:
    """Hold the lock as the network's only pxe-filter on this host; ``StartError`` if another one runs."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        try:
            lock.bind(_name(network))
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
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_name(network))
        except OSError:
            return False
        return True


def _name(network: str) -> str:
    return f"\0ferroscope-pxe-filter/{network}"


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
    tables, rules = Tables(), rules_of(settings)
    if not tables.present():
        return []
    ours = {rules.table} if "nftables" in settings.backends else set()
    if ours and tables.has_former_table(rules):
        ours.add(rules.former_table)
    stale = []
    for name in tables.names():
        if name not in ours:
            shared = tuple(interface for interface in rules.interfaces if interface in tables.guarded_interfaces(name))
            stale.append(StaleTable(name, shared, served=is_running(name.removeprefix(TABLE_PREFIX))))
    return sorted(
        (table for table in stale if table.interfaces or not table.served), key=lambda table: not table.interfaces
    )


def warn_of_stale_tables(settings: PxeFilterSettings) -> None:
    """Log the tables that block our interfaces. Without the permission to list them, the filter itself fails later."""
    try:
        for stale in stale_tables(settings):
            if stale.interfaces:
                _log.warning(
                    "another PXE filter guards the same interfaces",
                    table=stale.table,
                    why=stale.summary,
                    advice=stale.advice,
                )
    except PxeFilterError as exc:
        _log.debug("cannot list the filters of other networks", error=str(exc))


_REMEMBERS: Final = "dnsmasq remembers the host files that it has read: restart it to apply the change"


class Removal(msgspec.Struct, frozen=True):
    """The backends and the other filters' ``tables`` that were removed; ``notes`` say what remains to do."""

    removed: tuple[str, ...]
    tables: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def remove_pxe_filter(settings: PxeFilterSettings, clock: Clock, *, everything: bool) -> Removal:
    """Remove this network's filter; ``everything``: stale tables too. ``PxeFilterError``, ``StartError``."""
    check_backends(settings)
    if is_running(settings.network):
        raise StartError(
            f"the pxe-filter of the network {settings.network} is running on this host and would reinstall its filter; "
            "stop it first: systemctl stop ferroscope-pxe-filter"
        )
    build_pxe_filter(settings, clock).remove()
    notes = list(_remaining_files(settings)) if "dnsmasq" in settings.backends else []
    if everything:
        return Removal(settings.backends, tuple(remove_stale_tables(settings)), tuple(notes))
    try:
        notes += [f"{table.summary}; to remove it too, use --all" for table in stale_tables(settings)]
    except PxeFilterError:  # a kernel without nftables has no tables
        if "nftables" in settings.backends:
            raise
    return Removal(settings.backends, notes=tuple(notes))


def remove_stale_tables(settings: PxeFilterSettings) -> list[str]:
    """Delete the tables whose pxe-filter does not run; return their names. ``PxeFilterError``."""
    removed = [table.table for table in stale_tables(settings) if not table.served]
    for name in removed:
        Tables().delete(name)
    return removed


def _remaining_files(settings: PxeFilterSettings) -> tuple[str, ...]:
    files = sorted(path.name for path in Path(settings.dhcp_hostsdir).glob(f"{FILE_PREFIX}*"))
    if files:
        raise PxeFilterError(f"{settings.dhcp_hostsdir} still contains {files[0]}{', and more' if files[1:] else ''}")
    return () if settings.dnsmasq_pid_file else (_REMEMBERS,)
