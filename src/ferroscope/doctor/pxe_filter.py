"""What ``ferroscope doctor`` looks at where this host has a PXE gate: settings, programs, rules, files.

Like all checks: it changes nothing. What only root may see is left out for others, with a word about it.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ferroscope.boot_config.dnsmasq import own_name
from ferroscope.config.options import PxeFilterSettings, Settings
from ferroscope.contracts.pxe_filter import GateError
from ferroscope.doctor.boot import interfaces
from ferroscope.pxe_filter.backends.base import Command
from ferroscope.pxe_filter.backends.build import rules_of
from ferroscope.pxe_filter.backends.iptables import FAMILIES, Chains
from ferroscope.pxe_filter.backends.nftables import Tables
from ferroscope.pxe_filter.backends.ruleset import GateRules, ruleset
from ferroscope.runtime.pxe_filter import check
from ferroscope.runtime.stale_tables import strangers
from ferroscope.runtime.system import StartError
from ferroscope.telemetry.finding import Finding

# Where the shipped units have the rulesets that close the host while it starts.
RULESETS: Final = Path("/etc/ferroscope")

_BITS_OF_OTHERS: Final = stat.S_IROTH | stat.S_IXOTH


def examine(settings: Settings, host: str | None = None, rulesets: Path = RULESETS) -> Iterator[Finding]:
    """Yield the checks of this host; none at all where it has no gate."""
    boot, gate = settings.boot, settings.pxe_filter
    if (host or own_name(boot.hosts)) not in boot.hosts if boot.hosts else not gate.interfaces:
        return
    try:
        check(settings)
    except StartError as exc:
        yield Finding("pxe-gate", "wrong", f"the pxe-filter cannot start: {exc}", "correct [pxe_filter]")
        return
    if not boot.hosts:  # else that is looked at with what boot hosts serve
        yield from interfaces(gate)
    for name in gate.backends:
        yield from _BACKENDS[name](gate)
    yield from _strangers(gate)
    yield from _closed(gate, rulesets)


def _nftables(gate: PxeFilterSettings) -> Iterator[Finding]:
    tables, rules = Tables(timeout=gate.command_timeout), rules_of(gate)
    if not tables.present():
        yield _lacks(["nft"], "nftables")
        return
    try:
        yield _in_place(rules.table in tables.names(), f"the table inet {rules.table}")
    except GateError as exc:
        yield _unseen(exc)


def _iptables(gate: PxeFilterSettings) -> Iterator[Finding]:
    chains = Chains(rules_of(gate), timeout=gate.command_timeout)
    if missing := chains.missing():
        yield _lacks(missing, "iptables")
        return
    if not Command("ipset", package="ipset", timeout=gate.command_timeout).present():
        summary = "ipset is not installed: a watchdog closes the gate instead of the kernel"
        yield Finding("pxe-programs", "note", summary, "install the package ipset")
    try:
        yield _in_place(all(chains.jumps(name) for name in FAMILIES), f"the chain {chains.gate} of iptables")
    except GateError as exc:
        yield _unseen(exc)


def _dnsmasq(gate: PxeFilterSettings) -> Iterator[Finding]:
    if not Command("dnsmasq", package="dnsmasq", timeout=gate.command_timeout).present():
        yield _lacks(["dnsmasq"], "dnsmasq")
    path = Path(gate.dhcp_hostsdir)
    closed = [one for one in (path, *path.absolute().parents) if one.is_dir() and not _open_to_others(one, one == path)]
    if not path.is_dir():
        advice = f"make it, for the gate's user to write and dnsmasq's to read: install -d -o ferroscope -m 0755 {path}"
        yield Finding("host-files", "wrong", f"the directory {path} is not there, and dnsmasq does not start", advice)
    elif closed:
        summary = f"dnsmasq's user may not read {path}: what the gate writes there has no effect"
        bits = "a+rx" if closed[0] == path else "a+x"
        yield Finding("host-files", "wrong", summary, f"chmod {bits} {closed[0]}; then restart dnsmasq")
    else:
        yield Finding("host-files", "ok", f"{path} is there and can be read by dnsmasq")


def _open_to_others(path: Path, whole: bool) -> bool:
    wanted = _BITS_OF_OTHERS if whole else stat.S_IXOTH
    return path.stat().st_mode & wanted == wanted


def _noop(gate: PxeFilterSettings) -> Iterator[Finding]:
    if gate.backends == ("noop",):
        summary = "[pxe_filter] backends is noop: the gate takes part in the election and guards nothing"
        yield Finding("pxe-gate", "note", summary, "name a backend that guards, such as nftables")


_BACKENDS: Final = {"nftables": _nftables, "iptables": _iptables, "dnsmasq": _dnsmasq, "noop": _noop}


def _in_place(there: bool, what: str) -> Finding:
    if there:
        return Finding("pxe-gate", "ok", f"the gate stands in front of this host's services ({what})")
    summary = f"this host has no gate yet ({what} is not there): a DHCP service here answers everybody"
    return Finding("pxe-gate", "note", summary, "start ferroscope-pxe-closed.service and the pxe-filter before dnsmasq")


def _lacks(programs: list[str], package: str) -> Finding:
    summary = f"this host lacks {', '.join(programs)}, so that the pxe-filter cannot close its gate, nor start"
    return Finding("pxe-programs", "wrong", summary, f"install the package {package}")


def _unseen(exc: GateError) -> Finding:
    return Finding("pxe-gate", "note", f"whether the gate is in place could not be seen: {exc}", "ask as root")


def _strangers(gate: PxeFilterSettings) -> Iterator[Finding]:
    try:
        for one in strangers(gate):
            yield Finding("pxe-gate", "wrong" if one.interfaces else "note", one.summary, one.advice)
    except GateError as exc:
        if "nftables" not in gate.backends:  # else that was said before
            yield _unseen(exc)


def _closed(gate: PxeFilterSettings, rulesets: Path) -> Iterator[Finding]:
    """The ruleset of this network, or the only one."""
    own = rulesets / f"pxe-closed-{gate.network}.nft"
    path, rules = own if own.exists() else rulesets / "pxe-closed.nft", rules_of(gate)
    make = f"run: ferroscope pxe ruleset -o {path}"
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError) as exc:
        yield Finding("pxe-ruleset", "note", f"{path} cannot be read: {getattr(exc, 'strerror', None) or exc}", make)
        return
    if "nftables" not in gate.backends:
        if text is not None and _is_of(text, rules):
            summary = f"{path} closes a gate that nobody opens: nftables is not in [pxe_filter] backends"
            yield Finding("pxe-ruleset", "wrong", summary, "disable ferroscope-pxe-closed.service, and delete the file")
    elif text is None:
        yield Finding("pxe-ruleset", "note", f"there is no {path}: nothing closes this host while it starts", make)
    elif text == ruleset(rules):
        yield Finding("pxe-ruleset", "ok", f"{path} is what this configuration makes")
    elif _is_of(text, rules):
        yield Finding("pxe-ruleset", "note", f"{path} is not what this configuration makes", make)
    else:
        summary = f"{path} does not close the gate of the network {gate.network}, but another one or none"
        yield Finding("pxe-ruleset", "wrong", summary, make)


def _is_of(text: str, rules: GateRules) -> bool:
    return f"table inet {rules.table} {{" in text
