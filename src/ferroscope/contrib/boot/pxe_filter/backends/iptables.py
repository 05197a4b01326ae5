"""The filter in iptables, for hosts without nft: its own chains, changed by one iptables-restore for all MACs.

With ipset the kernel closes the filter by a time-out, as with nftables. But ``ipset`` sends the two messages of a step
separately, and could be stopped between them. Without ipset a watchdog process closes it. MACs are rules, which are
evaluated one by one, and match the source of the frame: machines behind a DHCP relay need nftables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import structlog

from ferroscope.contracts.store import Clock
from ferroscope.contrib.boot.pxe_filter import PxeFilterError
from ferroscope.contrib.boot.pxe_filter.backends.base import (
    COMMAND_SECONDS,
    FilterRules,
    FilterWatchdog,
    HostCommand,
    TimedOpening,
)
from ferroscope.core.boot_macs import SetChange, spell_mac

# The chains of one network in iptables and ip6tables.
#
# INPUT has a jump to them for each interface and kind of service. Our jumps are recognized by their target, so those of
# interfaces that were removed from the configuration are found too. A change is one ``iptables-restore`` per family,
# all or nothing. A check runs four short processes.

FAMILIES: Final = ("iptables", "ip6tables")
UDP: Final = "67,69,547,4011"
# Only one program at a time can change legacy tables; without this option, the others fail.
WAIT: Final = "--wait"


class Chains:
    """``pxe_filter`` and ``macs`` are the chains' names: at most 28 characters, and unique to the network."""

    def __init__(self, rules: FilterRules, *, timeout: float = COMMAND_SECONDS) -> None:
        self.pxe_filter = f"fspxe-{rules.network}"
        self.macs = f"fspxm-{rules.network}"
        # The name of ``macs`` in earlier releases; it may also be the filter chain of another network.
        self._former_macs = f"{self.pxe_filter}-m"
        self._rules = rules
        self._tools = {name: HostCommand(name, package="iptables", timeout=timeout) for name in FAMILIES}
        self.restores = {name: HostCommand(f"{name}-restore", package="iptables", timeout=timeout) for name in FAMILIES}

    def missing(self) -> list[str]:
        """Return the programs that are not installed."""
        return [tool.program for tool in (*self._tools.values(), *self.restores.values()) if not tool.present()]

    def put(self, lines: list[str]) -> None:
        """Load lines in the format of iptables-save."""
        for name in FAMILIES:
            self.restores[name](WAIT, "--noflush", stdin=table(lines))

    def install(self, lines: list[str]) -> None:
        """Load the lines, and put exactly the required jumps in front of all other rules of INPUT."""
        new = [f"-I INPUT {jump}" for jump in self._jumps()]
        for name in FAMILIES:
            old = [f"-D INPUT {jump}" for jump in self.jumps(name)]
            self.restores[name](WAIT, "--noflush", stdin=table([*lines, *old, *new]))

    def check(self, rules: int) -> None:
        """Raise ``PxeFilterError`` if a jump is missing, or the filter's chain has a different number of rules."""
        jump_count = len(list(self._jumps()))
        for name in FAMILIES:
            jumps = len(set(self.jumps(name)))
            rule_count = self._tools[name](WAIT, "-S", self.pxe_filter).count("\n-A ") if jumps >= jump_count else 0
            if rule_count == 0:  # 0 also if the chain was flushed after the jumps were read
                raise PxeFilterError(
                    f"the filter's rules in {name} are missing: the host's firewall was flushed or replaced"
                )
            if rule_count != rules:
                raise PxeFilterError(f"the filter's chain {self.pxe_filter} in {name} was changed by another program")

    def jumps(self, family: str) -> list[str]:
        """Return the existing jumps to the filter, in the syntax of iptables."""
        return _jumps_to(self.pxe_filter, self._tools[family](WAIT, "-S", "INPUT"))

    def remove(self) -> None:
        """Remove chains and jumps, and verify that they are gone; both families, even if one fails."""
        errors: list[str] = []
        for name in FAMILIES:
            try:
                self._remove(name)
            except PxeFilterError as exc:
                errors.append(str(exc))
        if errors:
            raise PxeFilterError("; ".join(errors))

    def _remove(self, family: str) -> None:
        chains, listing = self._existing_chains(family)
        if chains:
            empty = [f":{chain} - [0:0]" for chain in chains]
            jumps = [f"-D INPUT {jump}" for jump in _jumps_to(self.pxe_filter, listing)]
            self.restores[family](
                WAIT, "--noflush", stdin=table([*empty, *jumps, *(f"-X {chain}" for chain in chains)])
            )
        remaining, _ = self._existing_chains(family)
        if remaining:
            raise PxeFilterError(f"{', '.join(remaining)} cannot be removed from {family}; see: {family} -S")

    def _existing_chains(self, family: str) -> tuple[list[str], str]:
        """Return our existing chains, and all rules of the table."""
        listing = self._tools[family](WAIT, "-S")
        ours = [self.pxe_filter, self.macs]
        if not _jumps_to(self._former_macs, listing):
            ours.append(self._former_macs)
        return [chain for chain in ours if f"-N {chain}" in listing.splitlines()], listing

    def _jumps(self) -> Iterator[str]:
        """Of HTTP only new connections are checked, so that a download continues after the filter closes."""
        for interface in self._rules.interfaces:
            yield f"-i {interface} -p udp -m multiport --dports {UDP} -j {self.pxe_filter}"
            if self._rules.http_ports:
                ports = ",".join(map(str, self._rules.http_ports))
                yield f"-i {interface} -p tcp --syn -m multiport --dports {ports} -j {self.pxe_filter}"


