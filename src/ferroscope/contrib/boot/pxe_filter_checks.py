"""Checks of a host's PXE filter: its backends, the tables of other filters, and the ruleset that closes it at boot."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ferroscope.config.errors import StartError
from ferroscope.config.options import PxeFilterSettings, Settings
from ferroscope.contrib.boot.addresses import (
    own_name,
)
from ferroscope.contrib.boot.boot_host_checks import check_interfaces
from ferroscope.contrib.boot.pxe_filter import PxeFilterError
from ferroscope.contrib.boot.pxe_filter.backends.base import FilterRules, HostCommand
from ferroscope.contrib.boot.pxe_filter.backends.build import rules_of
from ferroscope.contrib.boot.pxe_filter.backends.iptables import FAMILIES, Chains
from ferroscope.contrib.boot.pxe_filter.backends.nftables import INFINIBAND, RELAYS, Tables, ruleset
from ferroscope.contrib.boot.pxe_filter.checks import check
from ferroscope.contrib.boot.pxe_filter.host_filters import stale_tables
from ferroscope_client.core.finding import Finding

# The directory in which the shipped systemd units expect the rulesets that close the host while it boots.
RULESETS: Final = Path("/etc/ferroscope")

_BITS_OF_OTHERS: Final = stat.S_IROTH | stat.S_IXOTH


def examine_pxe_filter(settings: Settings, host: str | None = None, rulesets: Path = RULESETS) -> Iterator[Finding]:
    """Yield the findings about this host's PXE filter; none if it has no filter."""
    boot, pxe_filter = settings.boot, settings.pxe_filter
    if (host or own_name(boot.hosts)) not in boot.hosts if boot.hosts else not pxe_filter.interfaces:
        return
    try:
        check(settings)
    except StartError as exc:
        yield Finding("pxe-filter", "wrong", f"the PXE filter cannot start: {exc}", "correct [pxe_filter]")
        return
    if not boot.hosts:  # otherwise, ``examine_boot`` checks them
        yield from check_interfaces(pxe_filter)
    for name in pxe_filter.backends:
        yield from _BACKENDS[name](pxe_filter)
    yield from _stale_tables(pxe_filter)
    yield from _closed_ruleset(pxe_filter, rulesets)


def _nftables(pxe_filter: PxeFilterSettings) -> Iterator[Finding]:
    tables, rules = Tables(), rules_of(pxe_filter)
    if not tables.present():
        yield _missing_programs(["nft"], "nftables")
        return
    try:
        yield _check_installed(present := rules.table in tables.names(), f"table inet {rules.table}")
        yield from _check_dropped(tables.dropped_packets(rules.table) if present else {})
    except PxeFilterError as exc:
        yield _unknown_state(exc)


_DROPPED: Final = {
    INFINIBAND: (
        "DHCP messages of InfiniBand NICs, which the filter never lets pass",
        "boot these machines by an Ethernet NIC, or by virtual media",
    ),
    RELAYS: (
        "relayed DHCPv6 messages, which name a network that is not in [pxe_filter] relayed_networks",
        "add the machines' networks behind the relay",
    ),
}


def _check_dropped(counters: Mapping[str, int]) -> Iterator[Finding]:
    for comment, (packets_of, advice) in _DROPPED.items():
        if packets := counters.get(comment):
            yield Finding("pxe-dropped", "note", f"the PXE filter has dropped {packets} {packets_of}", advice)


def _iptables(pxe_filter: PxeFilterSettings) -> Iterator[Finding]:
    chains = Chains(rules_of(pxe_filter))
    if missing := chains.missing():
        yield _missing_programs(missing, "iptables")
        return
    if not HostCommand("ipset", package="ipset").present():
        summary = "ipset is not installed: a watchdog process closes the filter instead of the kernel"
        yield Finding("pxe-programs", "note", summary, "install the package ipset")
    try:
        yield _check_installed(all(chains.jumps(name) for name in FAMILIES), f"iptables chain {chains.pxe_filter}")
    except PxeFilterError as exc:
        yield _unknown_state(exc)


