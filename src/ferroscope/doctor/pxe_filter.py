"""What ``ferroscope doctor`` looks at where this host has a PXE filter: settings, programs, rules, files.

Like all checks: it changes nothing. What only root may see is left out for others, with a word about it.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ferroscope.boot_config.dnsmasq import own_name
from ferroscope.config.options import PxeFilterSettings, Settings
from ferroscope.contracts.pxe_filter import PxeFilterError
from ferroscope.doctor.boot import interfaces
from ferroscope.pxe_filter.backends.base import Command, FilterRules
from ferroscope.pxe_filter.backends.build import rules_of
from ferroscope.pxe_filter.backends.iptables import FAMILIES, Chains
from ferroscope.pxe_filter.backends.nftables import Tables, ruleset
from ferroscope.runtime.pxe_filter import check, stale_tables
from ferroscope.runtime.system import StartError
from ferroscope.telemetry.finding import Finding

# Where the shipped units have the rulesets that close the host while it starts.
RULESETS: Final = Path("/etc/ferroscope")

_BITS_OF_OTHERS: Final = stat.S_IROTH | stat.S_IXOTH


def examine(settings: Settings, host: str | None = None, rulesets: Path = RULESETS) -> Iterator[Finding]:
    """Yield the checks of this host; none at all where it has no filter."""
    boot, pxe_filter = settings.boot, settings.pxe_filter
    if (host or own_name(boot.hosts)) not in boot.hosts if boot.hosts else not pxe_filter.interfaces:
        return
    try:
        check(settings)
    except StartError as exc:
        yield Finding("pxe-filter", "wrong", f"the pxe-filter cannot start: {exc}", "correct [pxe_filter]")
        return
    if not boot.hosts:  # else that is looked at with what boot hosts serve
        yield from interfaces(pxe_filter)
    for name in pxe_filter.backends:
        yield from _BACKENDS[name](pxe_filter)
    yield from _strangers(pxe_filter)
    yield from _closed(pxe_filter, rulesets)


def _nftables(pxe_filter: PxeFilterSettings) -> Iterator[Finding]:
    tables, rules = Tables(timeout=pxe_filter.command_timeout), rules_of(pxe_filter)
    if not tables.present():
        yield _lacks(["nft"], "nftables")
        return
    try:
        yield _in_place(rules.table in tables.names(), f"the table inet {rules.table}")
    except PxeFilterError as exc:
        yield _unseen(exc)


def _iptables(pxe_filter: PxeFilterSettings) -> Iterator[Finding]:
    chains = Chains(rules_of(pxe_filter), timeout=pxe_filter.command_timeout)
    if missing := chains.missing():
        yield _lacks(missing, "iptables")
        return
    if not Command("ipset", package="ipset", timeout=pxe_filter.command_timeout).present():
        summary = "ipset is not installed: a watchdog closes the filter instead of the kernel"
        yield Finding("pxe-programs", "note", summary, "install the package ipset")
    try:
        yield _in_place(all(chains.jumps(name) for name in FAMILIES), f"the chain {chains.pxe_filter} of iptables")
    except PxeFilterError as exc:
        yield _unseen(exc)


def _dnsmasq(pxe_filter: PxeFilterSettings) -> Iterator[Finding]:
    if not Command("dnsmasq", package="dnsmasq", timeout=pxe_filter.command_timeout).present():
        yield _lacks(["dnsmasq"], "dnsmasq")
    path = Path(pxe_filter.dhcp_hostsdir)
    closed = [one for one in (path, *path.absolute().parents) if one.is_dir() and not _open_to_others(one, one == path)]
    if not path.is_dir():
        advice = (
            f"create it, writable by the filter's user and readable by dnsmasq: install -d -o ferroscope -m 0755 {path}"
        )
        yield Finding("host-files", "wrong", f"the directory {path} is not there, and dnsmasq does not start", advice)
    elif closed:
        summary = f"dnsmasq's user may not read {path}: what the filter writes there has no effect"
        bits = "a+rx" if closed[0] == path else "a+x"
        yield Finding("host-files", "wrong", summary, f"chmod {bits} {closed[0]}; then restart dnsmasq")
    else:
        yield Finding("host-files", "ok", f"{path} is there and can be read by dnsmasq")


def _open_to_others(path: Path, whole: bool) -> bool:
    wanted = _BITS_OF_OTHERS if whole else stat.S_IXOTH
    return path.stat().st_mode & wanted == wanted


def _noop(pxe_filter: PxeFilterSettings) -> Iterator[Finding]:
    if pxe_filter.backends == ("noop",):
        summary = "[pxe_filter] backends is noop: the filter takes part in the election and guards nothing"
        yield Finding("pxe-filter", "note", summary, "name a backend that guards, such as nftables")


_BACKENDS: Final = {"nftables": _nftables, "iptables": _iptables, "dnsmasq": _dnsmasq, "noop": _noop}


def _in_place(there: bool, what: str) -> Finding:
    if there:
        return Finding("pxe-filter", "ok", f"the filter stands in front of this host's services ({what})")
    summary = f"this host has no filter yet ({what} is not there): a DHCP service here answers everybody"
    return Finding("pxe-filter", "note", summary, "start ferroscope-pxe-closed.service and pxe-filter before dnsmasq")


def _lacks(programs: list[str], package: str) -> Finding:
    summary = f"this host lacks {', '.join(programs)}, so that the pxe-filter cannot close its filter, nor start"
    return Finding("pxe-programs", "wrong", summary, f"install the package {package}")


def _unseen(exc: PxeFilterError) -> Finding:
    return Finding("pxe-filter", "note", f"whether the filter is in place could not be seen: {exc}", "ask as root")


def _strangers(pxe_filter: PxeFilterSettings) -> Iterator[Finding]:
    try:
        for one in stale_tables(pxe_filter):
            yield Finding("pxe-filter", "wrong" if one.interfaces else "note", one.summary, one.advice)
    except PxeFilterError as exc:
        if "nftables" not in pxe_filter.backends:  # else that was said before
            yield _unseen(exc)


def _closed(pxe_filter: PxeFilterSettings, rulesets: Path) -> Iterator[Finding]:
    """The ruleset of this network, or the only one."""
    own = rulesets / f"pxe-closed-{pxe_filter.network}.nft"
    path, rules = own if own.exists() else rulesets / "pxe-closed.nft", rules_of(pxe_filter)
    make = f"run: ferroscope pxe ruleset -o {path}"
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError) as exc:
        yield Finding("pxe-ruleset", "note", f"{path} cannot be read: {getattr(exc, 'strerror', None) or exc}", make)
        return
    if "nftables" not in pxe_filter.backends:
        if text is not None and _is_of(text, rules):
            summary = f"{path} closes a PXE filter that nobody opens: nftables is not in [pxe_filter] backends"
            yield Finding("pxe-ruleset", "wrong", summary, "disable ferroscope-pxe-closed.service, and delete the file")
    elif text is None:
        yield Finding("pxe-ruleset", "note", f"there is no {path}: nothing closes this host while it starts", make)
    elif text == ruleset(rules):
        yield Finding("pxe-ruleset", "ok", f"{path} is what this configuration makes")
    elif _is_of(text, rules):
        yield Finding("pxe-ruleset", "note", f"{path} is not what this configuration makes", make)
    else:
        summary = f"{path} does not close the filter of the network {pxe_filter.network}, but another one or none"
        yield Finding("pxe-ruleset", "wrong", summary, make)


def _is_of(text: str, rules: FilterRules) -> bool:
    return f"table inet {rules.table} {{" in text
