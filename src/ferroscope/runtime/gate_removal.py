"""Takes the gate off this host: all of it or a message that says what is left, and what else has to be done."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from ferroscope.config.options import PxeFilterSettings, Settings
from ferroscope.contracts.pxe_filter import GateError
from ferroscope.pxe_filter.backends.build import build_gate
from ferroscope.pxe_filter.backends.watchdog import PREFIX
from ferroscope.runtime import sole, strangers
from ferroscope.runtime.clock import SystemClock
from ferroscope.runtime.life import StartError
from ferroscope.runtime.pxe_filter import check_backends

_REMEMBERS: Final = "dnsmasq remembers the host files that it has read: restart it, until then it answers as before"


class Removal(msgspec.Struct, frozen=True):
    """The backends and the ``tables`` of other gates that were removed; ``notes`` say what is left to do."""

    removed: tuple[str, ...]
    tables: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def remove_gate(settings: Settings, *, everything: bool) -> Removal:
    """Take away this network's gate; ``everything``: also those that nobody opens. ``GateError``, ``StartError``."""
    wanted = settings.pxe_filter
    check_backends(wanted)
    if sole.taken(wanted.network):
        raise StartError(
            f"the pxe-filter of the network {wanted.network} runs on this host and would put its gate in place again; "
            "stop it first: systemctl stop ferroscope-pxe-filter"
        )
    build_gate(wanted, SystemClock()).remove()
    notes = list(_host_files(wanted)) if "dnsmasq" in wanted.backends else []
    tables = strangers.remove(wanted) if everything else []
    if not everything:
        notes += _others(wanted)
    return Removal(wanted.backends, tuple(tables), tuple(notes))


def _others(settings: PxeFilterSettings) -> list[str]:
    try:
        return [f"{one.sentence}; to remove it, too: --all" for one in strangers.strangers(settings)]
    except GateError:
        if "nftables" in settings.backends:
            raise
        return []  # a kernel without nftables has none


def _host_files(settings: PxeFilterSettings) -> tuple[str, ...]:
    left = sorted(path.name for path in Path(settings.dhcp_hostsdir).glob(f"{PREFIX}*"))
    if left:
        raise GateError(f"{settings.dhcp_hostsdir} still has {left[0]}{', and more' if left[1:] else ''}")
    return () if settings.dnsmasq_pid_file else (_REMEMBERS,)