def _jumps_to(chain: str, listing: str) -> list[str]:
    """Return the rules of INPUT that jump to the chain, without ``-A INPUT``."""
    lines = (line.removeprefix("-A INPUT ") for line in listing.splitlines() if line.startswith("-A INPUT "))
    return [line for line in lines if line.endswith(f" -j {chain}")]


def table(lines: Iterable[str]) -> str:
    """Return the lines as input for iptables-restore: declarations first, which also empty the chains."""
    declared_first = sorted(lines, key=lambda line: not line.startswith(":"))
    return "\n".join(["*filter", *declared_first, "COMMIT", ""])


_log = structlog.get_logger(__name__)

# Seconds between checks of an open filter, in case the host's firewall and our rules with it were flushed.
_CHECK_INTERVAL: Final = 0.5


class IptablesFilter:
    """A ``FilterBackend``, and the ``Kernel`` of ``TimedOpening`` if the kernel supports ipset."""

    name = "iptables"
    step = 1.0

    def __init__(self, rules: FilterRules, *, clock: Clock, timeout: float = COMMAND_SECONDS) -> None:
        self._rules = rules
        self._clock = clock
        self._chains = Chains(rules, timeout=timeout)
        self._ipset = HostCommand("ipset", package="ipset", timeout=timeout)
        self._timed = TimedOpening(self, clock)
        closing = table(self._pxe_filter(("-j", "DROP")))
        self._watchdog = FilterWatchdog(
            commands=[((self._chains.restores[name].path, WAIT, "--noflush"), closing) for name in FAMILIES]
            if not self._chains.missing()
            else ()
        )
        self._open = False
        self._checked_at = 0.0
        self.self_closing = self._has_timeouts()

    def install(self) -> None:
        self._timed.doubt()
        if self.self_closing:
            for name in ("open", "armed"):
                self._ipset("-exist", "create", self._set(name), "bitmap:port", "range", "0-65535", "timeout", "1")
            self._flush()
        self._chains.install(self._closed_chain() + self._mac_chain())
        self._open = False
        self._timed.forget()

    def apply(self, change: SetChange, *, fresh: bool, progress: Callable[[], object] = lambda: None) -> None:
        if fresh:
            self._chains.put(self._mac_chain(change.allow, change.deny))
            return
        lines = [f"-D {rule}" for rule in self._mac_rules(change.no_longer_allow, "RETURN")]
        lines += [f"-D {rule}" for rule in self._mac_rules(change.no_longer_deny, "DROP")]
        lines += [f"-I {rule}" for rule in self._mac_rules(change.allow, "RETURN")]
        lines += [f"-I {rule}" for rule in self._mac_rules(change.deny, "DROP")]
        if lines:
            self._chains.put(lines)

    def hold(self, until: float) -> float:
        if self.self_closing:
            until = self._timed.hold(until)
        else:
            if self._watchdog.hold(until):
                self._open = False
            if not self._open:
                self._chains.put(self._pxe_filter(("-j", self._chains.macs)))
                self._open = True
        if self._clock.monotonic() - self._checked_at >= _CHECK_INTERVAL:
            self._check()
        return until

    def close(self) -> None:
        self._timed.doubt()
        try:
            if self.self_closing:
                self._flush()
            else:
                self._chains.put(self._pxe_filter(("-j", "DROP")))
            self._check()
        except PxeFilterError:
            self.install()
        if not self.self_closing:
            self._watchdog.release()
        self._open = False
        self._timed.forget()

    def remove(self) -> None:
        self._watchdog.end()
        self._chains.remove()
        if self._ipset.present():
            ours = {self._set(name) for name in ("open", "armed")}
            for name in ours.intersection(self._ipset("list", "-n").split()):
                self._ipset("destroy", name)

    def _check(self) -> None:
        """Raise ``PxeFilterError`` if the filter is not in place."""
        self._chains.check(len(self._closed_rules()))
        self._checked_at = self._clock.monotonic()

    # The operations of ``base.Kernel``. Elements are port numbers, so that all boot services open together.

    def arm(self, ticket: int, timeout: float) -> None:
        self._ipset("-exist", "add", self._set("armed"), str(ticket), "timeout", f"{timeout:.0f}")

    def open(self, ticket: int, timeout: float) -> None:
        self._ipset("restore", stdin=f"del {self._set('armed')} {ticket}\n{self._additions(timeout)}")

    def refresh(self, timeout: float) -> None:
        self._ipset("restore", stdin=f"del {self._set('open')} 67\n{self._additions(timeout)}")

    def _additions(self, timeout: float) -> str:
        ports = [*UDP.split(","), *map(str, self._rules.http_ports)]
        return "".join(f"add {self._set('open')} {port} timeout {timeout:.0f} -exist\n" for port in ports)

    def _has_timeouts(self) -> bool:
        """Whether the kernel supports sets of ports with time-outs, and ipset is installed."""
        probe = self._set("probe")
        try:
            self._ipset("-exist", "create", probe, "bitmap:port", "range", "0-1", "timeout", "1")
            self._ipset("destroy", probe)
        except PxeFilterError as exc:
            _log.warning(
                "ipset is not available; a watchdog process closes the filter instead of the kernel", why=str(exc)
            )
            return False
        return True

    def _flush(self) -> None:
        for name in ("open", "armed"):
            self._ipset("flush", self._set(name))

    def _closed_chain(self) -> list[str]:
        return self._pxe_filter(*self._closed_rules())

    def _closed_rules(self) -> tuple[tuple[str, ...], ...]:
        if not self.self_closing:
            return (("-j", "DROP"),)
        unless = ("-m", "set", "!", "--match-set", self._set("open"), "dst", "-j", "DROP")
        return unless, ("-j", self._chains.macs)

    def _pxe_filter(self, *rules: Iterable[str]) -> list[str]:
        """Return the filter's chain with exactly these rules."""
        chain = self._chains.pxe_filter
        return [f":{chain} - [0:0]", *(f"-A {chain} {' '.join(rule)}" for rule in rules)]

    def _mac_chain(self, allow: Iterable[int] = (), deny: Iterable[int] = ()) -> list[str]:
        last = [] if self._rules.unknown else [f"-A {self._chains.macs} -j DROP"]
        rules = [f"-A {rule}" for rule in (*self._mac_rules(allow, "RETURN"), *self._mac_rules(deny, "DROP"))]
        return [f":{self._chains.macs} - [0:0]", *rules, *last]

    def _mac_rules(self, macs: Iterable[int], verdict: str) -> Iterator[str]:
        """RETURN leaves the decision to the host's own rules."""
        for mac in macs:
            yield f"{self._chains.macs} -m mac --mac-source {spell_mac(mac)} -j {verdict}"

    def _set(self, name: str) -> str:
        return f"{self._chains.pxe_filter}-{name}"
