"""PXE filters on this host that are of no network which is guarded here now: nobody opens them, and nobody passes.

A network that was given another name leaves its table behind, and so does a backend that is not used any more. A host
may guard several networks: a table on other interfaces is not our business while its pxe-filter runs.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import structlog

from ferroscope.config.options import PxeFilterSettings
from ferroscope.contracts.pxe_filter import PxeFilterError
from ferroscope.pxe_filter.backends.build import rules_of
from ferroscope.pxe_filter.backends.nftables import Tables
from ferroscope.pxe_filter.backends.ruleset import PREFIX
from ferroscope.runtime.system import StartError

# One process of a kind for each boot network of a host: two of them would close each other's filter.
#
# Who is the one holds an abstract Unix socket, which the kernel takes away with its process, whatever ends that. Such
# names belong to a network namespace, as firewalls do. Source: unix(7).


@contextmanager
def hold(network: str) -> Iterator[None]:
    """Within, this process is the network's pxe-filter on this host; ``StartError`` where another one is."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
        try:
            held.bind(_name(network))
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise
            raise StartError(
                f"another pxe-filter of the network {network} runs on this host; they would close each other's filter: "
                f"stop one of them: ss -xap | grep ferroscope-pxe-filter/{network}"
            ) from None
        yield


def taken(network: str) -> bool:
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
    """A table and those of our ``interfaces`` that it guards; ``served``: the pxe-filter of its network runs."""

    table: str
    interfaces: tuple[str, ...]
    served: bool

    @property
    def summary(self) -> str:
        if not self.interfaces:
            return f"the firewall has the table inet {self.table}, of a PXE filter for which no pxe-filter runs here"
        names = ", ".join(self.interfaces)
        return f"the table inet {self.table} guards {names} too: nobody boots there unless that filter is open as well"

    @property
    def advice(self) -> str:
        return f"if nothing needs it any more: nft delete table inet {self.table}"


def stale_tables(settings: PxeFilterSettings) -> list[StaleTable]:
    """Return them, those that keep our machines out first; none where there is no nft. ``PxeFilterError``."""
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
            found.append(StaleTable(name, shared, served=taken(name.removeprefix(PREFIX))))
    return sorted((one for one in found if one.interfaces or not one.served), key=lambda one: not one.interfaces)


def warn(settings: PxeFilterSettings) -> None:
    """Name those that keep our machines out in the log; whoever may not look will fail at more than this."""
    try:
        for one in stale_tables(settings):
            if one.interfaces:
                _log.warning(
                    "a PXE filter of another network is in the way", table=one.table, why=one.summary, advice=one.advice
                )
    except PxeFilterError as exc:
        _log.debug("could not look for filters of other networks", error=str(exc))


def remove(settings: PxeFilterSettings) -> list[str]:
    """Take away those whose pxe-filter does not run; return their names. ``PxeFilterError``."""
    tables = Tables(timeout=settings.command_timeout)
    removed = [one.table for one in stale_tables(settings) if not one.served]
    for name in removed:
        tables.delete(name)
    return removed
