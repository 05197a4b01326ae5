"""The gate in iptables, for hosts without nft: chains of its own, changed by one iptables-restore for all MACs.

With ipset, the kernel ends an opening by itself, as with nftables; between the two messages of such
a step, though, ``ipset`` could be stopped. Without it a watchdog closes. MACs are rules, looked at
one after the other, and matched by the frame's source: machines behind a DHCP relay need nftables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import structlog

from ferroscope.adapters.gate.command import Command
from ferroscope.adapters.gate.ruleset import GateRules
from ferroscope.adapters.gate.timed import TimedOpening
from ferroscope.adapters.gate.watched import Watchdog
from ferroscope.domain.gate import spelled
from ferroscope.domain.macsets import SetChange
from ferroscope.ports.clock import Clock
from ferroscope.ports.gate import GateError

_log = structlog.get_logger(__name__)

_FAMILIES: Final = ("iptables", "ip6tables")
_UDP: Final = "67,69,547,4011"
# Of all programs on a host one at a time may change legacy tables; the others fail unless they are told to wait.
_WAIT: Final = "--wait"


class IptablesGate:
    """See ``ports.gate.GateBackend``; ``timed.Kernel`` where the kernel has ipset."""

    name = "iptables"
    step = 1.0

    def __init__(self, rules: GateRules, *, clock: Clock, timeout: float) -> None:
        self._rules = rules
        self._chain = f"fspxe-{rules.network}"
        self._macs = f"{self._chain}-m"
        self._tools = {name: Command(name, package="iptables", timeout=timeout) for name in _FAMILIES}
        self._restores = {name: Command(f"{name}-restore", package="iptables", timeout=timeout) for name in _FAMILIES}
        self._ipset = Command("ipset", package="ipset", timeout=timeout)
        self._timed = TimedOpening(self, clock)
        self._watchdog = Watchdog(
            commands=[((self._restores[name].path, _WAIT, "--noflush"), self._gate_chain(())) for name in _FAMILIES]
            if self._restores["iptables"].present()
            else ()
        )
        self._open = False
        self.self_closing = self._has_timeouts()

    def install(self) -> None:
        self._timed.doubt()
        if self.self_closing:
            for name in ("open", "armed"):
                self._ipset("-exist", "create", self._set(name), "bitmap:port", "range", "0-65535", "timeout", "1")
            self._flush()
        self._everywhere(self._closed() + self._mac_chain())
        for name in _FAMILIES:
            for rule in self._jumps():
                try:
                    self._tools[name](_WAIT, "-C", "INPUT", *rule)
                except GateError:
                    self._tools[name](_WAIT, "-I", "INPUT", *rule)
        self._open = False
        self._timed.forget()

    def apply(self, change: SetChange, *, fresh: bool) -> None:
        if fresh:
            self._everywhere(self._mac_chain(change.allow, change.deny))
            return
        lines = [f"-D {rule}" for rule in self._each(change.no_longer_allow, "RETURN")]
        lines += [f"-D {rule}" for rule in self._each(change.no_longer_deny, "DROP")]
        lines += [f"-I {rule}" for rule in self._each(change.allow, "RETURN")]
        lines += [f"-I {rule}" for rule in self._each(change.deny, "DROP")]
        if lines:
            self._everywhere(lines)

    def hold(self, until: float) -> float:
        if self.self_closing:
            return self._timed.hold(until)
        if self._watchdog.hold(until):
            self._open = False
        if not self._open:
            self._everywhere(self._chain_lines(("-j", self._macs)))
            self._open = True
        return until

    def close(self) -> None:
        self._timed.doubt()
        if self.self_closing:
            try:
                self._flush()
                self._tools["iptables"](_WAIT, "-C", "INPUT", *next(self._jumps()))
            except GateError:
                self.install()
        else:
            try:
                self._tools["iptables"](_WAIT, "-C", "INPUT", *next(self._jumps()))
                self._everywhere(self._chain_lines(("-j", "DROP")))
            except GateError:
                self.install()
            self._watchdog.release()
        self._open = False
        self._timed.forget()

    def remove(self) -> None:
        self._watchdog.end()
        for name in _FAMILIES:
            for rule in self._jumps():
                self._quietly(self._tools[name], _WAIT, "-D", "INPUT", *rule)
            for chain in (self._chain, self._macs):
                self._quietly(self._tools[name], _WAIT, "-F", chain)
            for chain in (self._chain, self._macs):
                self._quietly(self._tools[name], _WAIT, "-X", chain)
        for name in ("open", "armed"):
            self._quietly(self._ipset, "destroy", self._set(name))

    # The steps of ``timed.Kernel``. A set's elements are ports, so that all boot services open together.

    def arm(self, ticket: int, timeout: float) -> None:
        self._ipset("-exist", "add", self._set("armed"), str(ticket), "timeout", f"{timeout:.0f}")

    def open(self, ticket: int, timeout: float) -> None:
        self._ipset("restore", stdin=f"del {self._set('armed')} {ticket}\n{self._additions(timeout)}")

    def refresh(self, timeout: float) -> None:
        self._ipset("restore", stdin=f"del {self._set('open')} 67\n{self._additions(timeout)}")

    def _additions(self, timeout: float) -> str:
        ports = [*_UDP.split(","), *map(str, self._rules.http_ports)]
        return "".join(f"add {self._set('open')} {port} timeout {timeout:.0f} -exist\n" for port in ports)

    def _has_timeouts(self) -> bool:
        """Whether the kernel has sets of ports with time-outs, and the tool for it is there."""
        probe = self._set("probe")
        try:
            self._ipset("-exist", "create", probe, "bitmap:port", "range", "0-1", "timeout", "1")
            self._ipset("destroy", probe)
        except GateError as exc:
            _log.warning("no ipset here: a watchdog process closes the gate instead of the kernel", why=str(exc))
            return False
        return True

    def _flush(self) -> None:
        for name in ("open", "armed"):
            self._ipset("flush", self._set(name))

    def _closed(self) -> list[str]:
        if not self.self_closing:
            return self._chain_lines(("-j", "DROP"))
        unless = ("-m", "set", "!", "--match-set", self._set("open"), "dst", "-j", "DROP")
        return self._chain_lines(unless, ("-j", self._macs))

    def _chain_lines(self, *rules: Iterable[str]) -> list[str]:
        return [f":{self._chain} - [0:0]", *(f"-A {self._chain} {' '.join(rule)}" for rule in rules)]

    def _gate_chain(self, rules: Iterable[Iterable[str]]) -> str:
        return _table(self._chain_lines(*rules, ("-j", "DROP")))

    def _mac_chain(self, allow: Iterable[int] = (), deny: Iterable[int] = ()) -> list[str]:
        last = [] if self._rules.unknown else [f"-A {self._macs} -j DROP"]
        rules = [f"-A {rule}" for rule in (*self._each(allow, "RETURN"), *self._each(deny, "DROP"))]
        return [f":{self._macs} - [0:0]", *rules, *last]

    def _each(self, macs: Iterable[int], verdict: str) -> Iterator[str]:
        """RETURN leaves the word to the host's own rules."""
        for mac in macs:
            yield f"{self._macs} -m mac --mac-source {spelled(mac)} -j {verdict}"

    def _jumps(self) -> Iterator[tuple[str, ...]]:
        for interface in self._rules.interfaces:
            to = ("-j", self._chain)
            yield ("-i", interface, "-p", "udp", "-m", "multiport", "--dports", _UDP, *to)
            if self._rules.http_ports:
                ports = ",".join(map(str, self._rules.http_ports))
                yield ("-i", interface, "-p", "tcp", "--syn", "-m", "multiport", "--dports", ports, *to)

    def _everywhere(self, lines: list[str]) -> None:
        for name in _FAMILIES:
            self._restores[name](_WAIT, "--noflush", stdin=_table(lines))

    def _quietly(self, command: Command, *words: str) -> None:
        try:
            command(*words)
        except GateError as exc:
            _log.debug("nothing to remove", why=str(exc))

    def _set(self, name: str) -> str:
        return f"{self._chain}-{name}"


def _table(lines: list[str]) -> str:
    declared_first = sorted(lines, key=lambda line: not line.startswith(":"))
    return "\n".join(["*filter", *declared_first, "COMMIT", ""])
