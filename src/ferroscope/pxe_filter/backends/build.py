"""Builds a host's filter from its settings."""

from __future__ import annotations

from typing import Final

from ferroscope.config.options import PxeFilterSettings
from ferroscope.contracts.pxe_filter import FilterBackend
from ferroscope.contracts.queue import Clock
from ferroscope.pxe_filter.backends.base import NoopFilter, SeveralFilters
from ferroscope.pxe_filter.backends.dnsmasq import DnsmasqFilter
from ferroscope.pxe_filter.backends.iptables import IptablesFilter
from ferroscope.pxe_filter.backends.nftables import NftablesFilter
from ferroscope.pxe_filter.backends.ruleset import FilterRules

BACKENDS: Final = ("nftables", "iptables", "dnsmasq", "noop")


def rules_of(settings: PxeFilterSettings) -> FilterRules:
    """Return what the filter guards."""
    return FilterRules(
        network=settings.network,
        interfaces=settings.interfaces,
        http_ports=settings.http_ports,
        relayed=settings.relayed_networks,
        unknown=settings.unknown_hosts == "allow",
    )


def build_pxe_filter(settings: PxeFilterSettings, clock: Clock) -> FilterBackend:
    """Return the filter; its backends are those of ``BACKENDS``."""
    built = [_build(name, settings, clock) for name in settings.backends]
    return built[0] if len(built) == 1 else SeveralFilters(built)


def _build(name: str, settings: PxeFilterSettings, clock: Clock) -> FilterBackend:
    if name == "nftables":
        return NftablesFilter(rules_of(settings), clock=clock, timeout=settings.command_timeout)
    if name == "iptables":
        return IptablesFilter(rules_of(settings), clock=clock, timeout=settings.command_timeout)
    if name == "dnsmasq":
        return DnsmasqFilter(
            settings.dhcp_hostsdir, unknown=settings.unknown_hosts == "allow", pid_file=settings.dnsmasq_pid_file
        )
    return NoopFilter()
