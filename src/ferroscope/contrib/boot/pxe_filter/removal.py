"""Removes the filter from this host completely, or says what is left and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from ferroscope.config.errors import StartError
from ferroscope.config.options import PxeFilterSettings
from ferroscope.contracts.store import Clock
from ferroscope.contrib.boot.pxe_filter import PxeFilterError
from ferroscope.contrib.boot.pxe_filter.backends.build import build_pxe_filter
from ferroscope.contrib.boot.pxe_filter.backends.watchdog import PREFIX as FILE_PREFIX
from ferroscope.contrib.boot.pxe_filter.checks import check_backends
from ferroscope.contrib.boot.pxe_filter.instance import is_running
from ferroscope.contrib.boot.pxe_filter.stale_tables import remove_stale_tables, stale_tables

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
    notes = list(_host_files(settings)) if "dnsmasq" in settings.backends else []
    tables = remove_stale_tables(settings) if everything else []
    if not everything:
        notes += _other_tables(settings)
    return Removal(settings.backends, tuple(tables), tuple(notes))


def _other_tables(settings: PxeFilterSettings) -> list[str]:
    try:
        return [f"{table.summary}; to remove it too, use --all" for table in stale_tables(settings)]
    except PxeFilterError:
        if "nftables" in settings.backends:
            raise
        return []  # a kernel without nftables has none


def _host_files(settings: PxeFilterSettings) -> tuple[str, ...]:
    files = sorted(path.name for path in Path(settings.dhcp_hostsdir).glob(f"{FILE_PREFIX}*"))
    if files:
        raise PxeFilterError(f"{settings.dhcp_hostsdir} still contains {files[0]}{', and more' if files[1:] else ''}")
    return () if settings.dnsmasq_pid_file else (_REMEMBERS,)
