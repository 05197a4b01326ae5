"""The filter in iptables, for hosts without nft: chains of its own, changed by one iptables-restore for all MACs.

With ipset, the kernel ends an opening by itself, as with nftables; between the two messages of such
a step, though, ``ipset`` could be stopped. Without it a watchdog closes. MACs are rules, looked at
one after the other, and matched by the frame's source: machines behind a DHCP relay need nftables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import structlog

from ferroscope.contracts.pxe_filter import PxeFilterError
from ferroscope.contracts.queue import Clock
from ferroscope.core.boot_macs import SetChange, spelled
from ferroscope.pxe_filter.backends.base import Command, FilterRules, TimedOpening
from ferroscope.pxe_filter.backends.watchdog_client import Watchdog

# The chains of one network in iptables, for both families: put in place, looked at, and taken away.
#
# The jumps to them stand in INPUT, one for each interface and kind of service. Which of those are ours is seen by
# where
# they lead; so those of interfaces that are not configured any more are found as well. A change is one
# ``iptables-restore`` for each family, all of it or nothing. A look takes four short processes.

FAMILIES: Final = ("iptables", "ip6tables")
UDP: Final = "67,69,547,4011"
# Of all programs on a host one at a time may change legacy tables; the others fail unless they are told to wait.
WAIT: Final = "--wait"


class Chains:
    """``pxe_filter`` and ``macs`` are their names: at most 28 characters, and no other network's."""

    def __init__(self, rules: FilterRules, *, timeout: float) -> None:
        self.pxe_filter = f"fspxe-{rules.network}"
        self.macs = f"fspxm-{rules.network}"
        # The name that earlier releases gave to ``macs``: it may also be the filter of a network with such a name.
        self._former_macs = f"{self.pxe_filter}-m"
        self._rules = rules
        self._tools = {name: Command(name, package="iptables", timeout=timeout) for name in FAMILIES}
        self.restores = {name: Command(f"{name}-restore", package="iptables", timeout=timeout) for name in FAMILIES}

    def missing(self) -> list[str]:
        """Return the programs that are not installed."""
        return [tool.program for tool in (*self._tools.values(), *self.restores.values()) if not tool.present()]

    def put(self, lines: list[str]) -> None:
        """Carry out lines as iptables-save writes them."""
        for name in FAMILIES:
            self.restores[name](WAIT, "--noflush", stdin=table(lines))

    def install(self, lines: list[str]) -> None:
        """Carry them out, and have exactly the jumps that belong there, before all other rules of INPUT."""
        wanted = [f"-I INPUT {jump}" for jump in self._jumps()]
        for name in FAMILIES:
            old = [f"-D INPUT {jump}" for jump in self.jumps(name)]
            self.restores[name](WAIT, "--noflush", stdin=table([*lines, *old, *wanted]))

    def look(self, rules: int) -> None:
        """Raise ``PxeFilterError`` where a jump is gone, or the filter's chain has not so many rules."""
        wanted = len(list(self._jumps()))
        for name in FAMILIES:
            jumps = len(set(self.jumps(name)))
            there = self._tools[name](WAIT, "-S", self.pxe_filter).count("\n-A ") if jumps >= wanted else 0
            if there == 0:  # a flush may come between the two looks
                raise PxeFilterError(
                    f"the filter's rules in {name} are gone: somebody flushed or replaced the host's firewall"
                )
            if there != rules:
                raise PxeFilterError(
                    f"the filter's chain in {name} is not as it was: somebody changed {self.pxe_filter}"
                )

    def jumps(self, family: str) -> list[str]:
        """Return the jumps to the filter that are there, in the words of iptables."""
        return _to(self.pxe_filter, self._tools[family](WAIT, "-S", "INPUT"))

    def remove(self) -> None:
        """Take away chains and jumps, and look whether they are gone; both families, whatever fails in one."""
        failed: list[str] = []
        for name in FAMILIES:
            try:
                self._remove(name)
            except PxeFilterError as exc:
                failed.append(str(exc))
        if failed:
            raise PxeFilterError("; ".join(failed))

    def _remove(self, family: str) -> None:
        there, shown = self._there(family)
        if there:
            emptied = [f":{chain} - [0:0]" for chain in there]
            jumps = [f"-D INPUT {jump}" for jump in _to(self.pxe_filter, shown)]
            self.restores[family](
                WAIT, "--noflush", stdin=table([*emptied, *jumps, *(f"-X {chain}" for chain in there)])
            )
        left, _ = self._there(family)
        if left:
            raise PxeFilterError(f"{', '.join(left)} could not be removed from {family}; see: {family} -S")

    def _there(self, family: str) -> tuple[list[str], str]:
        """Return our chains that exist, and all rules of the table."""
        shown = self._tools[family](WAIT, "-S")
        ours = [self.pxe_filter, self.macs]
        if not _to(self._former_macs, shown):
            ours.append(self._former_macs)
        return [chain for chain in ours if f"-N {chain}" in shown.splitlines()], shown

    def _jumps(self) -> Iterator[str]:
        """Of HTTP only new connections are judged, so that a download outlives the closing."""
        for interface in self._rules.interfaces:
            yield f"-i {interface} -p udp -m multiport --dports {UDP} -j {self.pxe_filter}"
            if self._rules.http_ports:
                ports = ",".join(map(str, self._rules.http_ports))
                yield f"-i {interface} -p tcp --syn -m multiport --dports {ports} -j {self.pxe_filter}"