def _dnsmasq(pxe_filter: PxeFilterSettings) -> Iterator[Finding]:
    if not HostCommand("dnsmasq", package="dnsmasq").present():
        yield _missing_programs(["dnsmasq"], "dnsmasq")
    path = Path(pxe_filter.dhcp_hostsdir)
    unreadable = [
        directory
        for directory in (path, *path.absolute().parents)
        if directory.is_dir() and not _others_can_read(directory, directory == path)
    ]
    if not path.is_dir():
        advice = (
            f"create it, writable by the filter's user and readable by dnsmasq: install -d -o ferroscope -m 0755 {path}"
        )
        summary = f"the directory {path} does not exist; dnsmasq cannot start without it"
        yield Finding("host-files", "wrong", summary, advice)
    elif unreadable:
        summary = f"permission denied: dnsmasq's user cannot read {path}, so the filter has no effect"
        bits = "a+rx" if unreadable[0] == path else "a+x"
        yield Finding("host-files", "wrong", summary, f"chmod {bits} {unreadable[0]}; then restart dnsmasq")
    else:
        yield Finding("host-files", "ok", f"{path} exists and is readable by dnsmasq")


def _others_can_read(path: Path, files: bool) -> bool:
    required = _BITS_OF_OTHERS if files else stat.S_IXOTH
    return path.stat().st_mode & required == required


def _noop(pxe_filter: PxeFilterSettings) -> Iterator[Finding]:
    if pxe_filter.backends == ("noop",):
        summary = "[pxe_filter] backends is noop: this host holds the lease, but filters nothing"
        yield Finding("pxe-filter", "note", summary, "configure another backend, such as nftables")


_BACKENDS: Final = {"nftables": _nftables, "iptables": _iptables, "dnsmasq": _dnsmasq, "noop": _noop}


def _check_installed(installed: bool, evidence: str) -> Finding:
    if installed:
        return Finding("pxe-filter", "ok", f"the PXE filter is installed ({evidence})")
    summary = f"the PXE filter is not installed ({evidence} does not exist): DHCP on this host serves every machine"
    return Finding("pxe-filter", "note", summary, "start ferroscope-pxe-closed.service and pxe-filter before dnsmasq")


def _missing_programs(programs: list[str], package: str) -> Finding:
    summary = f"the PXE filter cannot start: {', '.join(programs)} not found"
    return Finding("pxe-programs", "wrong", summary, f"install the package {package}")


def _unknown_state(exc: PxeFilterError) -> Finding:
    return Finding("pxe-filter", "note", f"cannot determine whether the PXE filter is installed: {exc}", "run as root")


def _stale_tables(pxe_filter: PxeFilterSettings) -> Iterator[Finding]:
    try:
        for table in stale_tables(pxe_filter):
            yield Finding("pxe-filter", "wrong" if table.interfaces else "note", table.summary, table.advice)
    except PxeFilterError as exc:
        if "nftables" not in pxe_filter.backends:  # otherwise ``_nftables`` has reported it
            yield _unknown_state(exc)


def _closed_ruleset(pxe_filter: PxeFilterSettings, rulesets: Path) -> Iterator[Finding]:
    """Check the ruleset that closes this network's filter while the host boots."""
    own = rulesets / f"pxe-closed-{pxe_filter.network}.nft"
    path, rules = own if own.exists() else rulesets / "pxe-closed.nft", rules_of(pxe_filter)
    generate = f"run: ferroscope pxe ruleset -o {path}"
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError) as exc:
        summary = f"cannot read {path}: {getattr(exc, 'strerror', None) or exc}"
        yield Finding("pxe-ruleset", "note", summary, generate)
        return
    if "nftables" not in pxe_filter.backends:
        if text is not None and _belongs_to(text, rules):
            summary = f"{path} closes a PXE filter that is never opened: nftables is not in [pxe_filter] backends"
            yield Finding("pxe-ruleset", "wrong", summary, "disable ferroscope-pxe-closed.service and delete the file")
    elif text is None:
        yield Finding("pxe-ruleset", "note", f"{path} does not exist: this host is not closed while it boots", generate)
    elif text == ruleset(rules):
        yield Finding("pxe-ruleset", "ok", f"{path} matches this configuration")
    elif _belongs_to(text, rules):
        yield Finding("pxe-ruleset", "note", f"{path} does not match this configuration", generate)
    else:
        summary = f"{path} does not close the PXE filter of the network {pxe_filter.network}"
        yield Finding("pxe-ruleset", "wrong", summary, generate)


def _belongs_to(text: str, rules: FilterRules) -> bool:
    return f"table inet {rules.table} {{" in text
