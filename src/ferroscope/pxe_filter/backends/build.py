"""Builds a host's gate from its settings."""

from __future__ import annotations

from typing import Final

from ferroscope.config.options import PxeFilterSettings
from ferroscope.contracts.pxe_filter import GateBackend
from ferroscope.contracts.queue import Clock
from ferroscope.pxe_filter.backends.base import NoopGate, SeveralGates
from ferroscope.pxe_filter.backends.dnsmasq import DnsmasqGate
from ferroscope.pxe_filter.backends.iptables import IptablesGate
from ferroscope.pxe_filter.backends.nftables import NftablesGate
from ferroscope.pxe_filter.backends.ruleset import GateRules

BACKENDS: Final = ("nftables", "iptables", "dnsmasq", "noop")


def rules_of(settings: PxeFilterSettings) -> GateRules:
    """Return what the gate guards."""
    return GateRules(
        network=settings.network,
        interfaces=settings.interfaces,
        http_ports=settings.http_ports,
        relayed=settings.relayed_networks,
        unknown=settings.unknown_hosts == "allow",
    )


def build_gate(settings: PxeFilterSettings, clock: Clock) -> GateBackend:
    """Return the gate; its backends are those of ``BACKENDS``."""
    built = [_build(name, settings, clock) for name in settings.backends]
    return built[0] if len(built) == 1 else SeveralGates(built)


def _build(name: str, settings: PxeFilterSettings, clock: Clock) -> GateBackend:
    if name == "nftables":
        return NftablesGate(rules_of(settings), clock=clock, timeout=settings.command_timeout)
    if name == "iptables":
        return IptablesGate(rules_of(settings), clock=clock, timeout=settings.command_timeout)
    if name == "dnsmasq":
        return DnsmasqGate(
            settings.dhcp_hostsdir, unknown=settings.unknown_hosts == "allow", pid_file=settings.dnsmasq_pid_file
        )
    return NoopGate()