def _to(chain: str, shown: str) -> list[str]:
    """Return the rules of INPUT that lead to the chain, without the words ``-A INPUT``."""
    lines = (line.removeprefix("-A INPUT ") for line in shown.splitlines() if line.startswith("-A INPUT "))
    return [line for line in lines if line.endswith(f" -j {chain}")]


def table(lines: Iterable[str]) -> str:
    """Return lines as iptables-restore reads them: chains are declared first, and thereby emptied."""
    declared_first = sorted(lines, key=lambda line: not line.startswith(":"))
    return "\n".join(["*filter", *declared_first, "COMMIT", ""])


_log = structlog.get_logger(__name__)

# Seconds between two checks of an open filter: somebody may have flushed the host's firewall, and our rules with it.
_LOOK_EVERY: Final = 0.5


class IptablesFilter:
    """See ``contracts.pxe_filter.FilterBackend``; ``timed.Kernel`` where the kernel has ipset."""

    name = "iptables"
    step = 1.0

    def __init__(self, rules: FilterRules, *, clock: Clock, timeout: float) -> None:
        self._rules = rules
        self._clock = clock
        self._chains = Chains(rules, timeout=timeout)
        self._ipset = Command("ipset", package="ipset", timeout=timeout)
        self._timed = TimedOpening(self, clock)
        closing = table(self._pxe_filter(("-j", "DROP")))
        self._watchdog = Watchdog(
            commands=[((self._chains.restores[name].path, WAIT, "--noflush"), closing) for name in FAMILIES]
            if not self._chains.missing()
            else ()
        )
        self._open = False
        self._looked_at = 0.0
        self.self_closing = self._has_timeouts()

    def install(self) -> None:
        self._timed.doubt()
        if self.self_closing:
            for name in ("open", "armed"):
                self._ipset("-exist", "create", self._set(name), "bitmap:port", "range", "0-65535", "timeout", "1")
            self._flush()
        self._chains.install(self._closed() + self._mac_chain())
        self._open = False
        self._timed.forget()

    def apply(self, change: SetChange, *, fresh: bool, progress: Callable[[], object] = lambda: None) -> None:
        if fresh:
            self._chains.put(self._mac_chain(change.allow, change.deny))
            return
        lines = [f"-D {rule}" for rule in self._each(change.no_longer_allow, "RETURN")]
        lines += [f"-D {rule}" for rule in self._each(change.no_longer_deny, "DROP")]
        lines += [f"-I {rule}" for rule in self._each(change.allow, "RETURN")]
        lines += [f"-I {rule}" for rule in self._each(change.deny, "DROP")]
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
        if self._clock.monotonic() - self._looked_at >= _LOOK_EVERY:
            self._look()
        return until

    def close(self) -> None:
        self._timed.doubt()
        try:
            if self.self_closing:
                self._flush()
            else:
                self._chains.put(self._pxe_filter(("-j", "DROP")))
            self._look()
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

    def _look(self) -> None:
        """Raise ``PxeFilterError`` where the filter is not in place."""
        self._chains.look(len(self._closed_rules()))
        self._looked_at = self._clock.monotonic()

    # The steps of ``timed.Kernel``. A set's elements are ports, so that all boot services open together.

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
        """Whether the kernel has sets of ports with time-outs, and the tool for it is there."""
        probe = self._set("probe")
        try:
            self._ipset("-exist", "create", probe, "bitmap:port", "range", "0-1", "timeout", "1")
            self._ipset("destroy", probe)
        except PxeFilterError as exc:
            _log.warning("no ipset here: a watchdog process closes the filter instead of the kernel", why=str(exc))
            return False
        return True

    def _flush(self) -> None:
        for name in ("open", "armed"):
            self._ipset("flush", self._set(name))

    def _closed(self) -> list[str]:
        return self._pxe_filter(*self._closed_rules())

    def _closed_rules(self) -> tuple[tuple[str, ...], ...]:
        if not self.self_closing:
            return (("-j", "DROP"),)
        unless = ("-m", "set", "!", "--match-set", self._set("open"), "dst", "-j", "DROP")
        return unless, ("-j", self._chains.macs)

    def _pxe_filter(self, *rules: Iterable[str]) -> list[str]:
        """Return the filter's chain, with nothing but these rules."""
        chain = self._chains.pxe_filter
        return [f":{chain} - [0:0]", *(f"-A {chain} {' '.join(rule)}" for rule in rules)]

    def _mac_chain(self, allow: Iterable[int] = (), deny: Iterable[int] = ()) -> list[str]:
        last = [] if self._rules.unknown else [f"-A {self._chains.macs} -j DROP"]
        rules = [f"-A {rule}" for rule in (*self._each(allow, "RETURN"), *self._each(deny, "DROP"))]
        return [f":{self._chains.macs} - [0:0]", *rules, *last]

    def _each(self, macs: Iterable[int], verdict: str) -> Iterator[str]:
        """RETURN leaves the word to the host's own rules."""
        for mac in macs:
            yield f"{self._chains.macs} -m mac --mac-source {spelled(mac)} -j {verdict}"

    def _set(self, name: str) -> str:
        return f"{self._chains.pxe_filter}-{name}"
