"""Builds a host's filter from its settings; also the noop filter and several filters combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ferroscope.config.options import PxeFilterSettings
from ferroscope.contracts.store import Clock
from ferroscope.contrib.boot.pxe_filter import FilterBackend, PxeFilterError
from ferroscope.contrib.boot.pxe_filter.backends.base import FilterRules
from ferroscope.contrib.boot.pxe_filter.backends.dnsmasq import DnsmasqFilter
from ferroscope.contrib.boot.pxe_filter.backends.iptables import IptablesFilter
from ferroscope.contrib.boot.pxe_filter.backends.nftables import NftablesFilter, Tables
from ferroscope.core.boot_macs import SetChange

BACKENDS: Final = ("nftables", "iptables", "dnsmasq", "noop")


class NoopFilter:
    """A ``FilterBackend`` that filters nothing: it takes part in the election, and the host is open to all machines."""

    name = "noop"
    self_closing = False

    def install(self) -> None: ...

    def apply(self, change: SetChange, *, fresh: bool, progress: Callable[[], object] = lambda: None) -> None: ...

    def hold(self, until: float) -> float:
        return until

    def close(self) -> None: ...

    def remove(self) -> None: ...


class SeveralFilters:
    """Several backends as one ``FilterBackend``; the first in the list is the first to close."""

    def __init__(self, pxe_filters: Sequence[FilterBackend]) -> None:
        self._pxe_filters = pxe_filters
        self.name = ", ".join(pxe_filter.name for pxe_filter in pxe_filters)
        # If one closes on its own, machines cannot pass, regardless of the others.
        self.self_closing = any(pxe_filter.self_closing for pxe_filter in pxe_filters)

    def install(self) -> None:
        self._apply_to_all(lambda pxe_filter: pxe_filter.install())

    def apply(self, change: SetChange, *, fresh: bool, progress: Callable[[], object] = lambda: None) -> None:
        for pxe_filter in self._pxe_filters:
            pxe_filter.apply(change, fresh=fresh, progress=progress)
            progress()

    def hold(self, until: float) -> float:
        """Open from the last to the first: the front one opens when all behind it are open."""
        return min(pxe_filter.hold(until) for pxe_filter in reversed(self._pxe_filters))

    def close(self) -> None:
        self._apply_to_all(lambda pxe_filter: pxe_filter.close())

    def remove(self) -> None:
        self._apply_to_all(lambda pxe_filter: pxe_filter.remove())

    def _apply_to_all(self, action: Callable[[FilterBackend], None]) -> None:
        """Apply it to all, even if one fails; then raise the first error."""
        errors: list[PxeFilterError] = []
        for pxe_filter in self._pxe_filters:
            try:
                action(pxe_filter)
            except PxeFilterError as exc:
                errors.append(exc)
        if errors:
            raise errors[0]


def rules_of(settings: PxeFilterSettings) -> FilterRules:
    """Return the rules of the filter."""
    return FilterRules(
        network=settings.network,
        interfaces=settings.interfaces,
        http_ports=settings.http_ports,
        relayed=settings.relayed_networks,
        unknown=settings.unknown_hosts == "allow",
    )


def build_pxe_filter(settings: PxeFilterSettings, clock: Clock) -> FilterBackend:
    """Return the filter; ``backends`` has names of ``BACKENDS``."""
    built = [_build(name, settings, clock) for name in settings.backends]
    return built[0] if len(built) == 1 else SeveralFilters(built)


def build_requesters(settings: PxeFilterSettings) -> Callable[[], frozenset[int]] | None:
    """Return what tells which machines have sent DHCP requests, as long as the filter is there; None if nothing can."""
    if "nftables" not in settings.backends:
        return None
    tables, table = Tables(), rules_of(settings).table

    def take_requesters() -> frozenset[int]:
        try:
            return tables.take_requesters(table)
        except PxeFilterError:  # whoever flushed the ruleset has flushed them, too
            return frozenset()

    return take_requesters


def _build(name: str, settings: PxeFilterSettings, clock: Clock) -> FilterBackend:
    if name == "nftables":
        return NftablesFilter(rules_of(settings), clock=clock)
    if name == "iptables":
        return IptablesFilter(rules_of(settings), clock=clock)
    if name == "dnsmasq":
        return DnsmasqFilter(
            settings.dhcp_hostsdir, unknown=settings.unknown_hosts == "allow", pid_file=settings.dnsmasq_pid_file
        )
    return NoopFilter()
